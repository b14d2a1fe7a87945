// What pickle and copy need of a class: its members, in order.
#ifndef TANDEM_PYTHON_PICKLING_H_
#define TANDEM_PYTHON_PICKLING_H_

#include <nanobind/nanobind.h>
#include <tandem/field_error.h>

#include <new>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "python/status_errors.h"

namespace tandem::python {

// A member as Python has it: times are seconds, enumerations numbers, all else itself.
template <typename T>
nanobind::object PickledMember(const T& member) {
  if constexpr (std::is_same_v<T, absl::Duration>) {
    return nanobind::cast(absl::ToDoubleSeconds(member));
  } else if constexpr (std::is_enum_v<T>) {
    return nanobind::cast(static_cast<int>(member));
  } else {
    return nanobind::cast(member);
  }
}

template <typename T>
void RestoreMember(const nanobind::handle& from, T* member) {
  if constexpr (std::is_same_v<T, absl::Duration>) {
    *member = absl::Seconds(nanobind::cast<double>(from));
  } else if constexpr (std::is_enum_v<T>) {
    *member = static_cast<T>(nanobind::cast<int>(from));
  } else {
    *member = nanobind::cast<T>(from);
  }
}

// Lets objects of `bound` be pickled and copied, which have these members: all that they have.
// FieldError for a state of another version.
template <auto... members, typename Class, typename... Extra>
void LetPickle(nanobind::class_<Class, Extra...>& bound) {
  bound.def("__getstate__", [](const Class& self) {
    return nanobind::make_tuple(PickledMember(self.*members)...);
  });
  bound.def("__setstate__", [](Class& self, const nanobind::tuple& state) {
    constexpr size_t kSize = sizeof...(members);
    if (state.size() != kSize) {
      RaiseUnlessOk(
          FieldError("state", absl::StrCat("found ", state.size(), " members, allowed: ", kSize)));
    }
    new (&self) Class();
    size_t i = 0;
    (RestoreMember(state[i++], &(self.*members)), ...);
  });
}

}  // namespace tandem::python

#endif  // TANDEM_PYTHON_PICKLING_H_
