# cmake --install: the library, the headers that mixtape/mixtape.h reaches, the program, and what CMake and pkg-config
# need to find them.
include(CMakePackageConfigHelpers)

# The headers of ours that `header` includes, itself first, appended to `reached`.
function(mixtape_reach header reached)
  set(seen ${${reached}})
  if(NOT header IN_LIST seen)
    list(APPEND seen ${header})
    set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
    file(STRINGS ${CMAKE_SOURCE_DIR}/${header} lines REGEX "^#include \"mixtape/")
    foreach(line ${lines})
      string(REGEX REPLACE ".*\"(.*)\".*" "\\1" included ${line})
      mixtape_reach(${included} seen)
    endforeach()
  endif()
  set(${reached} ${seen} PARENT_SCOPE)
endfunction()

set(MIXTAPE_PUBLIC_HEADERS "")
mixtape_reach(mixtape/mixtape.h MIXTAPE_PUBLIC_HEADERS)
foreach(header ${MIXTAPE_PUBLIC_HEADERS})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()

# Where the library is static, it is an archive and a target that links the whole of it: kernels enter their tables
# before main, and nothing else refers to them.
set(MIXTAPE_PRIVATE_LIBS dnnl hwy pcre2-8 utf8proc dl)  # what users of the archive link as well
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/mixtape)
install(TARGETS mixtape ${MIXTAPE_ARCHIVE} EXPORT mixtapeTargets)
if(TARGET mixtape_cli)
  set(beside "\$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(mixtape_cli PROPERTIES INSTALL_RPATH "${beside};${beside}/mixtape")  # a package's: bundle.cmake
  install(TARGETS mixtape_cli)
  # What the program says of itself.
  set(files "")
  foreach(pair "mixtape.1:man" "mixtape.bash:completions bash" "_mixtape:completions zsh" "mixtape.fish:completions fish")
    string(REPLACE ":" ";" pair "${pair}")
    list(GET pair 0 file)
    list(GET pair 1 words)
    separate_arguments(words)
    add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/${file} COMMAND mixtape_cli ${words} > ${CMAKE_BINARY_DIR}/${file}
                       DEPENDS mixtape_cli VERBATIM)
    list(APPEND files ${CMAKE_BINARY_DIR}/${file})
  endforeach()
  add_custom_target(mixtape_pages ALL DEPENDS ${files})
  install(FILES ${CMAKE_BINARY_DIR}/mixtape.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${CMAKE_BINARY_DIR}/mixtape.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          RENAME mixtape)
  install(FILES ${CMAKE_BINARY_DIR}/_mixtape DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${CMAKE_BINARY_DIR}/_mixtape DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions
          COMPONENT debian EXCLUDE_FROM_ALL)  # below /usr Debian's zsh looks there alone
  install(FILES ${CMAKE_BINARY_DIR}/mixtape.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
install(EXPORT mixtapeTargets NAMESPACE mixtape:: DESTINATION ${package})
set(bundled ${CMAKE_INSTALL_LIBDIR}/mixtape)
configure_package_config_file(cmake/mixtapeConfig.cmake.in ${CMAKE_BINARY_DIR}/mixtapeConfig.cmake
                              INSTALL_DESTINATION ${package} PATH_VARS bundled)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/mixtapeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/mixtapeConfig.cmake ${CMAKE_BINARY_DIR}/mixtapeConfigVersion.cmake
        DESTINATION ${package})

file(RELATIVE_PATH MIXTAPE_PC_TO_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REPLACE ";" " -l" MIXTAPE_PC_PRIVATE "-fopenmp;${MIXTAPE_PRIVATE_LIBS}")
set(MIXTAPE_PC_LIBS "-lmixtape")
if(MIXTAPE_ARCHIVE)
  set(MIXTAPE_PC_LIBS "-Wl,--whole-archive -lmixtape -Wl,--no-whole-archive ${MIXTAPE_PC_PRIVATE}")
endif()
configure_file(cmake/mixtape.pc.in ${CMAKE_BINARY_DIR}/mixtape.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/mixtape.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
