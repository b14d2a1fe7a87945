#include "proof/exact_checks.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proof/proof_world.h"

namespace tandem {
namespace {

constexpr int kWholePrompt = 1 << 20;

// The rows of one pass, in the order of the requests.
struct PassRows {
  MatrixView logits;
  const float* operator[](int i) const {
    return static_cast<const float*>(logits.data) + i * logits.stride;
  }
  size_t row_bytes() const { return logits.cols * sizeof(float); }
};

absl::StatusOr<PassRows> Forward(LanguageModel* model, absl::Span<const ForwardRequest> requests) {
  ASSIGN_OR_RETURN(const MatrixView logits, model->Forward(requests));
  return PassRows{logits};
}

absl::Status Read(LanguageModel* model, absl::Span<const TokenId> tokens, KvSequence* kv) {
  if (tokens.empty()) return absl::OkStatus();
  const ForwardRequest pass{.tokens = tokens, .kv = kv, .num_logits = 0};
  return model->Forward({&pass, 1}).status();
}

// ---- Plain decoding ----

struct PlainRun {
  ProofRequest request;
  std::vector<TokenId> output;
  std::vector<float> logprobs;
};

// Plain decoding: a row, its distribution, a draw. All generations advance together.
absl::StatusOr<std::vector<PlainRun>> DecodePlainly(LanguageModel* model, PagedKvCache* cache,
                                                    absl::Span<const ProofRequest> requests) {
  std::vector<PlainRun> runs;
  std::vector<KvSequence> kvs;
  std::vector<TokenHistory> history;
  std::vector<TokenId> last;
  int longest = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const ProofRequest& r = requests[i];
    runs.push_back({.request = r, .output = {}, .logprobs = {}});
    kvs.push_back(cache->NewSequence());
    RETURN_IF_ERROR(Read(model, r.prompt.first(r.prompt.size() - 1), &kvs.back()));
    history.emplace_back(r.sampling.constraint.get());
    history.back().AddPrompt(r.prompt);
    last.push_back(r.prompt.back());
    longest = std::max(longest, r.max_tokens);
  }
  Distribution row;
  for (int step = 0; step < longest; ++step) {
    std::vector<ForwardRequest> passes;
    std::vector<size_t> open;
    for (size_t i = 0; i < runs.size(); ++i) {
      if (step >= requests[i].max_tokens) continue;
      passes.push_back({.tokens = {&last[i], 1}, .kv = &kvs[i], .num_logits = 1});
      open.push_back(i);
    }
    ASSIGN_OR_RETURN(const PassRows rows, Forward(model, passes));
    for (size_t j = 0; j < open.size(); ++j) {
      const size_t i = open[j];
      const ProofRequest& r = requests[i];
      const absl::Span<const float> logits(rows[static_cast<int>(j)], model->vocab_size());
      RETURN_IF_ERROR(MakeDistribution(logits, r.sampling, &history[i], &row));
      last[i] = Draw(row, r.random,
                     {.stream = RandomStream::kTarget,
                      .position = static_cast<uint32_t>(r.prompt.size() + step)});
      history[i].AddOutput(last[i]);
      runs[i].output.push_back(last[i]);
      runs[i].logprobs.push_back(LogprobsOf(logits, last[i], 0).logprob);
    }
  }
  return runs;
}

// ---- Speculation, compared with it ----

struct Arm {
  AcceptanceRule rule = AcceptanceRule::kExactMatch;
  int draft_tokens = 0;
  int batch = 1;
  int chunk_tokens = kWholePrompt;
};

absl::StatusOr<std::vector<std::unique_ptr<Session>>> Generate(
    ProofRounds* rounds, absl::Span<const ProofRequest> requests, const Arm& arm) {
  std::vector<std::unique_ptr<Session>> sessions;
  for (const ProofRequest& request : requests) {
    sessions.push_back(rounds->NewSession(request));
    sessions.back()->rule = arm.rule;
  }
  for (;;) {
    std::vector<Session*> running;
    for (const auto& session : sessions) {
      if (!session->finished) running.push_back(session.get());
    }
    if (running.empty()) return sessions;
    // The first prompt is read alone for a while, so that its decoding coincides with the reading
    // of the others.
    const bool is_alone = running[0]->num_output() == 0 && running[0]->num_pending() > 1;
    if (is_alone) running.resize(1);
    RETURN_IF_ERROR(rounds->Run(running, arm.draft_tokens, arm.chunk_tokens));
  }
}

std::string ArmText(const Arm& arm) {
  return absl::StrCat(std::string(NameOf(arm.rule)), ", k ", arm.draft_tokens, ", batch ",
                      arm.batch);
}

void Compare(const PlainRun& want, const Session& got, const Arm& arm, ExactCheck* check) {
  for (size_t i = 0; i < want.output.size(); ++i) {
    ++check->compared;
    const bool has_token = got.completion.token_ids.size() > i;
    const bool is_equal =
        has_token && got.completion.token_ids[i] == want.output[i] &&
        std::memcmp(&got.completion.logprobs[i].logprob, &want.logprobs[i], sizeof(float)) == 0;
    if (is_equal) continue;
    if (check->different++ > 0) continue;
    check->first_difference = absl::StrCat(
        ArmText(arm), ", temperature ", want.request.sampling.temperature, ", token ", i, ": ",
        has_token ? got.completion.token_ids[i] : -1, " for ", want.output[i]);
  }
}

absl::Status RunArm(ProofRounds* rounds, absl::Span<const PlainRun> plain, const Arm& arm,
                    ExactCheck* check) {
  for (size_t begin = 0; begin < plain.size(); begin += arm.batch) {
    const auto runs = plain.subspan(begin, arm.batch);
    std::vector<ProofRequest> requests;
    for (const PlainRun& run : runs) requests.push_back(run.request);
    ASSIGN_OR_RETURN(const auto sessions, Generate(rounds, requests, arm));
    for (size_t i = 0; i < runs.size(); ++i) Compare(runs[i], *sessions[i], arm, check);
  }
  return absl::OkStatus();
}

std::vector<ProofRequest> MakeRequests(const ExactOptions& options, bool greedy) {
  std::vector<ProofRequest> requests;
  for (const ProofSampling& setting : options.settings) {
    if (setting.params.is_greedy() != greedy) continue;
    for (const auto& prompt : options.prompts) {
      const auto index = static_cast<uint32_t>(requests.size());
      requests.push_back({.prompt = prompt,
                          .sampling = setting.params,
                          .rule = AcceptanceRule::kExactMatch,
                          .random = RandomSource(options.seed).ForSequence(index),
                          .max_tokens = options.max_tokens,
                          .logprobs = {.num_top = 0}});
    }
  }
  return requests;
}

// Runs, next to the engine's drafter, a second state that has just read the same tokens, and
// compares their proposals.
class WatchedDrafter final : public WrappedDrafter {
 public:
  WatchedDrafter(const ProofWorld& world, const ProofWorld& defined, ExactCheck* check)
      : WrappedDrafter(world.drafter), defined_(defined), tenant_(world.tenant), check_(check) {}
  absl::Status Propose(absl::Span<const DraftRequest> requests,
                       absl::Span<Proposal* const> proposals) override {
    RETURN_IF_ERROR(inner_->Propose(requests, proposals));
    for (size_t i = 0; i < requests.size(); ++i) {
      DraftRequest request = requests[i];
      Proposal proposal;
      RETURN_IF_ERROR(ProposeAfresh(request, &proposal));
      Compare(*proposals[i], proposal, static_cast<int>(request.context.size()));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ProposeAfresh(DraftRequest request, Proposal* proposal) {
    const bool is_head = inner_->shares_target_cache();
    const bool has_masks = inner_->mask_token() != kNoMaskToken;
    // A fault in the rows of one pass would also be in a fresh state's.
    Drafter* const drafter = is_head || has_masks ? defined_.drafter : inner_;
    const std::unique_ptr<DraftState> fresh =
        drafter->NewStateOf(DrafterKind::kModelAndNgram, {}, tenant_);
    request.state = fresh.get();
    KvSequence kv;
    if (is_head) {
      kv = defined_.target_cache->NewSequence();
      RETURN_IF_ERROR(
          Read(defined_.target, request.context.first(request.target_kv->length()), &kv));
      request.target_kv = &kv;
      const TargetRows rows{.state = fresh.get(), .tokens = request.context, .kv = &kv};
      RETURN_IF_ERROR(drafter->ReadStates({&rows, 1}));
    }
    return drafter->Propose({&request, 1}, {&proposal, 1});
  }

  void Compare(const Proposal& got, const Proposal& want, int length) {
    const size_t count = std::max(got.tokens.size(), want.tokens.size());
    for (size_t i = 0; i < count; ++i) {
      ++check_->compared;
      if (i < got.tokens.size() && i < want.tokens.size() && got.tokens[i] == want.tokens[i] &&
          IsSame(got.drawn_from[i], want.drawn_from[i])) {
        continue;
      }
      if (check_->different++ > 0) continue;
      check_->first_difference = absl::StrCat("draft token ", i, " after ", length, " tokens");
    }
  }
  static bool IsSame(const Distribution& a, const Distribution& b) {
    if (a.only != b.only || a.probs.size() != b.probs.size()) return false;
    // One-hot rows do not have probabilities, and memcmp must not get null.
    return a.probs.empty() ||
           std::memcmp(a.probs.data(), b.probs.data(), a.probs.size() * sizeof(float)) == 0;
  }

  const ProofWorld& defined_;
  std::shared_ptr<const Tenant> tenant_;
  ExactCheck* check_;
};

}  // namespace

absl::StatusOr<ExactCheck> CheckRows(LanguageModel* plain, LanguageModel* target,
                                     PagedKvCache* cache, const ExactOptions& options) {
  const int max_rows = std::max(options.draft_tokens + 1, 8);
  ExactCheck check{
      .name = "rows",
      .what = absl::StrCat("logits of passes over 1 to ", max_rows, " rows of ",
                           options.prompts.size(), " sequences, with one-row decoding")};
  // Any text would do; the models' own is the most relevant.
  std::vector<ProofRequest> requests;
  for (const auto& prompt : options.prompts) {
    requests.push_back({.prompt = prompt,
                        .sampling = {},
                        .random = RandomSource(options.seed),
                        .max_tokens = options.max_tokens,
                        .logprobs = {}});
  }
  ASSIGN_OR_RETURN(const std::vector<PlainRun> texts, DecodePlainly(plain, cache, requests));
  std::vector<KvSequence> read;
  for (const ProofRequest& r : requests) {
    read.push_back(cache->NewSequence());
    RETURN_IF_ERROR(Read(plain, r.prompt, &read.back()));
  }
  const size_t row_bytes = plain->vocab_size() * sizeof(float);
  for (int start = 0; start + max_rows <= options.max_tokens; start += max_rows) {
    // Rows one by one, each sequence alone.
    std::vector<std::vector<float>> want(texts.size());
    std::vector<KvSequence> before;
    for (size_t s = 0; s < texts.size(); ++s) {
      before.push_back(read[s].Fork());
      for (int i = 0; i < max_rows; ++i) {
        const ForwardRequest pass{
            .tokens = {&texts[s].output[start + i], 1}, .kv = &read[s], .num_logits = 1};
        ASSIGN_OR_RETURN(const PassRows rows, Forward(plain, {&pass, 1}));
        want[s].insert(want[s].end(), rows[0], rows[0] + plain->vocab_size());
      }
    }
    for (int count = 1; count <= max_rows; ++count) {
      std::vector<KvSequence> kvs;
      for (const KvSequence& kv : before) kvs.push_back(kv.Fork());
      for (int from = 0; from < max_rows; from += count) {
        const int num_rows = std::min(count, max_rows - from);
        std::vector<ForwardRequest> passes;
        for (size_t s = 0; s < texts.size(); ++s) {
          passes.push_back(
              {.tokens = absl::MakeConstSpan(texts[s].output).subspan(start + from, num_rows),
               .kv = &kvs[s],
               .num_logits = num_rows});
        }
        ASSIGN_OR_RETURN(const PassRows rows, Forward(target, passes));
        for (int r = 0; r < num_rows * static_cast<int>(texts.size()); ++r) {
          const float* one = want[r / num_rows].data() +
                             static_cast<size_t>(from + r % num_rows) * plain->vocab_size();
          ++check.compared;
          if (std::memcmp(rows[r], one, row_bytes) == 0) continue;
          if (check.different++ > 0) continue;
          check.first_difference =
              absl::StrCat("row ", r % num_rows, " of ", num_rows, ", sequence ", r / num_rows,
                           ", output token ", start + from + r % num_rows);
        }
      }
    }
    if (!options.go_on()) break;
  }
  return check;
}

absl::StatusOr<std::vector<ExactCheck>> CheckOutputs(LanguageModel* plain, const ProofWorld& world,
                                                     const ExactOptions& options) {
  ProofRounds rounds(world);
  const int k = options.draft_tokens;
  const int all = 1 << 10;
  const AcceptanceRule exact = AcceptanceRule::kExactMatch;
  const std::vector<Arm> arms = {{exact, k, all, kWholePrompt},   {exact, k, 1, 5},
                                 {exact, 2 * k, 3, kWholePrompt}, {exact, 1, all, 3},
                                 {exact, 0, all, kWholePrompt},   {exact, 2, 2, 7}};
  std::vector<ExactCheck> checks;
  for (const bool greedy : {true, false}) {
    const std::vector<ProofRequest> requests = MakeRequests(options, greedy);
    if (requests.empty()) continue;
    ASSIGN_OR_RETURN(const std::vector<PlainRun> runs,
                     DecodePlainly(plain, world.target_cache, requests));
    const std::vector<AcceptanceRule> rules =
        greedy ? std::vector<AcceptanceRule>{exact, AcceptanceRule::kBlock, AcceptanceRule::kToken}
               : std::vector<AcceptanceRule>{exact};
    for (const AcceptanceRule rule : rules) {
      ExactCheck check{
          .name = absl::StrCat(greedy ? "greedy" : "seeded", " ", std::string(NameOf(rule))),
          .what = "tokens and log-probabilities, with plain decoding"};
      bool goes_on = true;
      for (size_t i = 0; i < arms.size() && goes_on; ++i) {
        Arm arm = arms[i];
        arm.rule = rule;
        arm.draft_tokens = std::min(arm.draft_tokens, kMaxDraftTokens);
        arm.batch = std::min<int>(arm.batch, static_cast<int>(runs.size()));
        RETURN_IF_ERROR(RunArm(&rounds, runs, arm, &check));
        goes_on = options.go_on();
      }
      checks.push_back(std::move(check));
    }
  }
  return checks;
}

absl::StatusOr<ExactCheck> CheckDraftState(const ProofWorld& world, const ProofWorld& defined,
                                           const ExactOptions& options) {
  ExactCheck check{.name = "draft state",
                   .what = "proposals and their rows, with a draft that has just read the text"};
  if (world.drafter == nullptr) return check;
  WatchedDrafter watched(world, defined, &check);
  ProofWorld watched_world = world;
  watched_world.drafter = &watched;
  ProofRounds rounds(watched_world);
  const std::vector<ProofRequest> requests = MakeRequests(options, /*greedy=*/false);
  for (const AcceptanceRule rule : {AcceptanceRule::kBlock, AcceptanceRule::kExactMatch}) {
    const Arm arm{.rule = rule,
                  .draft_tokens = options.draft_tokens,
                  .batch = static_cast<int>(options.prompts.size()),
                  .chunk_tokens = 7};
    for (size_t begin = 0; begin < requests.size(); begin += arm.batch) {
      RETURN_IF_ERROR(
          Generate(&rounds, absl::MakeConstSpan(requests).subspan(begin, arm.batch), arm).status());
      if (!options.go_on()) break;
    }
  }
  return check;
}

}  // namespace tandem
