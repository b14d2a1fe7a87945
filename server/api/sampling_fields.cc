#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/json/json_text.h"
#include "server/api/field_groups.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = JsonValue;

constexpr int kMaxStops = 16;
constexpr size_t kMaxBytesPerStop = 1000;

}  // namespace

std::optional<std::vector<TokenId>> AsTokenIds(const Json& json) {
  std::vector<TokenId> ids;
  if (!json.is_array()) return std::nullopt;
  for (const Json& element : json) {
    const auto id = AsIntegerWithin(element, 0, std::numeric_limits<TokenId>::max());
    if (!id.has_value()) return std::nullopt;
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

namespace {

void ReadSampling(RequestFields* fields, SamplingParams* sampling) {
  VisitSamplingParams([&](const Parameter& parameter, auto member, Limits limits) {
    // vLLM allows -1 for all tokens.
    if (parameter.name == absl::string_view("top_k")) limits.low = -1;
    fields->Read(parameter.name, &(sampling->*member), limits);
  });
  sampling->top_k = std::max(sampling->top_k, 0);
  const Json* bias = fields->Find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) {
    return fields->FailNot("logit_bias", *bias, "an object that maps token ids to biases");
  }
  for (const auto& [key, value] : bias->items()) {
    TokenId id = 0;
    // Accepts "5", but not "05" or "+5", so that each token has only one key.
    if (!absl::SimpleAtoi(key, &id) || key != absl::StrCat(id)) {
      return fields->FailNot("logit_bias", key, "a token id without sign and leading zeros");
    }
    if (!value.is_number()) return fields->FailNot("logit_bias", value, "a number");
    sampling->logit_bias.emplace_back(id, value.get<float>());
  }
}

void ReadStops(RequestFields* fields, Request* options) {
  if (const Json* stop = fields->Find("stop"); stop != nullptr) {
    const bool is_one = stop->is_string();
    if (!is_one && !stop->is_array()) {
      return fields->FailNot("stop", *stop, "a string or a list of strings");
    }
    const absl::Span<const Json> list =
        is_one ? absl::MakeConstSpan(stop, 1) : stop->get_ref<const Json::array_t&>();
    if (list.size() > kMaxStops) {
      return fields->FailNot("stop", list.size(),
                             absl::StrCat("possible, allowed: at most ", kMaxStops, " strings"));
    }
    for (const Json& text : list) {
      if (!text.is_string() || IsText(text, "")) {
        return fields->FailNot("stop", text, "a string that is not empty");
      }
      options->stop.push_back(text.get<std::string>());
      if (options->stop.back().size() > kMaxBytesPerStop) {
        return fields->FailNot("stop", text,
                               absl::StrCat("a string of at most ", kMaxBytesPerStop, " bytes"));
      }
    }
  }
  if (const Json* stop = fields->Find("stop_token_ids"); stop != nullptr) {
    const auto ids = AsTokenIds(*stop);
    if (!ids.has_value()) return fields->FailNot("stop_token_ids", *stop, "a list of token ids");
    options->stop_tokens = *ids;
  }
  fields->Read("ignore_eos", &options->ignore_eos);
  fields->Read("include_stop_str_in_output", &options->include_stop);
  fields->Read("skip_special_tokens", &options->skip_special_tokens);
}

void ReadSpeculation(RequestFields* fields, const ServedModel& model, Request* options) {
  const Json* object = fields->Find("speculation");
  if (object == nullptr) return;
  RequestFields inner(object, fields->PathOf("speculation"));
  inner.Read("draft_tokens", &options->draft_tokens, kDraftTokenLimits);
  std::string drafter = model.drafter;
  inner.Read("drafter", &drafter);
  const std::optional<DrafterKind> kind = model.DrafterNamed(drafter);
  if (!kind.has_value()) {
    inner.FailNot("drafter", drafter,
                  absl::StrCat("a drafter that this server can run, allowed: ",
                               absl::StrJoin(model.drafters, ", "),
                               model.drafters.empty() ? "none" : ", none"));
  } else if (NameOf(*kind) != model.drafter) {
    options->drafter = *kind;
  }
  if (drafter == "none") {
    if (options->draft_tokens.value_or(0) > 0) {
      inner.FailNot("draft_tokens", *options->draft_tokens,
                    "possible without a drafter, allowed: 0");
    }
    options->draft_tokens = 0;
  }
  std::string verifier;
  inner.Read("verifier", &verifier);
  if (!verifier.empty()) {
    const absl::StatusOr<AcceptanceRule> rule = ParseAcceptanceRule(verifier);
    if (rule.ok()) {
      options->verifier = *rule;
    } else {
      inner.Fail(WithField(rule.status(), inner.PathOf("verifier")));
    }
  }
  fields->Fail(inner.Finish());
}

void ReadChoiceLaw(RequestFields* fields, Request* options) {
  std::string name(NameOf(options->choice_law));
  fields->Read("choice_law", &name);
  const absl::StatusOr<ChoiceLaw> law = ParseChoiceLaw(name);
  law.ok() ? void(options->choice_law = *law) : fields->Fail(law.status());
}

void ReadCacheSalt(RequestFields* fields, Request* options) {
  const Json* salt = fields->Find("cache_salt");
  if (salt == nullptr) return;
  if (!salt->is_string() || IsText(*salt, "")) {
    return fields->FailNot("cache_salt", *salt, "a string that is not empty");
  }
  options->cache_salt = salt->get<std::string>();
}

void ReadKvTransfer(RequestFields* fields, Request* options) {
  const Json* object = fields->Find("kv_transfer_params");
  if (object == nullptr) return;
  RequestFields inner(object, fields->PathOf("kv_transfer_params"), fields->ignored());
  KvTransferParams& params = options->kv_transfer_params;
  inner.Read("do_remote_decode", &params.do_remote_decode);
  inner.Read("do_remote_prefill", &params.do_remote_prefill);
  inner.Read("remote_engine_id", &params.remote_engine_id);
  inner.Read("remote_request_id", &params.remote_request_id);
  inner.Read("remote_host", &params.remote_host);
  inner.Read("remote_port", &params.remote_port, {.low = 1, .high = 65535});
  inner.Read("remote_num_tokens", &params.remote_num_tokens, {.low = 0});
  float tokens_per_second = 0.0F;
  inner.Read("tokens_per_second", &tokens_per_second);
  params.tokens_per_second = tokens_per_second;
  // Pages are found by the hash of their text, not by the other worker's block ids.
  for (const char* name : {"remote_block_ids", "remote_blocks_expiry_time", "remote_bootstrap_addr",
                           "tp_size", "transfer_id"}) {
    inner.Ignore(name);
  }
  fields->Fail(inner.Finish());
}

}  // namespace

void ReadModelName(RequestFields* fields, const ServedModel& model) {
  std::string name = model.name;
  fields->Read("model", &name);
  fields->Fail(CheckModelName(name, model));
}

void ReadGeneration(RequestFields* fields, const ServedModel& model, Request* options) {
  ReadModelName(fields, model);
  ReadChoiceLaw(fields, options);
  options->sampling = model.sampling;
  if (options->choice_law == ChoiceLaw::kConditional) {  // the model's other defaults do not apply
    options->sampling = {.temperature = model.sampling.temperature};
  }
  ReadSampling(fields, &options->sampling);
  ReadStops(fields, options);
  ReadSpeculation(fields, model, options);
  ReadCacheSalt(fields, options);
  ReadKvTransfer(fields, options);
}

}  // namespace tandem
