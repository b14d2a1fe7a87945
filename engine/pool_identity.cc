#include "engine/pool_identity.h"

#include <gnu/libc-version.h>
#include <link.h>

#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Increase when the layout of pages in a pool changes.
constexpr int kLayoutVersion = 1;

std::string HexOf(XXH128_hash_t hash) { return Format("%016x%016x", hash.high64, hash.low64); }

// Adds the code and notes of the object that contains this function to `*data`, a XXH3_state_t. The
// linker's build id in the notes covers the constants, which cannot be read directly because a
// sanitizer forbids reading the gaps between them.
int AddOwnCode(struct dl_phdr_info* info, size_t /*size*/, void* data) {
  const auto own = reinterpret_cast<uintptr_t>(&AddOwnCode);
  const auto segment_holds = [&](const ElfW(Phdr) & segment, uintptr_t address) {
    const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    return segment.p_type == PT_LOAD && begin <= address && address < begin + segment.p_memsz;
  };
  bool is_own = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    is_own = is_own || segment_holds(info->dlpi_phdr[i], own);
  }
  if (!is_own) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const bool is_code = segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0;
    if (!is_code && segment.p_type != PT_NOTE) continue;
    XXH3_128bits_update(static_cast<XXH3_state_t*>(data),
                        reinterpret_cast<const void*>(info->dlpi_addr + segment.p_vaddr),
                        segment.p_filesz);
  }
  return 1;
}

// Identifies this build, and the library whose exponentials and cosines it calls.
std::string BuildIdentity() {
  XXH3_state_t* const state = XXH3_createState();
  XXH3_128bits_reset(state);
  dl_iterate_phdr(&AddOwnCode, state);
  const std::string code = HexOf(XXH3_128bits_digest(state));
  XXH3_freeState(state);
  return absl::StrCat(code, " glibc ", gnu_get_libc_version());
}

}  // namespace

const std::string& ThisBuild() {
  static const auto* const build = new std::string(BuildIdentity());
  return *build;
}

PoolId PoolIdOf(const PoolParts& parts) {
  const KvLayout& layout = parts.layout;
  return {PartHasher()
              .Add(kLayoutVersion)
              .Add(parts.build)
              .Add(parts.weights)
              .Add(parts.quantized)
              .Add(parts.arithmetic)
              .Add(layout.num_layers)
              .Add(layout.num_kv_heads)
              .Add(layout.head_dim)
              .Add(layout.page_size)
              .Add(static_cast<int>(layout.dtype))
              .Add(layout.state_size)
              .Finish()};
}

absl::StatusOr<PoolId> PoolIdOf(absl::Span<const PoolModel> models, const KvLayout& layout,
                                absl::string_view arithmetic) {
  std::string weights;
  std::string quantized;
  for (const auto& [model, path] : models) {
    std::vector<std::string> files = model->weight_files();
    const fs::path config = fs::path(path) / "config.json";
    std::error_code error;
    if (fs::exists(config, error)) files.push_back(config.string());
    for (const std::string& name : files) {
      ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(name));
      absl::StrAppend(&weights, file.bytes().size(), " ",
                      HexOf(XXH3_128bits(file.bytes().data(), file.bytes().size())), "\n");
    }
    absl::StrAppend(&quantized, model->weights_form(), "\n");
  }
  return PoolIdOf({.build = ThisBuild(),
                   .weights = std::move(weights),
                   .quantized = std::move(quantized),
                   .arithmetic = std::string(arithmetic),
                   .layout = layout});
}

}  // namespace tandem
