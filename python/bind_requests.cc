#include <tandem/engine_parameters.h>
#include <tandem/field_error.h>
#include <tandem/request.h>

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "python/bindings.h"

namespace tandem::python {
namespace {

namespace nb = nanobind;
using Kind = OutputConstraint::Kind;

OutputConstraint ConstraintOf(Kind kind, std::string text) {
  OutputConstraint constraint;
  constraint.kind = kind;
  constraint.text = std::move(text);
  return constraint;
}

// Returns the name of the function that makes constraints of this kind.
const char* MakerOf(Kind kind) {
  switch (kind) {
    case Kind::kJsonObject:
      return "json_object";
    case Kind::kJsonSchema:
      return "json_schema";
    case Kind::kRegex:
      return "regex";
    case Kind::kChoice:
      return "choice";
    case Kind::kGrammar:
      return "grammar";
    case Kind::kStructuralTag:
      return "structural_tag";
  }
  return "";
}

// Returns a schema as JSON text. It may be given as text or as a Python object.
std::string JsonText(const nb::object& value) {
  if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
  return nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(value));
}

// The function that parses the names of an enumeration.
template <typename Value>
using Parse = absl::StatusOr<Value>(std::string_view name);

// Binds a property for a member.
template <typename Class, typename Member, typename... Allowed>
void BindMember(nb::class_<Class>& bound, const char* name, Member Class::*member,
                const Allowed&...) {
  bound.def_rw(name, member);
}
// The value of an enumeration is its name.
template <typename Class, typename Value>
void BindMember(nb::class_<Class>& bound, const char* name, Value Class::*member,
                Parse<Value>& parse) {
  bound.def_prop_rw(
      name, [member](const Class& self) { return NameOf(self.*member); },
      [member, &parse](Class& self, std::string_view given) {
        self.*member = ValueOrRaise(parse(given));
      });
}
// "" if it has no value.
template <typename Class, typename Value>
void BindMember(nb::class_<Class>& bound, const char* name, std::optional<Value> Class::*member,
                Parse<Value>& parse) {
  bound.def_prop_rw(
      name,
      [member](const Class& self) {
        return (self.*member).has_value() ? NameOf(*(self.*member)) : "";
      },
      [member, name, &parse](Class& self, std::string_view given) {
        self.*member = std::nullopt;
        if (given.empty()) return;
        const absl::StatusOr<Value> parsed = parse(given);
        RaiseUnlessOk(WithField(parsed.status(), name));
        self.*member = *parsed;
      });
}
// None if it has no value.
template <typename Class, typename Value>
void BindOptional(nb::class_<Class>& bound, const char* name, std::optional<Value> Class::*member,
                  Parse<Value>& parse) {
  bound.def_prop_rw(
      name,
      [member](const Class& self) -> std::optional<std::string_view> {
        if (!(self.*member).has_value()) return std::nullopt;
        return NameOf(*(self.*member));
      },
      [member, &parse](Class& self, std::optional<std::string_view> given) {
        self.*member = std::nullopt;
        if (given.has_value()) self.*member = ValueOrRaise(parse(*given));
      },
      nb::for_setter(nb::arg().none()));
}

std::optional<double> SecondsOf(absl::Duration time) {
  if (time == absl::InfiniteDuration()) return std::nullopt;
  return absl::ToDoubleSeconds(time);
}

void SetTimeLimit(Request& request, std::optional<double> seconds) {
  if (seconds.has_value() && std::isnan(*seconds)) {
    RaiseUnlessOk(FieldError("time_limit", "found nan, allowed: seconds, or None"));
  }
  request.time_limit = seconds.has_value() ? absl::Seconds(*seconds) : absl::InfiniteDuration();
}

void BindOptions(nb::module_& module) {
  auto options = nb::class_<EngineOptions>(module, "EngineOptions", "The options of an engine.");
  options.def(nb::init<>());
  VisitEngineOptions([&](const Parameter& parameter, auto member, const auto&... allowed) {
    BindMember(options, parameter.name, member, allowed...);
  });
}

void BindKvTransfer(nb::module_& module) {
  auto params = nb::class_<KvTransferParams>(module, "KvTransferParams",
                                             "The pages of a request that travel between workers.");
  params.def(nb::init<>())
      .def_rw("do_remote_decode", &KvTransferParams::do_remote_decode,
              "Keep the prompt's pages for another worker.")
      .def_rw("do_remote_prefill", &KvTransferParams::do_remote_prefill,
              "Fetch the prompt's pages from the named worker.");
  AddReadWrite<&KvTransferParams::do_remote_decode, &KvTransferParams::do_remote_prefill,
               &KvTransferParams::remote_engine_id, &KvTransferParams::remote_request_id,
               &KvTransferParams::remote_host, &KvTransferParams::remote_port,
               &KvTransferParams::remote_num_tokens, &KvTransferParams::tokens_per_second>(params);
  AddRepr(params, {"do_remote_decode", "do_remote_prefill", "remote_host", "remote_port",
                   "remote_num_tokens"});
}

void BindSampling(nb::module_& module) {
  auto sampling =
      nb::class_<SamplingParams>(module, "SamplingParams", "How logits become a distribution.");
  sampling.def(nb::init<>()).def_rw("logit_bias", &SamplingParams::logit_bias);
  VisitSamplingParams([&](const Parameter& parameter, auto member, const Limits&) {
    BindMember(sampling, parameter.name, member);
  });
  auto logprobs =
      nb::class_<LogprobOptions>(module, "LogprobOptions", "Which log-probabilities are reported.");
  logprobs
      .def(
          "__init__",
          [](LogprobOptions* self, int num_top, bool processed) {
            new (self) LogprobOptions{.num_top = num_top, .processed = processed};
          },
          nb::arg("num_top") = 0, nb::arg("processed") = false)
      .def_rw("num_top", &LogprobOptions::num_top, "0: only the token's own; -1: none.")
      .def_rw("processed", &LogprobOptions::processed,
              "Whether they come from the sampled distribution instead of the raw logits.");
  AddPickle<&LogprobOptions::num_top, &LogprobOptions::processed>(logprobs);
  AddRepr(logprobs, {"num_top", "processed"});
}

void BindConstraints(nb::module_& module) {
  auto constraint =
      nb::class_<OutputConstraint>(module, "OutputConstraint", "A constraint on the output.");
  constraint.def_static("json_object", [] { return ConstraintOf(Kind::kJsonObject, ""); })
      .def_static(
          "json_schema",
          [](const nb::object& schema, bool is_strict) {
            OutputConstraint constraint = ConstraintOf(Kind::kJsonSchema, JsonText(schema));
            constraint.is_strict = is_strict;
            return constraint;
          },
          nb::arg("schema"), nb::arg("is_strict") = true, "`schema` is a dict or JSON text.")
      .def_static(
          "regex",
          [](std::string expression) { return ConstraintOf(Kind::kRegex, std::move(expression)); },
          nb::arg("expression"))
      .def_static(
          "choice",
          [](std::vector<std::string> choices) {
            OutputConstraint constraint = ConstraintOf(Kind::kChoice, "");
            constraint.choices = std::move(choices);
            return constraint;
          },
          nb::arg("choices"))
      .def_static(
          "grammar", [](std::string ebnf) { return ConstraintOf(Kind::kGrammar, std::move(ebnf)); },
          nb::arg("ebnf"))
      .def_static(
          "structural_tag",
          [](const nb::object& format, std::vector<TokenId> tokens) {
            OutputConstraint constraint = ConstraintOf(Kind::kStructuralTag, JsonText(format));
            constraint.tokens = std::move(tokens);
            return constraint;
          },
          nb::arg("format"), nb::arg("tokens") = std::vector<TokenId>());
  AddPickle<&OutputConstraint::kind, &OutputConstraint::text, &OutputConstraint::choices,
            &OutputConstraint::is_strict, &OutputConstraint::tokens>(constraint);
  constraint.def("__repr__", [](const OutputConstraint& self) {
    const nb::object value =
        self.kind == Kind::kChoice ? nb::cast(self.choices) : nb::cast(self.text);
    return absl::StrCat("OutputConstraint.", MakerOf(self.kind), "(",
                        self.kind == Kind::kJsonObject ? "" : nb::repr(value).c_str(), ")");
  });
}

}  // namespace

