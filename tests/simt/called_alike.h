// Compares our declaration of a library's function with the library's own, as far as calls depend
// on it.
#ifndef TANDEM_TESTS_SIMT_CALLED_ALIKE_H_
#define TANDEM_TESTS_SIMT_CALLED_ALIKE_H_

#include <type_traits>

namespace tandem::cuda {

// Enumerations are passed as int, opaque types by pointer, and structures by pointer or by value.
template <typename Ours, typename Theirs>
constexpr bool IsPassedAlike() {
  if constexpr (std::is_pointer_v<Ours>) return std::is_pointer_v<Theirs>;
  if constexpr (std::is_class_v<Ours> && std::is_class_v<Theirs>) {
    return sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
  }
  if constexpr (std::is_enum_v<Theirs>) return std::is_same_v<Ours, int>;
  return std::is_same_v<Ours, Theirs>;
}

template <typename Ours, typename Theirs>
struct IsCalledAlike : std::false_type {};
template <typename OurResult, typename... Ours, typename TheirResult, typename... Theirs>
struct IsCalledAlike<OurResult (*)(Ours...), TheirResult (*)(Theirs...)> {
  static constexpr bool Compare() {
    if constexpr (sizeof...(Ours) != sizeof...(Theirs)) {
      return false;
    } else {
      return IsPassedAlike<OurResult, TheirResult>() && (IsPassedAlike<Ours, Theirs>() && ...);
    }
  }
  static constexpr bool value = Compare();
};

}  // namespace tandem::cuda

#endif  // TANDEM_TESTS_SIMT_CALLED_ALIKE_H_
