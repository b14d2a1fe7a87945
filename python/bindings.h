// The parts of the module, and helpers that its files share. Without its header from nanobind/stl a
// conversion compiles, and fails when it runs.
#ifndef TANDEM_PYTHON_BINDINGS_H_
#define TANDEM_PYTHON_BINDINGS_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <tandem/field_error.h>
#include <tandem/json_value.h>
#include <tandem/types.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace tandem::python {

void BindText(nanobind::module_& module);         // Tokenizer, ChatTemplate
void BindRequests(nanobind::module_& module);     // EngineOptions, Request and their members
void BindCompletions(nanobind::module_& module);  // Completion, Piece and their members
void BindChatAnswers(nanobind::module_& module);  // the same for chats; after those
void BindEngine(nanobind::module_& module);       // Engine; after the others

// ---- Statuses as Python exceptions (python/tandem/errors.py maps them) ----

// Returns the exception for a status that is not OK. REQUIRES: the GIL is held, here and below.
nanobind::object ExceptionFor(const absl::Status& status);
// Raises an exception.
[[noreturn]] void Raise(const nanobind::object& exception);

inline void RaiseUnlessOk(const absl::Status& status) {
  if (!status.ok()) Raise(ExceptionFor(status));
}
template <typename T>
T ValueOrRaise(absl::StatusOr<T> value) {
  RaiseUnlessOk(value.status());
  return *std::move(value);
}

// ---- Readable representations: repr() of the module's objects ----

// Returns for example "TokenLogprobs(id=5, logprob=-0.25)", with these members of `self`. Floats
// are rounded to six digits, and arrays are shown as lists.
std::string RepresentationOf(nanobind::handle self, const std::vector<const char*>& members);

// Gives objects of `bound` this representation.
template <typename Class, typename... Extra>
void AddRepr(nanobind::class_<Class, Extra...>& bound, std::initializer_list<const char*> members) {
  bound.def("__repr__", [names = std::vector<const char*>(members)](nanobind::handle self) {
    return RepresentationOf(self, names);
  });
}

// ---- Vectors as NumPy arrays, and back ----

template <typename T>
using Array = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>;
// Token ids from Python: one dimension, 32 bits, contiguous.
using IdArray = nanobind::ndarray<const std::int32_t, nanobind::ndim<1>, nanobind::c_contig,
                                  nanobind::device::cpu>;

// Returns a copy, which the array owns.
template <typename T, typename Range>
Array<T> ArrayOf(const Range& values) {
  auto owned = std::make_unique<T[]>(values.size());
  std::copy(values.begin(), values.end(), owned.get());
  T* const data = owned.get();
  const nanobind::capsule owner(owned.release(),
                                [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return Array<T>(data, {values.size()}, owner);
}

inline std::vector<std::int32_t> VectorOf(const IdArray& ids) {
  return std::vector<std::int32_t>(ids.data(), ids.data() + ids.shape(0));
}

// ---- Values from Python: JSON as text, and token ids ----

inline JsonValue JsonOf(const char* field, const std::string& text) {
  JsonValue value = JsonValue::parse(text, nullptr, false);
  if (value.is_discarded()) RaiseUnlessOk(FieldError(field, "found text that is not JSON"));
  return value;
}

// Converts token ids from Python: a sequence, or an array of any integer type.
inline std::vector<TokenId> IdsOf(const nanobind::object& ids, const char* field) {
  const nanobind::module_ parameters = nanobind::module_::import_("tandem.parameters");
  const nanobind::object array = parameters.attr("ids_of")(ids, field);
  return VectorOf(nanobind::cast<IdArray>(array));
}

// ---- The members of a class, as attributes, and for pickle and copy ----

// Converts a member for Python: times become seconds, enumerations numbers; others keep their type.
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

// Makes objects of `bound` picklable and copyable. `members` must be all of their members. Raises
// FieldError for a state of another version.
template <auto... members, typename Class, typename... Extra>
void AddPickle(nanobind::class_<Class, Extra...>& bound) {
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

// Returns the name of a member as the compiler spells it: "path" for &ModelInfo::path.
template <auto member>
const char* NameOfMember() {
  static const std::string name = [](std::string_view spelled) {
    const size_t end = spelled.find_last_not_of("]) ;") + 1;
    const size_t colon = spelled.rfind(':', end);
    return std::string(spelled.substr(colon + 1, end - colon - 1));
  }(__PRETTY_FUNCTION__);
  return name.c_str();
}

// Adds members as read-only attributes under their own names, unless the attribute exists, and
// makes objects picklable. `members` must be all of their members.
template <auto... members, typename Class, typename... Extra>
void AddReadOnly(nanobind::class_<Class, Extra...>& bound) {
  const auto add = [&](const char* name, auto member) {
    if (!nanobind::hasattr(bound, name)) bound.def_ro(name, member);
  };
  (add(NameOfMember<members>(), members), ...);
  AddPickle<members...>(bound);
}
// The same, with writable attributes.
template <auto... members, typename Class, typename... Extra>
void AddReadWrite(nanobind::class_<Class, Extra...>& bound) {
  const auto add = [&](const char* name, auto member) {
    if (!nanobind::hasattr(bound, name)) bound.def_rw(name, member);
  };
  (add(NameOfMember<members>(), members), ...);
  AddPickle<members...>(bound);
}

}  // namespace tandem::python

#endif  // TANDEM_PYTHON_BINDINGS_H_
