# Installs the manual pages and the completions, which PROGRAM prints. There are none if it does not run on this machine.
set(share "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share")
set(pages ${share}/man/man1)
file(MAKE_DIRECTORY ${pages})
execute_process(COMMAND ${PROGRAM} help --man ${pages} RESULT_VARIABLE failed ERROR_VARIABLE error)
if(failed)
  message(STATUS "No manual pages and completions: ${PROGRAM} does not run here: ${failed} ${error}")
  return()
endif()
foreach(shell_file bash:bash-completion/completions/tandem zsh:zsh/vendor-completions/_tandem
                   fish:fish/vendor_completions.d/tandem.fish)
  string(REGEX MATCH "^([a-z]+):(.*)/([^/]+)$" found ${shell_file})
  file(MAKE_DIRECTORY ${share}/${CMAKE_MATCH_2})
  execute_process(COMMAND ${PROGRAM} completion ${CMAKE_MATCH_1}
                  OUTPUT_FILE ${share}/${CMAKE_MATCH_2}/${CMAKE_MATCH_3} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
message(STATUS "Installed manual pages and completions in ${share}")
