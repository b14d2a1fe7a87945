# `cpack -G DEB` in a build folder makes a Debian package of the program (docs/deploy.md). The C++ library is not in it.
if(NOT TARGET tandem)
  return()
endif()
include(GNUInstallDirs)
set(debian ${PROJECT_SOURCE_DIR}/deploy/debian)
set(only_in_package COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES ${debian}/config.toml DESTINATION /etc/tandem ${only_in_package})
install(FILES ${PROJECT_SOURCE_DIR}/deploy/tandem.service DESTINATION lib/systemd/system ${only_in_package})
install(FILES ${debian}/copyright DESTINATION share/doc/tandem ${only_in_package})
install(FILES ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION share/doc/tandem RENAME changelog ${only_in_package})
if(TANDEM_NATIVE)
  install(CODE [[message(FATAL_ERROR "TANDEM_NATIVE: found ON, but a package is for every machine: set OFF")]]
          ${only_in_package})
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL program debian)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_SET_DESTDIR ON)  # for /etc
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                                WORLD_READ WORLD_EXECUTE)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/compress_documents.cmake)
set(CPACK_OUTPUT_FILE_PREFIX ${PROJECT_SOURCE_DIR}/build/packages)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PACKAGE_CONTACT "The Tandem authors <tandem@example.org>")
set(CPACK_PACKAGE_DESCRIPTION "A small draft model or earlier text proposes tokens, the target checks all
of them in one pass, and the output is the target's own. With the program
come the server's unit for systemd, and a pair of models that tells stories.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS python3-pip)  # for `tandem fetch` of the known models
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${debian}/conffiles ${debian}/postinst ${debian}/prerm ${debian}/postrm)
include(CPack)
