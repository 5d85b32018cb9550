# Read by cpack for each kind of package: the archive alone takes along what is bundled.
if(CPACK_GENERATOR STREQUAL "TGZ")
  list(GET CPACK_INSTALL_CMAKE_PROJECTS 0 build)
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS ${build} mixtape bundle /)
endif()
