#include "proof/remote/http_engine.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/guard.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"

namespace tandem {

using Json = SortedJson;

namespace {

constexpr char kTokenKey[] = "token_id:";
constexpr size_t kMostChoices = 256;  // of a stream's events

// Runs what reads an answer, and so throws if a member is missing or has another type.
template <typename Result>
absl::StatusOr<Result> Understood(const std::string& path,
                                  absl::FunctionRef<absl::StatusOr<Result>()> read) {
  absl::StatusOr<Result> result = Result();
  const std::string what = absl::StrCat(path, ": an answer that is not understood");
  RETURN_IF_ERROR(Guarded(what.c_str(), [&] {
    result = read();
    return result.status();
  }));
  return result;
}

}  // namespace

struct EngineProfile {
  enum class Form { kCompletions, kLlama };
  const char* name;
  const char* owner;            // "owned_by" of its models
  Form form;                    // of questions and answers
  bool has_sampling_of_vllm;    // top_k, min_p, min_tokens, repetition_penalty
  const char* members;          // added to each request, so that answers have ids
  const char* prompt_logprobs;  // the member that asks for scores; empty: one request per token
  const char* proposed;         // where answers count draft tokens
  const char* accepted;
  const char* plain;     // members that turn drafts off
  const char* drafting;  // members that ask for drafts of $k tokens
  bool seeds_as_plain;
  const char* json_form;  // members that ask for a $form, or for its $grammar; empty: none do
  const char* choice_form;
  const char* regex_form;
};

namespace {

using Form = EngineProfile::Form;
constexpr char kIds[] = R"({"return_token_ids": true, "return_tokens_as_token_ids": true})";
constexpr char kLlamaMembers[] = R"({"return_tokens": true, "cache_prompt": false,
    "samplers": ["penalties", "top_k", "top_p", "min_p", "temperature"], "repeat_penalty": 1.0,
    "repeat_last_n": 4096, "presence_penalty": 0.0, "typical_p": 1.0, "top_n_sigma": -1.0,
    "xtc_probability": 0.0, "dry_multiplier": 0.0, "mirostat": 0, "dynatemp_range": 0.0,
    "post_sampling_probs": false})";
constexpr char kResponseFormat[] = R"({"response_format": {"type": "json_schema",
    "json_schema": {"name": "form", "strict": true, "schema": $form}}})";
constexpr EngineProfile kProfiles[] = {
    {"tandem", "tandem", Form::kCompletions, true, kIds, "prompt_logprobs", "/speculation/proposed",
     "/speculation/accepted", R"({"speculation": {"draft_tokens": 0}})",
     R"({"speculation": {"draft_tokens": $k}})", true, R"({"guided_json": $form})",
     R"({"guided_choice": $form})", R"({"guided_regex": $form})"},
    {"llama.cpp", "llamacpp", Form::kLlama, true, kLlamaMembers, "", "/timings/draft_n",
     "/timings/draft_n_accepted", "", "", false, R"({"json_schema": $form})",
     R"({"grammar": $grammar})", R"({"grammar": $grammar})"},
    {"vllm", "vllm", Form::kCompletions, true, kIds, "prompt_logprobs", "", "", "", "", false,
     R"({"structured_outputs": {"json": $form}})", R"({"structured_outputs": {"choice": $form}})",
     R"({"structured_outputs": {"regex": $form}})"},
    {"sglang", "sglang", Form::kCompletions, true, kIds, "", "", "", "", "", false, kResponseFormat,
     "", R"({"regex": $form})"},
    {"openai", "", Form::kCompletions, false, "{}", "", "", "", "", "", false, kResponseFormat, "",
     ""},
};

Json ParsedLiteral(absl::string_view text) { return Json::parse(text.begin(), text.end()); }

// The members that ask for a form; empty if the API has none.
std::string FormMembers(const EngineProfile& profile, const RemoteForm& form) {
  const char* const members[] = {"{}", profile.json_form, profile.choice_form, profile.regex_form};
  return absl::StrReplaceAll(members[static_cast<int>(form.kind)],
                             {{"$form", form.text}, {"$grammar", Json(GrammarOf(form)).dump()}});
}

// The part of a document at a JSON pointer; null if it is missing.
Json PartAt(const Json& json, const char* pointer) {
  const Json::json_pointer at(pointer);
  return *pointer != '\0' && json.contains(at) ? json.at(at) : Json();
}

double LogprobOf(const Json& number) {
  return number.is_number() ? number.get<double>() : -std::numeric_limits<double>::infinity();
}

