# Writes OUTPUT, a source that defines WebFiles() of server/web_files.h.
#   WEB_DIR: where the files are
#   NAMES: which of them
cmake_policy(VERSION 3.24)
set(source "#include \"server/web_files.h\"\n\nnamespace tandem {\nnamespace {\n\n"
           "constexpr WebFile kWebFiles[] = {")
list(JOIN source "" source)
foreach(name IN LISTS NAMES)
  file(READ ${WEB_DIR}/${name} contents)
  string(APPEND source "\n    {\"${name}\", R\"tandem_web(${contents})tandem_web\"},")
endforeach()
string(APPEND source "};\n\n}  // namespace\n\n"
                     "absl::Span<const WebFile> WebFiles() { return kWebFiles; }\n\n"
                     "}  // namespace tandem\n")
file(WRITE ${OUTPUT} "${source}")
