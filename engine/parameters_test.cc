// Every parameter of a request under every acceptance rule and drafter: the output must be that of
// plain decoding, with log-probabilities equal bit for bit.
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "engine/engine_testing.h"
#include "gtest/gtest.h"
#include "tandem/engine.h"

namespace tandem {
namespace {

constexpr int kNumPrompts = 4;
constexpr int kMaxTokens = 20;

struct Parameter {
  std::string name;
  std::function<void(Request*)> set;
};

// Ids spread over a vocabulary of about 300: one token in twenty.
std::vector<TokenId> EveryTwentieth(TokenId first) {
  std::vector<TokenId> ids;
  for (TokenId id = first; id < 280; id += 20) ids.push_back(id);
  return ids;
}

// Returns parameters alone and in combination. Each changes the output at temperature 1.
std::vector<Parameter> Parameters() {
  return {
      {"temperature", [](Request* r) { r->sampling.temperature = 0.7f; }},
      {"top_k", [](Request* r) { r->sampling.top_k = 5; }},
      {"top_p", [](Request* r) { r->sampling.top_p = 0.6f; }},
      {"min_p", [](Request* r) { r->sampling.min_p = 0.3f; }},
      {"repetition_penalty", [](Request* r) { r->sampling.repetition_penalty = 1.5f; }},
      {"frequency_penalty", [](Request* r) { r->sampling.frequency_penalty = 1.5f; }},
      {"presence_penalty", [](Request* r) { r->sampling.presence_penalty = 1.8f; }},
      {"logit_bias",
       [](Request* r) {
         r->sampling.logit_bias = {{3, 9.0f}, {5, -100.0f}, {7, 6.5f}};
       }},
      {"stop_tokens", [](Request* r) { r->stop_tokens = EveryTwentieth(7); }},
      {"end tokens", [](Request* r) { r->ignore_eos = false; }},
      {"stop",
       [](Request* r) {
         r->stop = {"e", "ab"};
       }},
      {"min_tokens",
       [](Request* r) {
         r->stop_tokens = EveryTwentieth(7);
         r->stop = {"e", "ab"};
         r->ignore_eos = false;
         r->sampling.min_tokens = 7;
       }},
      {"logprobs 0", [](Request* r) { r->logprobs = {.num_top = 0}; }},
      {"logprobs 5", [](Request* r) { r->logprobs = {.num_top = 5}; }},
      {"processed logprobs 0", [](Request* r) { r->logprobs = {.num_top = 0, .processed = true}; }},
      {"processed logprobs 5",
       [](Request* r) {
         r->logprobs = {.num_top = 5, .processed = true};
         r->sampling.top_k = 4;
       }},
      {"prompt_logprobs", [](Request* r) { r->prompt_logprobs = {.num_top = 3}; }},
      {"all",
       [](Request* r) {
         r->sampling = {.temperature = r->sampling.is_greedy() ? 0.0f : 1.1f,
                        .top_k = 60,
                        .top_p = 0.95f,
                        .min_p = 0.01f,
                        .repetition_penalty = 1.1f,
                        .frequency_penalty = 0.3f,
                        .presence_penalty = -0.4f,
                        .logit_bias = {{11, 3.0f}},
                        .min_tokens = 5};
         r->stop_tokens = {7, 107};
         r->stop = {"ee"};
         r->logprobs = {.num_top = 2, .processed = true};
         r->prompt_logprobs = {.num_top = 0};
       }},
  };
}

bool SameOutput(const Completion& a, const Completion& b) {
  return a.token_ids == b.token_ids && a.text == b.text && a.finish_reason == b.finish_reason &&
         a.logprobs.size() == b.logprobs.size() &&
         a.prompt_logprobs.size() == b.prompt_logprobs.size();
}

bool AllSame(const std::vector<Completion>& a, const std::vector<Completion>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!SameOutput(a[i], b[i])) return false;
  }
  return true;
}

class EveryParameter : public testing::TestWithParam<std::tuple<std::string, DrafterKind>> {
 protected:
  EveryParameter() : pair_(std::get<0>(GetParam())), target_(pair_.target) {
    target_.WriteJson("generation_config.json", {{"eos_token_id", EveryTwentieth(5)}});
    EngineOptions plain = CpuOptionsFor(target_.path(), "");
    plain.max_batch = 1;
    plain.prefix_cache = false;
    plain_ = MakeEngine(plain);
    for (const int max_batch : {1, kNumPrompts}) {
      EngineOptions options = CpuOptionsFor(target_.path(), pair_.draft);
      options.drafter = std::get<1>(GetParam());
      options.max_batch = max_batch;
      engines_.push_back(MakeEngine(options));
    }
  }