// Appends a chunk of a streamed answer to the parts before it.
void Append(const Json& part, Json* whole) {
  if (!whole->is_object()) *whole = Json::object();
  for (const auto& [key, value] : part.items()) {
    Json& to = (*whole)[key];
    if (key == "choices") {
      for (const Json& choice : value) {
        Append(choice, &to[choice.value("index", size_t{0}) % kMostChoices]);
      }
    } else if (value.is_object()) {
      Append(value, &to);
    } else if (value.is_array() && to.is_array()) {
      to.insert(to.end(), value.begin(), value.end());
    } else if (value.is_string() && to.is_string() && (key == "text" || key == "content")) {
      to = to.get<std::string>() + value.get<std::string>();
    } else if (!value.is_null() || to.is_null()) {
      to = value;
    }
  }
}

// Returns the whole answer of a stream, and whether a chunk had several tokens.
absl::StatusOr<Json> Merged(const std::string& events, const std::string& path,
                            bool* has_wide_chunks) {
  Json whole;
  for (absl::string_view line : absl::StrSplit(events, '\n')) {
    line = absl::StripSuffix(line, "\r");
    if (!absl::ConsumePrefix(&line, "data: ") || line == "[DONE]") continue;
    ASSIGN_OR_RETURN(const Json event, ParseJsonObject(line, path));
    const Json first = PartAt(event, "/choices/0");
    const Json& choice = first.is_null() ? event : first;
    for (const char* ids : {"token_ids", "tokens"}) {
      const bool is_last = choice.contains("stop") && choice.at("stop") == true;  // has all of them
      *has_wide_chunks |= !is_last && choice.contains(ids) && choice.at(ids).size() > 1;
    }
    Append(event, &whole);
  }
  return whole;
}

// Pieces that begin with a blank, for APIs that do not tell tokens.
std::vector<std::string> WordsOf(const std::string& text) {
  std::vector<std::string> words;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == 0 || (text[i] == ' ' && text[i - 1] != ' ')) words.emplace_back();
    words.back() += text[i];
  }
  return words;
}

}  // namespace

TokenId TokenTexts::IdOf(const std::string& text) {
  absl::MutexLock lock(&mutex_);
  return ids_.emplace(text, static_cast<TokenId>(ids_.size())).first->second;
}

std::vector<std::string> RemoteEngineNames() {
  std::vector<std::string> names = {"auto"};
  for (const EngineProfile& profile : kProfiles) names.emplace_back(profile.name);
  return names;
}

// ---- Connecting ----

absl::StatusOr<std::unique_ptr<HttpEngine>> HttpEngine::Connect(HttpExchange* exchange,
                                                                const Options& options) {
  std::unique_ptr<HttpEngine> engine(new HttpEngine(exchange, options));
  RETURN_IF_ERROR(engine->Detect());
  RETURN_IF_ERROR(engine->Probe());
  return engine;
}

absl::Status HttpEngine::Detect() {
  root_ = options_.path;
  const bool has_version = root_.size() >= 3 && root_.substr(root_.size() - 3, 2) == "/v";
  api_ = has_version ? root_ : root_ + "/v1";
  if (has_version) root_.resize(root_.size() - 3);
  std::string engine = options_.engine;
  const absl::StatusOr<std::string> props = exchange_->Send("GET", root_ + "/props", "");
  if (absl::IsUnavailable(props.status())) return props.status();
  const Json llama = Json::parse(props.ok() ? *props : "", nullptr, /*allow_exceptions=*/false);
  if (llama.is_object() && llama.contains("default_generation_settings")) {
    if (engine == "auto") engine = "llama.cpp";
    version_ = PartAt(llama, "/build_info").dump();
  }
  ASSIGN_OR_RETURN(const std::string models, exchange_->Send("GET", api_ + "/models", ""));
  const Json model = PartAt(Json::parse(models, nullptr, false), "/data/0");
  const auto text_of = [&](const char* key) {
    return model.is_object() && model.contains(key) && model.at(key).is_string()
               ? model.at(key).get<std::string>()
               : "";
  };
  model_ = text_of("id");
  if (engine == "auto") engine = text_of("owned_by");
  profile_ = &*std::prev(std::end(kProfiles));
  for (const EngineProfile& profile : kProfiles) {
    if (engine == profile.name || (engine == profile.owner && !engine.empty())) profile_ = &profile;
  }
  const absl::StatusOr<std::string> version = exchange_->Send("GET", root_ + "/version", "");
  const Json told = Json::parse(version.ok() ? *version : "", nullptr, false);
  if (told.is_object() && told.contains("version")) version_ = told.at("version").dump();
  return absl::OkStatus();
}

