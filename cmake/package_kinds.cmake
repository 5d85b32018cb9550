# Read by cpack for each kind of package: what it has beside the rest, as a component.
if(CPACK_GENERATOR STREQUAL "TGZ")
  set(component bundle)  # the archive alone takes along what is bundled
else()
  set(component debian)
endif()
list(GET CPACK_INSTALL_CMAKE_PROJECTS 0 build)
list(APPEND CPACK_INSTALL_CMAKE_PROJECTS ${build} mixtape ${component} /)
