#include "python/status_errors.h"

#include <tandem/field_error.h>

#include <string>

namespace tandem::python {

namespace nb = nanobind;

nb::object ExceptionFor(const absl::Status& status) {
  const std::string message(status.message());
  return nb::module_::import_("tandem.errors")
      .attr("exception_for")(
          absl::StatusCodeToString(status.code()),
          // A name of a file may be no UTF-8.
          nb::steal(PyUnicode_DecodeUTF8(message.data(), message.size(), "backslashreplace")),
          FieldOf(status));
}

void Raise(const nb::object& exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  nb::raise_python_error();
}

}  // namespace tandem::python