// Asks for fewer and fewer log-probabilities, until the server answers.
absl::Status HttpEngine::Probe() {
  features_.seeds_as_plain = profile_->seeds_as_plain;
  Question question = {.prompt = {.text = "The first three letters are A, B and"},
                       .max_tokens = 4,
                       .temperature = 0.0};
  absl::StatusOr<RemoteReply> reply;
  const Json own = std::exchange(options_.body, ParsedLiteral(profile_->members));
  options_.body.update(own);
  for (const int num_top : {20, 5, 0}) {
    features_.num_top = num_top;
    question.wants_logprobs = num_top > 0;
    reply = Ask(question);
    if (reply.ok() || !absl::IsInvalidArgument(reply.status())) break;
  }
  if (absl::IsInvalidArgument(reply.status())) {
    return absl::InvalidArgumentError(absl::StrCat("refused as a request to ", profile_->name,
                                                   " (--engine): ", reply.status().message()));
  }
  RETURN_IF_ERROR(reply.status());
  const RemoteAnswer& answer = reply->answers[0];
  if (answer.tops.empty()) features_.num_top = 0;
  features_.ids = answer.has_ids;
  features_.no_scores = ProbeScores(question, answer);
  features_.scores = features_.no_scores.empty();
  return absl::OkStatus();
}

// Returns the reason for missing scores; empty if there are some.
std::string HttpEngine::ProbeScores(Question question, const RemoteAnswer& answer) {
  if (!answer.has_ids) return "answers have no token ids";
  const absl::StatusOr<RemotePrompt> prompt = Tokenized(question.prompt);
  if (!prompt.ok()) return std::string(prompt.status().message());
  question.prompt = *prompt;
  const absl::StatusOr<RemoteReply> reply = Ask(question);
  if (!reply.ok()) return std::string(reply.status().message());
  features_.prompt_ids = true;
  if (features_.num_top == 0) return "answers have no log-probabilities";
  const auto scores = Score(*prompt, answer.tokens);
  return scores.ok() ? "" : std::string(scores.status().message());
}

std::string HttpEngine::Description() const {
  return absl::StrCat(profile_->name, version_.empty() ? "" : " ", version_,
                      model_.empty() ? "" : ", model ",
                      model_.substr(model_[0] == '/' ? model_.rfind('/') + 1 : 0));
}

Json HttpEngine::SpeculationMembers(int draft_tokens) const {
  const char* const text = draft_tokens == 0 ? profile_->plain : profile_->drafting;
  if (*text == '\0') return Json::object();
  return ParsedLiteral(absl::StrReplaceAll(text, {{"$k", absl::StrCat(draft_tokens)}}));
}

absl::StatusOr<RemotePrompt> HttpEngine::Tokenized(const RemotePrompt& prompt) {
  if (!prompt.ids.empty()) return prompt;
  const bool is_llama = profile_->form == Form::kLlama;
  Json body = {{is_llama ? "content" : "prompt", prompt.text},
               {is_llama ? "add_special" : "add_special_tokens", true}};
  if (!model_.empty()) body["model"] = model_;
  ASSIGN_OR_RETURN(const std::string text,
                   exchange_->Send("POST", root_ + "/tokenize", body.dump()));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const Json tokens = PartAt(json, "/tokens");
  RemotePrompt tokenized;
  for (const Json& token : tokens) {
    if (!token.is_number_integer()) return absl::InternalError("/tokenize: gives no ids");
    tokenized.ids.push_back(token.get<TokenId>());
  }
  if (tokenized.ids.empty()) return absl::InternalError("/tokenize: gives no ids");
  return tokenized;
}

// ---- Questions ----

absl::StatusOr<std::string> HttpEngine::Post(const std::string& path, const Json& body) {
  if (options_.requests_left != nullptr && --*options_.requests_left < 0) {
    return absl::ResourceExhaustedError("--requests: all were sent");
  }
  constexpr auto kReplace = Json::error_handler_t::replace;
  return exchange_->Send("POST", path, body.dump(-1, ' ', false, kReplace));
}