  // Several prompts, each with its own random numbers.
  std::vector<Request> Requests(float temperature, const Parameter* parameter) const {
    std::vector<Request> requests;
    for (std::vector<TokenId>& prompt : PromptsFrom(pair_.prompt_ids, kNumPrompts)) {
      requests.push_back({.prompt_ids = std::move(prompt),
                          .max_tokens = kMaxTokens,
                          .sampling = {.temperature = temperature},
                          .seed = 12,
                          .sequence = static_cast<uint32_t>(requests.size()),
                          .ignore_eos = true});
      if (parameter != nullptr) parameter->set(&requests.back());
    }
    return requests;
  }

  void ExpectPlainOutput(std::vector<Request> requests, AcceptanceRule verifier,
                         const std::vector<Completion>& plain) {
    for (const int k : {1, 3, 8, kAutoDraftTokens}) {
      if (k == kAutoDraftTokens && requests[0].sampling.is_greedy()) continue;  // for time
      for (Request& request : requests) {
        request.draft_tokens = k;
        request.verifier = verifier;
      }
      for (const auto& engine : engines_) {
        SCOPED_TRACE(absl::StrCat("k ", k, " batch ", engine == engines_[0] ? 1 : kNumPrompts));
        const std::vector<Completion> got = GenerateAll(engine.get(), requests);
        for (size_t i = 0; i < got.size(); ++i) {
          ExpectSameOutput(got[i], plain[i]);
          ExpectConsistent(got[i]);
          EXPECT_EQ(got[i].verifier, verifier);
          stats_ += got[i].stats;
        }
      }
    }
  }

  const GoldenPair pair_;
  const ModelCopy target_;
  std::unique_ptr<Engine> plain_;
  std::vector<std::unique_ptr<Engine>>
      engines_;  // one with batches of one sequence, one with full batches
  RoundStats stats_;
};

TEST_P(EveryParameter, SeededSamplesEqualPlainDecoding) {
  const std::vector<Completion> base = GenerateAll(plain_.get(), Requests(1.0f, nullptr));
  ExpectPlainOutput(Requests(1.0f, nullptr), AcceptanceRule::kExactMatch, base);
  for (const Parameter& parameter : Parameters()) {
    SCOPED_TRACE(parameter.name);
    const std::vector<Request> requests = Requests(1.0f, &parameter);
    const std::vector<Completion> plain = GenerateAll(plain_.get(), requests);
    EXPECT_FALSE(AllSame(plain, base));  // the parameter has an effect
    ExpectPlainOutput(requests, AcceptanceRule::kExactMatch, plain);
  }
  EXPECT_GT(stats_.accepted, 20);
  EXPECT_GT(stats_.proposed, stats_.accepted);
}

TEST_P(EveryParameter, GreedyTextEqualsPlainDecodingUnderEveryRule) {
  for (const Parameter& parameter : Parameters()) {
    if (parameter.name == "temperature") continue;  // it is 0 here
    const std::vector<Request> requests = Requests(0.0f, &parameter);
    const std::vector<Completion> plain = GenerateAll(plain_.get(), requests);
    for (const AcceptanceRule verifier : kAllRules) {
      SCOPED_TRACE(absl::StrCat(parameter.name, " ", View(NameOf(verifier))));
      ExpectPlainOutput(requests, verifier, plain);
    }
  }
  EXPECT_GT(stats_.accepted, 20);
  EXPECT_GT(stats_.proposed, stats_.accepted);
}

INSTANTIATE_TEST_SUITE_P(All, EveryParameter,
                         testing::Combine(testing::Values("shallow", "perturbed"),
                                          testing::Values(DrafterKind::kModel, DrafterKind::kNgram,
                                                          DrafterKind::kModelAndNgram)),
                         [](const auto& info) {
                           const DrafterKind drafter = std::get<1>(info.param);
                           return absl::StrCat(std::get<0>(info.param), "_",
                                               drafter == DrafterKind::kModelAndNgram
                                                   ? "both"
                                                   : View(NameOf(drafter)));
                         });

}  // namespace
}  // namespace tandem
