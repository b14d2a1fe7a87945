#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <tandem/engine_options.h>
#include <tandem/field_error.h>
#include <tandem/request.h>

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "python/arrays.h"
#include "python/bindings.h"
#include "python/pickling.h"
#include "python/representation.h"
#include "python/status_errors.h"

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

// The function that makes constraints of this kind.
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

// A schema as it is written, or as Python has it.
std::string JsonText(const nb::object& value) {
  if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
  return nb::cast<std::string>(nb::module_::import_("json").attr("dumps")(value));
}

// A property for a member that is an enumeration with names; its value is the name.
template <typename Class, typename Member, typename Parse>
void NameProperty(nb::class_<Class>& bound, const char* name, Member Class::*member, Parse parse) {
  bound.def_prop_rw(
      name, [member](const Class& self) { return NameOf(self.*member); },
      [member, parse](Class& self, std::string_view given) {
        self.*member = ValueOrRaise(parse(given));
      });
}

// The same where it may be None.
template <typename Class, typename Member, typename Parse>
void OptionalNameProperty(nb::class_<Class>& bound, const char* name,
                          std::optional<Member> Class::*member, Parse parse) {
  bound.def_prop_rw(
      name,
      [member](const Class& self) -> std::optional<std::string_view> {
        if (!(self.*member).has_value()) return std::nullopt;
        return NameOf(*(self.*member));
      },
      [member, parse](Class& self, std::optional<std::string_view> given) {
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
  auto options = nb::class_<EngineOptions>(module, "EngineOptions", "What an engine is made of.");
  options.def(nb::init<>())
      .def_rw("target", &EngineOptions::target)
      .def_rw("draft", &EngineOptions::draft)
      .def_rw("all_drafters", &EngineOptions::all_drafters)
      .def_rw("draft_tokens", &EngineOptions::draft_tokens)
      .def_rw("device", &EngineOptions::device)
      .def_rw("threads", &EngineOptions::threads)
      .def_rw("compute", &EngineOptions::compute)
      .def_rw("quantize", &EngineOptions::quantize)
      .def_rw("draft_quantize", &EngineOptions::draft_quantize)
      .def_rw("draft_head_tokens", &EngineOptions::draft_head_tokens)
      .def_rw("kv_cache", &EngineOptions::kv_cache)
      .def_rw("draft_window", &EngineOptions::draft_window)
      .def_rw("draft_kv_cache", &EngineOptions::draft_kv_cache)
      .def_rw("kv_memory_bytes", &EngineOptions::kv_memory_bytes)
      .def_rw("draft_memory_bytes", &EngineOptions::draft_memory_bytes)
      .def_rw("page_size", &EngineOptions::page_size)
      .def_rw("tensor_parallel", &EngineOptions::tensor_parallel)
      .def_rw("draft_tensor_parallel", &EngineOptions::draft_tensor_parallel)
      .def_rw("rank_program", &EngineOptions::rank_program)
      .def_rw("rank", &EngineOptions::rank)
      .def_rw("rendezvous", &EngineOptions::rendezvous)
      .def_rw("rendezvous_secret", &EngineOptions::rendezvous_secret)
      .def_rw("context", &EngineOptions::context)
      .def_rw("max_batch", &EngineOptions::max_batch)
      .def_rw("max_generations", &EngineOptions::max_generations)
      .def_rw("chunk_tokens", &EngineOptions::chunk_tokens)
      .def_rw("prefix_cache", &EngineOptions::prefix_cache)
      .def_rw("packed_weights", &EngineOptions::packed_weights)
      .def_rw("kv_store", &EngineOptions::kv_store)
      .def_rw("kv_store_bytes", &EngineOptions::kv_store_bytes)
      .def_rw("kv_transfer", &EngineOptions::kv_transfer)
      .def_rw("kv_transfer_secret", &EngineOptions::kv_transfer_secret)
      .def_rw("kv_transfer_bytes", &EngineOptions::kv_transfer_bytes)
      .def_rw("kv_transfer_lease_seconds", &EngineOptions::kv_transfer_lease_seconds)
      .def_rw("kv_events", &EngineOptions::kv_events)
      .def_rw("kv_events_replay", &EngineOptions::kv_events_replay)
      .def_rw("kv_events_topic", &EngineOptions::kv_events_topic)
      .def_rw("allow_unknown_config", &EngineOptions::allow_unknown_config)
      .def_rw("warm_up", &EngineOptions::warm_up);
  NameProperty(options, "drafter", &EngineOptions::drafter, ParseDrafterKind);
  NameProperty(options, "verifier", &EngineOptions::verifier, ParseAcceptanceRule);
}

void BindKvTransfer(nb::module_& module) {
  auto params = nb::class_<KvTransferParams>(module, "KvTransferParams",
                                             "The pages of a request that travel between workers.");
  params.def(nb::init<>())
      .def_rw("do_remote_decode", &KvTransferParams::do_remote_decode,
              "Keep the prompt's pages for another worker.")
      .def_rw("do_remote_prefill", &KvTransferParams::do_remote_prefill,
              "Fetch the prompt's pages from the worker that is named.")
      .def_rw("remote_engine_id", &KvTransferParams::remote_engine_id)
      .def_rw("remote_request_id", &KvTransferParams::remote_request_id)
      .def_rw("remote_host", &KvTransferParams::remote_host)
      .def_rw("remote_port", &KvTransferParams::remote_port)
      .def_rw("remote_num_tokens", &KvTransferParams::remote_num_tokens)
      .def_rw("tokens_per_second", &KvTransferParams::tokens_per_second);
  LetPickle<&KvTransferParams::do_remote_decode, &KvTransferParams::do_remote_prefill,
            &KvTransferParams::remote_engine_id, &KvTransferParams::remote_request_id,
            &KvTransferParams::remote_host, &KvTransferParams::remote_port,
            &KvTransferParams::remote_num_tokens, &KvTransferParams::tokens_per_second>(params);
  LetShow(params, {"do_remote_decode", "do_remote_prefill", "remote_host", "remote_port",
                   "remote_num_tokens"});
}

void BindSampling(nb::module_& module) {
  nb::class_<SamplingParams>(module, "SamplingParams", "How logits become a distribution.")
      .def(nb::init<>())
      .def_rw("temperature", &SamplingParams::temperature)
      .def_rw("top_k", &SamplingParams::top_k)
      .def_rw("top_p", &SamplingParams::top_p)
      .def_rw("min_p", &SamplingParams::min_p)
      .def_rw("repetition_penalty", &SamplingParams::repetition_penalty)
      .def_rw("frequency_penalty", &SamplingParams::frequency_penalty)
      .def_rw("presence_penalty", &SamplingParams::presence_penalty)
      .def_rw("logit_bias", &SamplingParams::logit_bias)
      .def_rw("min_tokens", &SamplingParams::min_tokens);
  auto logprobs =
      nb::class_<LogprobOptions>(module, "LogprobOptions", "Which log-probabilities are reported.");
  logprobs
      .def(
          "__init__",
          [](LogprobOptions* self, int num_top, bool processed) {
            new (self) LogprobOptions{.num_top = num_top, .processed = processed};
          },
          nb::arg("num_top") = 0, nb::arg("processed") = false)
      .def_rw("num_top", &LogprobOptions::num_top, "0: the token's own; -1: none.")
      .def_rw("processed", &LogprobOptions::processed,
              "Whether they are of the distribution drawn from, and not of the raw logits.");
  LetPickle<&LogprobOptions::num_top, &LogprobOptions::processed>(logprobs);
  LetShow(logprobs, {"num_top", "processed"});
}

void BindConstraints(nb::module_& module) {
  auto constraint = nb::class_<OutputConstraint>(module, "OutputConstraint",
                                                 "A form that an output must keep to.");
  constraint.def_static("json_object", [] { return ConstraintOf(Kind::kJsonObject, ""); })
      .def_static(
          "json_schema",
          [](const nb::object& schema, bool is_strict) {
            OutputConstraint constraint = ConstraintOf(Kind::kJsonSchema, JsonText(schema));
            constraint.is_strict = is_strict;
            return constraint;
          },
          nb::arg("schema"), nb::arg("is_strict") = true, "As a dict or as it is written.")
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
  LetPickle<&OutputConstraint::kind, &OutputConstraint::text, &OutputConstraint::choices,
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
  auto request = nb::class_<Request>(module, "Request", "One generation to be made.");
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
      .def_rw("kv_transfer_params", &Request::kv_transfer_params)
      .def_rw("request_id", &Request::request_id)
      .def_rw("logprobs", &Request::logprobs)
      .def_rw("prompt_logprobs", &Request::prompt_logprobs);
  OptionalNameProperty(request, "drafter", &Request::drafter, ParseDrafterKind);
  OptionalNameProperty(request, "verifier", &Request::verifier, ParseAcceptanceRule);
}

}  // namespace tandem::python