Json HttpEngine::Body(const Question& question) const {
  const bool is_llama = profile_->form == Form::kLlama;
  Json body = {{"temperature", question.temperature},
               {"top_p", question.top_p},
               {"frequency_penalty", question.frequency_penalty},
               {"presence_penalty", 0.0},
               {is_llama ? "n_cmpl" : "n", question.n},
               {is_llama ? "n_predict" : "max_tokens", question.max_tokens},
               {"stream", question.stream}};
  if (question.prompt.ids.empty()) {
    body["prompt"] = question.prompt.text;
  } else {
    body["prompt"] = question.prompt.ids;
  }
  if (!model_.empty()) body["model"] = model_;
  if (question.seed.has_value()) body["seed"] = *question.seed;
  if (!question.stop.empty()) body["stop"] = question.stop;
  if (question.wants_logprobs) body[is_llama ? "n_probs" : "logprobs"] = features_.num_top;
  for (const auto& [token, bias] : question.logit_bias) {
    if (is_llama) {
      body["logit_bias"].push_back({token, bias});
    } else {
      body["logit_bias"][absl::StrCat(token)] = bias;
    }
  }
  if (profile_->has_sampling_of_vllm) {
    body["top_k"] = question.top_k;
    body["min_p"] = question.min_p;
    if (!is_llama) body["repetition_penalty"] = 1.0;
    if (question.min_tokens > 0) body["min_tokens"] = question.min_tokens;
  }
  const std::string form = FormMembers(*profile_, question.form);
  if (!form.empty()) body.update(ParsedLiteral(form));
  body.update(options_.body);
  return body;
}

absl::StatusOr<RemoteReply> HttpEngine::Ask(const Question& question) {
  const bool needs_more = question.top_k > 0 || question.min_p > 0.0 || question.min_tokens > 0;
  if (FormMembers(*profile_, question.form).empty() ||
      (needs_more && !profile_->has_sampling_of_vllm)) {
    return absl::InvalidArgumentError("no field of the API is known for it");
  }
  const std::string path =
      profile_->form == Form::kLlama ? root_ + "/completion" : api_ + "/completions";
  ASSIGN_OR_RETURN(const std::string text, Post(path, Body(question)));
  return Understood<RemoteReply>(path, [&]() -> absl::StatusOr<RemoteReply> {
    bool has_wide_chunks = false;
    ASSIGN_OR_RETURN(const Json json, question.stream ? Merged(text, path, &has_wide_chunks)
                                                      : ParseJson(text, path));
    ASSIGN_OR_RETURN(RemoteReply reply, Parse(json));
    reply.has_wide_chunks = has_wide_chunks;
    return reply;
  });
}

// ---- Answers ----

absl::StatusOr<RemoteReply> HttpEngine::Parse(const Json& json) const {
  const bool is_llama = profile_->form == Form::kLlama;
  RemoteReply reply;
  const auto add_counts = [&](const Json& counted) {
    for (const auto& [pointer, sum] :
         {std::pair{is_llama ? "/tokens_predicted" : "/usage/completion_tokens",
                    &reply.usage_tokens},
          std::pair{profile_->proposed, &reply.proposed},
          std::pair{profile_->accepted, &reply.accepted}}) {
      const Json count = PartAt(counted, pointer);
      if (count.is_number()) *sum = sum->value_or(0) + count.get<int64_t>();
    }
  };
  const Json choices = !is_llama ? PartAt(json, "/choices") : json.is_array() ? json : Json{json};
  reply.answers.resize(choices.size());
  size_t index = 0;
  for (const Json& choice : choices) {
    index = choice.value("index", index) % choices.size();
    reply.answers[index++] = is_llama ? ParseLlama(choice) : ParseCompletion(choice);
    if (is_llama) add_counts(choice);
  }
  if (!is_llama) add_counts(json);
  if (reply.answers.empty())
    return absl::InternalError("/v1/completions: an answer without choices");
  return reply;
}

TokenId HttpEngine::IdOfKey(const std::string& key, bool has_ids) const {
  absl::string_view digits = key;
  TokenId id = -1;
  absl::ConsumePrefix(&digits, kTokenKey);
  return has_ids && absl::SimpleAtoi(digits, &id) ? id : options_.token_texts->IdOf(key);
}

std::vector<TokenId> HttpEngine::IdsOfWords(const std::string& text) const {
  std::vector<TokenId> ids;
  for (const std::string& word : WordsOf(text)) ids.push_back(IdOfKey(word, false));
  return ids;
}

