// Optional shared libraries of the machine.
#ifndef TANDEM_KERNELS_CUDA_LOADED_LIBRARY_H_
#define TANDEM_KERNELS_CUDA_LOADED_LIBRARY_H_

#include <dlfcn.h>

#include <cstdlib>
#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace tandem::cuda {

// A library that is never unloaded. Its error messages do not name it.
class LoadedLibrary {
 public:
  // Loads the file that the environment variable `variable` names or, if it is not set, the first
  // of `names` that can be loaded. Returns UNAVAILABLE if that fails, or if `variable` is "none".
  static absl::StatusOr<LoadedLibrary> Open(const char* variable,
                                            std::initializer_list<const char*> names) {
    const char* const named = std::getenv(variable);
    if (named != nullptr && std::string(named) == "none") {
      return absl::UnavailableError(absl::StrCat(variable, " is none"));
    }
    const auto load = [](const char* name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); };
    void* handle = named != nullptr ? load(named) : nullptr;
    for (auto name = names.begin(); named == nullptr && handle == nullptr && name != names.end();) {
      handle = load(*name++);
    }
    if (handle == nullptr) return absl::UnavailableError(dlerror());
    return LoadedLibrary(handle);
  }

  // Sets a pointer to the function `name`. If the library does not have it, sets `*status` to
  // UNAVAILABLE unless it is already an error.
  template <typename Pointer>
  void Find(const char* name, Pointer* entry, absl::Status* status) const {
    *entry = reinterpret_cast<Pointer>(dlsym(handle_, name));
    if (*entry == nullptr) status->Update(absl::UnavailableError(absl::StrCat("it has no ", name)));
  }

 private:
  explicit LoadedLibrary(void* handle) : handle_(handle) {}
  void* handle_;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_LOADED_LIBRARY_H_
