# Writes OUTPUT, a source file whose function FUNCTION, of HEADER, has the commit's name; only if it changed, so that nothing is built again otherwise.
execute_process(COMMAND git describe --always --abbrev=7 --dirty --exclude=* WORKING_DIRECTORY ${SOURCE}
                OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(failed)
  set(commit "unknown commit")
endif()
set(text "#include \"${HEADER}\"\n\nconst char* ${FUNCTION}() { return \"${commit}\"; }\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
