# What built files need that isn't on every machine, installed beside them: they run where glibc and libstdc++ are.
#   mixtape_bundle(component destination file...)
# Licences: oneDNN and Highway Apache-2.0, fmt and utf8proc MIT, PCRE2 and the OpenCL loader (oneDNN asks for it) BSD,
# libgomp GPL with the runtime exception; their texts go along where Debian's packages have them. Never glibc, libgcc
# and libstdc++: they belong to the machine, and a newer machine's libstdc++ asks for a newer glibc than we do.
function(mixtape_bundle component destination)
  install(CODE "
    set(files \"${ARGN}\")
    set(destination \"\${CMAKE_INSTALL_PREFIX}/${destination}\")
    file(GET_RUNTIME_DEPENDENCIES LIBRARIES \${files} RESOLVED_DEPENDENCIES_VAR found
         PRE_EXCLUDE_REGEXES [[^ld-linux]] [[^lib(c|m|dl|rt|pthread|util|gcc_s|stdc[+][+])[.]so]])
    list(REMOVE_ITEM found \${files})
    foreach(file IN LISTS found)
      get_filename_component(name \${file} NAME)
      get_filename_component(real \${file} REALPATH)
      file(INSTALL DESTINATION \${destination} TYPE PROGRAM RENAME \${name} FILES \${real})
      if(CMAKE_INSTALL_DO_STRIP)
        execute_process(COMMAND ${CMAKE_STRIP} \$ENV{DESTDIR}\${destination}/\${name})
      endif()
      execute_process(COMMAND dpkg-query -S */${CMAKE_LIBRARY_ARCHITECTURE}/\${name}
                      OUTPUT_VARIABLE package ERROR_QUIET RESULT_VARIABLE unknown)
      string(REGEX REPLACE \":.*\" \"\" package \"\${package}\")
      if(NOT unknown AND EXISTS /usr/share/doc/\${package}/copyright)
        file(INSTALL DESTINATION \${destination} TYPE FILE RENAME \${package}.copyright
             FILES /usr/share/doc/\${package}/copyright)
      endif()
    endforeach()"
          COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

# The licences (MIT, BSD) of headers that are compiled in, where Debian's packages have them.
#   mixtape_licences(component destination package...)
function(mixtape_licences component destination)
  foreach(package ${ARGN})
    if(EXISTS /usr/share/doc/${package}/copyright)
      install(FILES /usr/share/doc/${package}/copyright DESTINATION ${destination}
              RENAME ${package}.copyright COMPONENT ${component} EXCLUDE_FROM_ALL)
    endif()
  endforeach()
endfunction()
