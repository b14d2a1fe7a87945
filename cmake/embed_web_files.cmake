# Writes OUTPUT, a source that defines the functions of server/web_files.h.
#   WEB_DIR: where the files are
cmake_policy(VERSION 3.24)
set(source "#include \"server/web_files.h\"\n\nnamespace tandem {\n")
foreach(pair IndexPage:index.html OpenApiDocument:openapi.json)
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 function)
  list(GET pair 1 name)
  file(READ ${WEB_DIR}/${name} contents)
  string(APPEND source "\nstd::string_view ${function}() {\n  return "
                       "R\"tandem_web(${contents})tandem_web\";\n}\n")
endforeach()
string(APPEND source "\n}  // namespace tandem\n")
file(WRITE ${OUTPUT} "${source}")
