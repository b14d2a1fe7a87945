// The module tandem._native. Its users are the files of python/tandem/.
#include <nanobind/nanobind.h>

#include "python/bindings.h"

NB_MODULE(_native, module) {
  module.doc() = "The engine, as tandem uses it.";
  module.attr("__version__") = TANDEM_VERSION;
  tandem::python::BindText(module);
  tandem::python::BindRequests(module);
  tandem::python::BindCompletions(module);
  tandem::python::BindChatAnswers(module);
  tandem::python::BindEngine(module);
}
