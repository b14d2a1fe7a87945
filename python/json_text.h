// What Python gives the module: JSON as text, and token ids.
#ifndef TANDEM_PYTHON_JSON_TEXT_H_
#define TANDEM_PYTHON_JSON_TEXT_H_

#include <nanobind/nanobind.h>
#include <tandem/field_error.h>
#include <tandem/json_value.h>
#include <tandem/types.h>

#include <string>
#include <vector>

#include "python/arrays.h"
#include "python/status_errors.h"

namespace tandem::python {

inline JsonValue JsonOf(const char* field, const std::string& text) {
  JsonValue value = JsonValue::parse(text, nullptr, false);
  if (value.is_discarded()) RaiseUnlessOk(FieldError(field, "found what is not JSON"));
  return value;
}

// Token ids as Python has them: a sequence, or an array of any integers.
inline std::vector<TokenId> IdsOf(const nanobind::object& ids, const char* field) {
  const nanobind::module_ parameters = nanobind::module_::import_("tandem.parameters");
  const nanobind::object array = parameters.attr("ids_of")(ids, field);
  return VectorOf(nanobind::cast<IdArray>(array));
}

}  // namespace tandem::python

#endif  // TANDEM_PYTHON_JSON_TEXT_H_
