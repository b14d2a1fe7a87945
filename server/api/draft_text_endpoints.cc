#include "server/api/draft_text_endpoints.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "base/json/json_text.h"
#include "base/json/json_writer.h"
#include "base/status_macros.h"
#include "draft/draft_text_store.h"
#include "server/api/api_error.h"
#include "server/api/field_groups.h"
#include "server/http/request_target.h"
#include "tandem/draft_texts.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

constexpr std::string_view kPath = "/v1/draft_texts/";

JsonValue DraftTextJson(const DraftTextInfo& info) {
  return {{"id", info.id},
          {"object", "draft_text"},
          {"name", info.name},
          {"num_texts", info.num_texts},
          {"num_tokens", info.num_tokens},
          {"bytes", info.bytes},
          {"created", absl::ToUnixSeconds(info.created)}};
}

absl::StatusOr<std::string> SaltOf(const HttpRequest& request) {
  std::optional<std::string> salt = QueryValue(request.target, "cache_salt");
  if (salt.has_value()) return *std::move(salt);
  return FieldError("cache_salt", "has a % that is not before two hexadecimal digits");
}

std::string IdOf(const HttpRequest& request) {
  return request.path.size() <= kPath.size() ? "" : request.path.substr(kPath.size());
}

}  // namespace

absl::StatusOr<std::string> AddDraftText(absl::string_view body, const ServedModel& model,
                                         Engine* engine, IgnoredFields* ignored) {
  ASSIGN_OR_RETURN(const JsonValue json, ParseJsonValue(body, "body"));
  RequestFields fields(&json, "", model.is_strict ? nullptr : ignored);
  ReadModelName(&fields, model);
  DraftTextInput input;
  fields.Read("name", &input.name);
  if (const JsonValue* salt = fields.Find("cache_salt"); salt != nullptr) {
    fields.Read("cache_salt", &input.cache_salt);
    if (input.cache_salt.empty()) fields.FailNot("cache_salt", *salt, "a string that is not empty");
  }
  const bool has_text = fields.Find("text") != nullptr;
  if (has_text) fields.Read("text", &input.texts.emplace_back());
  if (const JsonValue* texts = fields.Find("texts"); texts != nullptr) {
    const bool is_list = texts->is_array() && absl::c_all_of(*texts, [](const JsonValue& text) {
                           return text.is_string();
                         });
    if (has_text) {
      fields.Fail(FieldError("texts", "is not possible with text"));
    } else if (!is_list) {
      fields.FailNot("texts", *texts, "a list of strings");
    } else {
      input.texts = texts->get<std::vector<std::string>>();
    }
  } else if (!has_text) {
    fields.Fail(MissingField("text", "a string, or texts, a list of strings"));
  }
  RETURN_IF_ERROR(fields.Finish());
  const absl::StatusOr<DraftTextInfo> info = engine->AddDraftText(input);
  if (absl::IsResourceExhausted(info.status())) {
    return WithCode(info.status(), "draft_text_memory", 413);
  }
  const bool is_of_texts = absl::StartsWith(FieldOf(info.status()), "texts");
  if (has_text && is_of_texts) return WithField(info.status(), "text");
  RETURN_IF_ERROR(info.status());
  return DumpJson(DraftTextJson(*info));
}

absl::StatusOr<std::string> DraftTextsBody(const HttpRequest& request, const Engine& engine) {
  ASSIGN_OR_RETURN(const std::string salt, SaltOf(request));
  const std::vector<DraftTextInfo> infos = engine.DraftTexts(salt);
  const std::string id = IdOf(request);
  if (!id.empty()) {
    const auto found =
        absl::c_find_if(infos, [&id](const DraftTextInfo& info) { return info.id == id; });
    if (found == infos.end()) return NoSuchDraftText(id);
    return DumpJson(DraftTextJson(*found));
  }
  JsonValue data = JsonValue::array();
  for (const DraftTextInfo& info : infos) data.push_back(DraftTextJson(info));
  return DumpJson({{"object", "list"}, {"data", std::move(data)}});
}

absl::StatusOr<std::string> RemoveDraftText(const HttpRequest& request, Engine* engine) {
  ASSIGN_OR_RETURN(const std::string salt, SaltOf(request));
  const std::string id = IdOf(request);
  RETURN_IF_ERROR(engine->RemoveDraftText(id, salt));
  return DumpJson({{"id", id}, {"object", "draft_text"}, {"deleted", true}});
}

}  // namespace tandem
