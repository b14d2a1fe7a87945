#include "server/api/web_files.h"

#include "base/check.h"

namespace tandem {
namespace {

constexpr struct {
  std::string_view ending;
  std::string_view content_type;
} kPageTypes[] = {{".css", "text/css; charset=utf-8"},
                  {".js", "text/javascript; charset=utf-8"},
                  {".svg", "image/svg+xml"}};

const WebFile* Find(std::string_view name) {
  for (const WebFile& file : WebFiles()) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

std::string_view ContentsOf(std::string_view name) {
  const WebFile* file = Find(name);
  TANDEM_CHECK(file != nullptr);
  return file->contents;
}

}  // namespace

std::string_view IndexPage() { return ContentsOf("index.html"); }
std::string_view DocsPage() { return ContentsOf("docs.html"); }
std::string_view OpenApiTables() { return ContentsOf("openapi.json"); }

std::optional<PageFile> FindPageFile(std::string_view name) {
  const WebFile* file = Find(name);
  if (file == nullptr) return std::nullopt;
  for (const auto& [ending, type] : kPageTypes) {
    if (name.ends_with(ending)) return PageFile{file->contents, type};
  }
  return std::nullopt;
}

}  // namespace tandem
