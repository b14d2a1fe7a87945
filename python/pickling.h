// The members of a class, stated once: as attributes, and for pickle and copy.
#ifndef TANDEM_PYTHON_PICKLING_H_
#define TANDEM_PYTHON_PICKLING_H_

#include <nanobind/nanobind.h>
#include <tandem/field_error.h>

#include <new>
#include <string>
#include <string_view>
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

// The name of a member: "path" for &ModelInfo::path, as the compiler spells it.
template <auto member>
const char* NameOfMember() {
  static const std::string name = [](std::string_view spelled) {
    const size_t end = spelled.find_last_not_of("]) ;") + 1;
    const size_t colon = spelled.rfind(':', end);
    return std::string(spelled.substr(colon + 1, end - colon - 1));
  }(__PRETTY_FUNCTION__);
  return name.c_str();
}

// Adds members as attributes, under their own names, unless there is one already, and lets objects
// be pickled, which have these members: all that they have.
template <auto... members, typename Class, typename... Extra>
void LetRead(nanobind::class_<Class, Extra...>& bound) {
  const auto add = [&](const char* name, auto member) {
    if (!nanobind::hasattr(bound, name)) bound.def_ro(name, member);
  };
  (add(NameOfMember<members>(), members), ...);
  LetPickle<members...>(bound);
}
template <auto... members, typename Class, typename... Extra>
void LetWrite(nanobind::class_<Class, Extra...>& bound) {
  const auto add = [&](const char* name, auto member) {
    if (!nanobind::hasattr(bound, name)) bound.def_rw(name, member);
  };
  (add(NameOfMember<members>(), members), ...);
  LetPickle<members...>(bound);
}

}  // namespace tandem::python

#endif  // TANDEM_PYTHON_PICKLING_H_
