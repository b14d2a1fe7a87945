# Writes OUTPUT, a source that defines FUNCTION(), which returns files (server/api/web_files.h).
#   FILES: paths, or NAME=PATH for a file that is served under another name
cmake_policy(VERSION 3.24)
set(source "#include \"server/api/web_files.h\"\n\nnamespace tandem {\nnamespace {\n\n"
           "constexpr WebFile kWebFiles[] = {")
list(JOIN source "" source)
foreach(file IN LISTS FILES)
  string(REGEX REPLACE "^.*=" "" path "${file}")
  string(REGEX REPLACE "=.*$" "" name "${file}")
  get_filename_component(name "${name}" NAME)
  file(READ ${path} contents)
  string(APPEND source "\n    {\"${name}\", R\"tandem_web(${contents})tandem_web\"},")
endforeach()
string(APPEND source "};\n\n}  // namespace\n\n"
                     "absl::Span<const WebFile> ${FUNCTION}() { return kWebFiles; }\n\n"
                     "}  // namespace tandem\n")
file(WRITE ${OUTPUT} "${source}")