void BindRequests(nb::module_& module) {
  BindOptions(module);
  BindKvTransfer(module);
  BindSampling(module);
  BindConstraints(module);
  auto budget = nb::class_<ThinkingBudget>(
      module, "ThinkingBudget", "A limit on the reasoning of an answer (ChatAnswerReader).");
  budget.def_rw("max_tokens", &ThinkingBudget::max_tokens, "Tokens of the reasoning; 0: none.");
  AddRepr(budget, {"max_tokens"});

  auto request = nb::class_<Request>(module, "Request", "A request for one generation.");
  request.def(nb::init<>())
      .def_rw("prompt", &Request::prompt)
      .def_prop_rw(
          "prompt_ids", [](const Request& self) { return ArrayOf<TokenId>(self.prompt_ids); },
          [](Request& self, const IdArray& ids) { self.prompt_ids = VectorOf(ids); },
          nb::for_getter(nb::rv_policy::move))
      .def_prop_rw(
          "parse_special",
          [](const Request& self) { return self.special == SpecialTokens::kParse; },
          [](Request& self, bool parse) {
            self.special = parse ? SpecialTokens::kParse : SpecialTokens::kPlain;
          })
      .def_rw("max_tokens", &Request::max_tokens)
      .def_prop_rw(
          "time_limit", [](const Request& self) { return SecondsOf(self.time_limit); },
          &SetTimeLimit, nb::for_setter(nb::arg().none()))
      .def_rw("sampling", &Request::sampling)
      .def_rw("constraint", &Request::constraint, nb::arg().none())
      .def_rw("thinking_budget", &Request::thinking_budget, nb::arg().none())
      .def_rw("seed", &Request::seed, nb::arg().none())
      .def_rw("sequence", &Request::sequence)
      .def_rw("stop", &Request::stop)
      .def_rw("stop_tokens", &Request::stop_tokens)
      .def_rw("ignore_eos", &Request::ignore_eos)
      .def_rw("include_stop", &Request::include_stop)
      .def_rw("skip_special_tokens", &Request::skip_special_tokens)
      .def_rw("shown_special_tokens", &Request::shown_special_tokens)
      .def_rw("draft_tokens", &Request::draft_tokens, nb::arg().none())
      .def_rw("prediction", &Request::prediction)
      .def_rw("cache_salt", &Request::cache_salt)
      .def_rw("client", &Request::client)
      .def_rw("kv_transfer_params", &Request::kv_transfer_params)
      .def_rw("request_id", &Request::request_id)
      .def_rw("prompt_progress", &Request::prompt_progress)
      .def_rw("logprobs", &Request::logprobs)
      .def_rw("prompt_logprobs", &Request::prompt_logprobs);
  BindMember(request, "choice_law", &Request::choice_law, ParseChoiceLaw);
  BindOptional(request, "drafter", &Request::drafter, ParseDrafterKind);
  BindOptional(request, "verifier", &Request::verifier, ParseAcceptanceRule);
}

}  // namespace tandem::python
