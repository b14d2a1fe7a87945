// The module tandem._native, which is used by the files of python/tandem/.
#include <nanobind/nanobind.h>

#include "python/bindings.h"

NB_MODULE(_native, module) {
  module.doc() = "The native engine of the package tandem.";
  module.attr("__version__") = TANDEM_VERSION;
  tandem::python::BindText(module);
  tandem::python::BindRequests(module);
  tandem::python::BindCompletions(module);
  tandem::python::BindChatAnswers(module);
  tandem::python::BindEngine(module);
}