// {"token_id:5": -0.1} or, in scores, {"5": {"logprob": -0.1}}
TopLogprobs HttpEngine::ParseTop(const Json& top, bool has_ids) const {
  TopLogprobs parsed;
  for (const auto& [key, value] : top.items()) {
    parsed.emplace_back(IdOfKey(key, has_ids),
                        LogprobOf(value.is_object() ? value.at("logprob") : value));
  }
  std::stable_sort(parsed.begin(), parsed.end(),
                   [](const auto& x, const auto& y) { return x.second > y.second; });
  return parsed;
}

RemoteAnswer HttpEngine::ParseCompletion(const Json& choice) const {
  RemoteAnswer answer;
  answer.text = choice.value("text", "");
  const Json finish = PartAt(choice, "/finish_reason");
  if (finish.is_string()) answer.finish = finish;
  const Json logprobs = choice.value("logprobs", Json());
  const Json texts = PartAt(logprobs, "/tokens");
  const Json ids = choice.value("token_ids", Json());
  // Log-probabilities that are keyed by text do not go with ids: two tokens may share a text.
  answer.has_ids = ids.is_array() &&
                   (texts.empty() || absl::StartsWith(texts.at(0).get<std::string>(), kTokenKey));
  if (answer.has_ids) answer.tokens = ids.get<std::vector<TokenId>>();
  for (const Json& text : texts) {
    if (!answer.has_ids) answer.tokens.push_back(IdOfKey(text, false));
  }
  if (!answer.has_ids && texts.empty()) answer.tokens = IdsOfWords(answer.text);
  for (const Json& number : PartAt(logprobs, "/token_logprobs")) {
    answer.logprobs.push_back(LogprobOf(number));
  }
  for (const Json& top : PartAt(logprobs, "/top_logprobs")) {
    answer.tops.push_back(ParseTop(top, answer.has_ids));
  }
  return answer;
}

RemoteAnswer HttpEngine::ParseLlama(const Json& choice) const {
  RemoteAnswer answer = {.text = choice.value("content", "")};
  const std::string end = choice.value("stop_type", "");
  answer.finish = end == "limit" ? "length" : "stop";
  for (const Json& token : choice.at("tokens")) answer.tokens.push_back(token.get<TokenId>());
  answer.has_ids = answer.text.empty() || !answer.tokens.empty();
  if (!answer.has_ids) answer.tokens = IdsOfWords(answer.text);
  for (const Json& entry : PartAt(choice, "/completion_probabilities")) {
    answer.logprobs.push_back(LogprobOf(entry.at("logprob")));
    TopLogprobs& top = answer.tops.emplace_back();
    for (const Json& other : entry.at("top_logprobs")) {
      top.emplace_back(other.at("id").get<TokenId>(), LogprobOf(other.at("logprob")));
    }
  }
  return answer;
}

absl::StatusOr<std::vector<TopLogprobs>> HttpEngine::Score(const RemotePrompt& prompt,
                                                           absl::Span<const TokenId> tokens) {
  std::vector<TopLogprobs> rows;
  Question question = {.prompt = prompt, .max_tokens = 1, .temperature = 0.0};
  const size_t begin = prompt.ids.size();
  const bool is_one_request = *profile_->prompt_logprobs != '\0';
  for (const TokenId token : tokens) {
    if (!is_one_request) {
      question.wants_logprobs = true;
      ASSIGN_OR_RETURN(const RemoteReply reply, Ask(question));
      if (reply.answers[0].tops.empty() || reply.answers[0].tops[0].empty()) {
        return absl::InternalError("no log-probabilities");
      }
      rows.push_back(reply.answers[0].tops[0]);
    }
    question.prompt.ids.push_back(token);
  }
  if (!is_one_request) return rows;
  Json body = Body(question);
  body[profile_->prompt_logprobs] = features_.num_top;
  ASSIGN_OR_RETURN(const std::string text, Post(api_ + "/completions", body));
  using Rows = std::vector<TopLogprobs>;
  return Understood<Rows>("prompt_logprobs", [&]() -> absl::StatusOr<Rows> {
    ASSIGN_OR_RETURN(const Json json, ParseJson(text, "scores"));
    const Json scores = PartAt(json, "/choices/0/prompt_logprobs");
    if (scores.size() != begin + tokens.size()) return absl::InternalError("no prompt_logprobs");
    for (size_t i = begin; i < scores.size(); ++i) {
      rows.push_back(ParseTop(scores.at(i), true));
      if (rows.back().empty()) return absl::InternalError("a token without prompt_logprobs");
    }
    return rows;
  });
}

}  // namespace tandem
