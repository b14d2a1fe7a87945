#include "python/bindings.h"

#include <tandem/field_error.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tandem::python {

namespace nb = nanobind;

nb::object ExceptionFor(const absl::Status& status) {
  const std::string message(status.message());
  return nb::module_::import_("tandem.errors")
      .attr("exception_for")(
          absl::StatusCodeToString(status.code()),
          // File names in messages may be invalid UTF-8.
          nb::steal(PyUnicode_DecodeUTF8(message.data(), message.size(), "backslashreplace")),
          FieldOf(status));
}

void Raise(const nb::object& exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  nb::raise_python_error();
}

namespace {

namespace nb = nanobind;

std::string ReprOf(const nb::object& value) {
  if (nb::isinstance<nb::float_>(value)) {
    return nb::cast<std::string>(value.attr("__format__")(".6g"));
  }
  const bool is_array = nb::hasattr(value, "tolist");
  return nb::cast<std::string>(nb::repr(is_array ? value.attr("tolist")() : value));
}

}  // namespace

std::string RepresentationOf(nb::handle self, const std::vector<const char*>& members) {
  std::vector<std::string> parts;
  for (const char* name : members) {
    parts.push_back(absl::StrCat(name, "=", ReprOf(self.attr(name))));
  }
  return absl::StrCat(nb::cast<std::string>(self.type().attr("__name__")), "(",
                      absl::StrJoin(parts, ", "), ")");
}

}  // namespace tandem::python
