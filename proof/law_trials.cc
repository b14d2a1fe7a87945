#include "proof/law_trials.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

constexpr int kChunkTokens = 256;

}  // namespace

absl::Status MakeDistributionAfter(RememberedRows* model, absl::Span<const TokenId> prompt,
                                   absl::Span<const TokenId> output, const SamplingParams& sampling,
                                   size_t vocab_size, Distribution* row) {
  std::vector<TokenId> context(prompt.begin(), prompt.end());
  context.insert(context.end(), output.begin(), output.end());
  TokenHistory history(sampling.constraint.get());
  history.AddPrompt(prompt);
  for (const TokenId token : output) history.AddOutput(token);
  ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                   model->RowAfter(context, static_cast<int>(output.size())));
  return MakeDistribution(logits.first(std::min(logits.size(), vocab_size)), sampling, &history,
                          row);
}

// Depth first. Whether a path is followed depends only on its own probability, so any order would
// do.
absl::StatusOr<TargetLaw> TargetLaw::Expand(RememberedRows* target,
                                            absl::Span<const TokenId> prompt,
                                            const SamplingParams& sampling,
                                            const Options& options) {
  TANDEM_CHECK(options.length >= 1);
  struct Open {
    int node;
    std::vector<TokenId> output;
    double probability;
  };
  TargetLaw law;
  law.length_ = options.length;
  law.nodes_.emplace_back();
  Distribution row;
  std::vector<Open> open = {{.node = 0, .output = {}, .probability = 1.0}};
  while (!open.empty()) {
    const Open at = std::move(open.back());
    open.pop_back();
    RETURN_IF_ERROR(
        MakeDistributionAfter(target, prompt, at.output, sampling, target->vocab_size(), &row));
    if (row.only >= 0) {  // greedy
      row.probs.assign(target->vocab_size(), 0.0f);
      row.probs[row.only] = 1.0f;
    }
    double sum = 0.0;  // rounded in f32, so not exactly 1; drawing does not need a normaliser
    for (const float p : row.probs) sum += p;
    double left = 0.0;
    const bool is_last = static_cast<int>(at.output.size()) + 1 == options.length;
    for (TokenId v = 0; v < static_cast<TokenId>(row.probs.size()); ++v) {
      const double probability = at.probability * row.probs[v] / sum;
      if (probability < options.min_probability) {
        left += probability;
        continue;
      }
      if (is_last) {
        law.nodes_[at.node].children[v] = static_cast<int>(law.probabilities_.size());
        law.probabilities_.push_back(probability);
        continue;
      }
      const int child = static_cast<int>(law.nodes_.size());
      law.nodes_[at.node].children[v] = child;
      law.nodes_.emplace_back();
      open.push_back({.node = child, .output = at.output, .probability = probability});
      open.back().output.push_back(v);
    }
    law.nodes_[at.node].left_cell = static_cast<int>(law.probabilities_.size());
    law.probabilities_.push_back(left);
  }
  return law;
}

int TargetLaw::CellOf(absl::Span<const TokenId> output) const {
  int node = 0;
  for (size_t i = 0; i < output.size(); ++i) {
    const auto it = nodes_[node].children.find(output[i]);
    if (it == nodes_[node].children.end()) return nodes_[node].left_cell;
    if (static_cast<int>(i) + 1 == length_) return it->second;
    node = it->second;
  }
  return -1;
}

LawTrials::LawTrials(const ProofWorld& world, std::shared_ptr<const TargetLaw> law,
                     LawCase law_case, RandomSource seeds, int batch)
    : rounds_(world),
      law_(std::move(law)),
      case_(std::move(law_case)),
      seeds_(seeds),
      batch_(batch),
      prompt_kv_(world.target_cache->NewSequence()),
      counts_(law_->probabilities().size()) {}

// Returns the length of the prompt without its last token; with a head, whose layer is in the
// pages, rounded down to full pages.
int LawTrials::LengthToFork() const {
  const ProofWorld& world = rounds_.world();
  const int length = static_cast<int>(case_.prompt.size()) - 1;
  if (world.drafter == nullptr || !world.drafter->shares_target_cache()) return length;
  return length - length % world.target_cache->layout().page_size;
}

// Afterwards, the target's state is forked. A head's state is in the target's pages, and another
// drafter's state is found in its prefix index.
absl::Status LawTrials::ReadPrompt() {
  const ProofWorld& world = rounds_.world();
  const absl::Span<const TokenId> known = absl::MakeConstSpan(case_.prompt);
  std::unique_ptr<DraftState> state;
  if (world.drafter != nullptr) state = world.drafter->NewState(known);
  for (absl::Span<const TokenId> left = known.first(LengthToFork()); !left.empty();) {
    const absl::Span<const TokenId> chunk = left.first(std::min<size_t>(left.size(), kChunkTokens));
    const int before = prompt_kv_.length();
    const ForwardRequest pass{.tokens = chunk, .kv = &prompt_kv_, .num_logits = 0};
    RETURN_IF_ERROR(world.target->Forward({&pass, 1}).status());
    left.remove_prefix(chunk.size());
    if (world.drafter == nullptr || !world.drafter->shares_target_cache()) continue;
    const Drafter::TargetRows rows{
        .state = state.get(), .tokens = known, .kv = &prompt_kv_, .first_position = before};
    RETURN_IF_ERROR(world.drafter->ReadStates({&rows, 1}));
  }
  if (world.drafter == nullptr || world.drafter->shares_target_cache()) return absl::OkStatus();
  Proposal none;
  Proposal* proposal = &none;
  TokenHistory history(case_.sampling.params.constraint.get());
  const DraftRequest reads_along{.context = known,
                                 .sampling = &case_.sampling.params,
                                 .history = &history,
                                 .state = state.get()};
  RETURN_IF_ERROR(world.drafter->Propose({&reads_along, 1}, {&proposal, 1}));
  world.drafter->Publish(state.get(), known);
  return absl::OkStatus();
}

absl::Status LawTrials::Run(int64_t runs) {
  if (prompt_kv_.length() < LengthToFork()) RETURN_IF_ERROR(ReadPrompt());
  const int64_t end = started_ + runs;
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> running;
  while (started_ < end || !sessions.empty()) {
    std::vector<Session*> reading;  // sessions that must read the rest of the prompt, so that their
                                    // first round drafts
    while (started_ < end && static_cast<int>(sessions.size()) < batch_) {
      const auto index = static_cast<uint32_t>(started_++);
      sessions.push_back(
          rounds_.NewSession({.prompt = case_.prompt,
                              .sampling = case_.sampling.params,
                              .rule = case_.rule,
                              .random = seeds_.ForSequence(index),
                              .max_tokens = std::max(law_->length(), case_.draft_tokens + 1),
                              .logprobs = {}},
                             prompt_kv_.Fork()));
      if (sessions.back()->num_pending() > 1) reading.push_back(sessions.back().get());
    }
    if (!reading.empty()) {
      RETURN_IF_ERROR(rounds_.Run(reading, /*draft_tokens=*/0, reading.front()->num_pending() - 1));
    }
    running.clear();
    for (const auto& session : sessions) running.push_back(session.get());
    RETURN_IF_ERROR(rounds_.Run(running, case_.draft_tokens, kChunkTokens));
    for (auto it = sessions.begin(); it != sessions.end();) {
      Session& s = **it;
      const int cell = law_->CellOf(absl::MakeConstSpan(s.tokens).subspan(s.prompt_length));
      if (cell < 0) {
        ++it;
        continue;
      }
      ++counts_[cell];
      stats_ += s.completion.stats;
      ++finished_;
      it = sessions.erase(it);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
