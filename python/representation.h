// Readable representations: repr() of the module's objects.
#ifndef TANDEM_PYTHON_REPRESENTATION_H_
#define TANDEM_PYTHON_REPRESENTATION_H_

#include <nanobind/nanobind.h>

#include <initializer_list>
#include <string>
#include <vector>

namespace tandem::python {

// "TokenLogprobs(id=5, logprob=-0.25)", of these members of `self`. Floats are rounded to six
// digits, arrays are lists.
std::string RepresentationOf(nanobind::handle self, const std::vector<const char*>& members);

// Gives objects of `bound` that representation.
template <typename Class, typename... Extra>
void LetShow(nanobind::class_<Class, Extra...>& bound, std::initializer_list<const char*> members) {
  bound.def("__repr__", [names = std::vector<const char*>(members)](nanobind::handle self) {
    return RepresentationOf(self, names);
  });
}

}  // namespace tandem::python

#endif  // TANDEM_PYTHON_REPRESENTATION_H_
