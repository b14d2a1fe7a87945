# `cmake --install` gives others the program (the component `program`), the libraries, the headers of
# include/tandem/, the shipped models, and a package: find_package(tandem), tandem::engine.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_property(tandem_folders GLOBAL PROPERTY TANDEM_FOLDERS)
# The program, not libraries for others.
list(REMOVE_ITEM tandem_folders tandem_proof_remote tandem_server tandem_tools tandem_tools_bench)
install(TARGETS ${tandem_folders} EXPORT tandemTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/tandem)
if(TANDEM_HAS_XGRAMMAR)
  install(FILES $<TARGET_PROPERTY:xgrammar::xgrammar,IMPORTED_LOCATION>
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/tandem)
endif()
if(TARGET tandem)
  install(TARGETS tandem RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  # The program has Marked in it, whose licence goes with every copy.
  install(FILES /usr/share/doc/libjs-marked/copyright
          DESTINATION ${CMAKE_INSTALL_DATADIR}/tandem/marked COMPONENT program OPTIONAL)
  install(CODE "set(PROGRAM $<TARGET_FILE:tandem>)" COMPONENT program)
  install(SCRIPT cmake/install_shell_files.cmake COMPONENT program)
endif()
# Installs to FOLDER the models that come with the program, and the licence of the grammar engine.
# Further arguments go to install().
function(tandem_install_share folder)
  if(TANDEM_HAS_XGRAMMAR)
    get_filename_component(xgrammar_files ${xgrammar_folder} ABSOLUTE)
    install(FILES ${xgrammar_files}/LICENSE ${xgrammar_files}/NOTICE DESTINATION ${folder}/xgrammar ${ARGN})
  endif()
  set(models ${PROJECT_SOURCE_DIR}/models)
  install(DIRECTORY ${models}/storyteller-7m ${models}/storyteller-1m ${models}/smollm2-draft
          DESTINATION ${folder}/models
          FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ
          DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                WORLD_READ WORLD_EXECUTE
          ${ARGN})
endfunction()
tandem_install_share(${CMAKE_INSTALL_DATADIR}/tandem COMPONENT program)
set(TANDEM_MODELS_DIR ${CMAKE_INSTALL_DATADIR}/tandem/models)
if(TARGET tandem_python)
  # Next to the module and to the program of the wheel, which find it there.
  tandem_install_share(tandem/share/tandem COMPONENT python EXCLUDE_FROM_ALL)
endif()

install(DIRECTORY include/tandem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)
install(EXPORT tandemTargets NAMESPACE tandem:: DESTINATION ${package_dir})
configure_package_config_file(cmake/tandemConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/tandemConfig.cmake
                              INSTALL_DESTINATION ${package_dir}
                              PATH_VARS TANDEM_MODELS_DIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tandemConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tandemConfig.cmake
              ${PROJECT_BINARY_DIR}/tandemConfigVersion.cmake
        DESTINATION ${package_dir})
