#include "tandem/lossless_proof.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/instant.h"
#include "base/status_macros.h"
#include "draft/make_drafter.h"
#include "draft/tenants.h"
#include "engine/runtime.h"
#include "proof/exact_checks.h"
#include "proof/fault_cases.h"
#include "proof/law_trials.h"
#include "proof/planted_faults.h"
#include "proof/proof_world.h"
#include "proof/remembered_model.h"
#include "proof/statistics.h"

namespace tandem {
namespace {

// Cumulative shares of the time: when the exact checks, the search for cases in which faults show,
// and the tests of faults should end. The rest is for the laws.
constexpr double kExactUntil = 0.15;
constexpr double kCasesUntil = 0.2;
constexpr double kFaultsUntil = 0.5;
// Minimums that do not depend on the time.
constexpr int64_t kMinRuns = 1000;
constexpr int64_t kMinRunsOfModels = 200;
constexpr int64_t kSlice = 250;            // runs between checks of the time
constexpr int64_t kFirstFaultRuns = 1000;  // doubled until a fault is caught
constexpr int64_t kMinFaultRuns = 32000;
constexpr int64_t kMaxRuns = int64_t{1} << 30;  // seeds differ in 32 bits
// With a given number of runs, a fault gets this many times the runs of a test.
constexpr int kFaultPatience = 32;

constexpr int64_t kRowBytes = int64_t{256} << 20;  // for each model's remembered rows
constexpr int kBatch = 32;
constexpr double kPower = 0.99;
// The maximum number of law tests in one proof. A fault counts as caught if a test would reject it
// among this many tests.
constexpr size_t kMaxLawTests = 44;

// The sampling of law tests. With flat distributions the outputs spread over so many texts that
// longer drafts would give few counts for each cell, and most of their rows would have to be
// computed.
struct LawSetting {
  ProofSampling sampling;
  int max_draft_tokens;
};
const std::vector<LawSetting>& LawSettings() {
  static const auto* const settings = new std::vector<LawSetting>{
      {{.name = "T 1", .params = {}}, 2},
      {{.name = "T 0.7, top-p 0.9", .params = {.temperature = 0.7f, .top_p = 0.9f}},
       kMaxDraftTokens},
      {{.name = "T 1.3, top-k 8, min-p 0.02",
        .params = {.temperature = 1.3f, .top_k = 8, .min_p = 0.02f}},
       3},
      {{.name = "T 1, penalties 1.2 0.5 0.5",
        .params = {.repetition_penalty = 1.2f,
                   .frequency_penalty = 0.5f,
                   .presence_penalty = 0.5f}},
       2},
      {{.name = "T 1, constrained",
        .params = {.constraint = std::make_shared<const ClassConstraint>()}},
       2},
      {{.name = "T 1, thinking budget", .params = {.constraint = ClassThinking()}},
       kMaxDraftTokens},
  };
  return *settings;
}

constexpr int kPenalized = 3;  // indices into these settings
constexpr int kConstrained = 4;

std::vector<ProofSampling> ExactSettings() {
  std::vector<ProofSampling> settings;
  for (const LawSetting& setting : LawSettings()) settings.push_back(setting.sampling);
  settings.push_back({.name = "T 0", .params = {.temperature = 0.0f}});
  const auto greedily = [&](const char* name, SamplingParams params) {
    params.temperature = 0.0f;
    settings.push_back({.name = name, .params = std::move(params)});
  };
  greedily("T 0, penalties", LawSettings()[kPenalized].sampling.params);
  greedily("T 0, constrained", LawSettings()[kConstrained].sampling.params);
  return settings;
}

struct LawTest {
  bool models_ran = false;
  std::unique_ptr<LawTrials> trials;
  int64_t min_runs = 0;
  absl::Duration time = absl::ZeroDuration();
  bool is_short() const { return trials->runs() < min_runs; }
};

// Fills in the common members of both kinds of checks from their trials.
template <typename Check>
void Describe(const LawTrials& trials, Check* check) {
  const LawCase& where = trials.law_case();
  check->sampling = where.sampling.name;
  check->draft_tokens = where.draft_tokens;
  check->length = where.length;
  check->runs = trials.runs();
  const Fit fit = trials.fit();
  check->statistic = fit.statistic;
  check->degrees = fit.degrees;
  check->p_value = fit.p_value;
}

class Prover {
 public:
  Prover(const EngineOptions& engine, const ProofOptions& options, Runtime* pair)
      : engine_(engine), options_(options), pair_(pair), start_(Instant::Now()) {}

  absl::Status Prepare();
  absl::StatusOr<LosslessProof> Prove();

 private:
  Instant TimeOf(double share) const { return start_ + share * options_.time; }
  // Reports progress. Returns whether less than `share` of the time has passed.
  bool GoOn(double share) const;

  absl::Status ReadPrompts();
  absl::Status CheckExactly(LosslessProof* proof);
  absl::Status CheckLaws(LosslessProof* proof);
  absl::Status AddLawTests(std::vector<LawTest>* tests);
  absl::Status AddLawTest(const ProofWorld& world, LawCase where, AcceptanceRule rule,
                          int64_t min_runs, std::vector<LawTest>* tests);
  absl::Status CheckFaults(LosslessProof* proof);
  absl::StatusOr<FaultCheck> SeekInLaw(const PlantedFault& fault, AcceptanceRule rule,
                                       double until);
  absl::StatusOr<FaultCheck> SeekExactly(const PlantedFault& fault);
  void Conclude(LosslessProof* proof) const;

  ExactOptions MakeExactOptions(absl::FunctionRef<bool()> go_on) const;
  absl::StatusOr<std::unique_ptr<LawTrials>> TrialsOf(const ProofWorld& world,
                                                      const LawCase& where);
  const LawCase& CaseOf(FaultShows shows) const { return fault_cases_[static_cast<int>(shows)]; }
  RandomSource NextSeeds() { return RandomSource(options_.seed).ForSequence(++num_seeds_); }

  const EngineOptions& engine_;
  const ProofOptions& options_;
  Runtime* pair_;
  const Instant start_;
  std::vector<std::vector<TokenId>> prompts_;
  // Models whose rows are computed once.
  std::unique_ptr<RememberedModel> target_;
  std::unique_ptr<RememberedRows> draft_;  // null without a draft model or head
  std::unique_ptr<Drafter> drafter_;       // on draft_
  // The worlds under test, with every row computed and with remembered rows. The sound ones are the
  // same without the planted fault.
  ProofWorld models_;
  ProofWorld remembered_;
  ProofWorld sound_models_;
  ProofWorld sound_remembered_;
  std::unique_ptr<PlantedWorld> planted_models_;
  std::unique_ptr<PlantedWorld> planted_remembered_;
  uint32_t num_seeds_ = 0;
  FaultCases fault_cases_;
  // The runs that each search for a fault took. The world under test is tested in the same cases.
  std::map<std::pair<FaultShows, AcceptanceRule>, int64_t> fault_runs_;
};

bool Prover::GoOn(double share) const {
  const Instant now = Instant::Now();
  if (options_.on_progress) {
    options_.on_progress(std::min(1.0, absl::FDivDuration(now - start_, options_.time)));
  }
  return now < TimeOf(share);
}

absl::Status Prover::ReadPrompts() {
  const int most = pair_->target->context_length() - 1;
  for (const std::string& text : options_.prompts) {
    ASSIGN_OR_RETURN(std::vector<TokenId> ids,
                     pair_->tokenizer->Encode(text, SpecialTokens::kParse));
    prompts_.push_back(pair_->tokenizer->WithTemplate(std::move(ids)));
  }
  prompts_.insert(prompts_.end(), options_.prompt_ids.begin(), options_.prompt_ids.end());
  for (size_t i = 0; i < prompts_.size(); ++i) {
    if (prompts_[i].empty()) {
      return absl::InvalidArgumentError(absl::StrCat("prompts: number ", i, " is empty"));
    }
    for (const TokenId id : prompts_[i]) {
      if (0 <= id && id < pair_->target->vocab_size()) continue;
      return absl::InvalidArgumentError(absl::StrCat("prompts: number ", i, " has token ", id,
                                                     ", allowed: below the vocabulary size of ",
                                                     pair_->target->vocab_size()));
    }
    if (pair_->has_head() && prompts_[i].size() < 2) {
      return absl::InvalidArgumentError(absl::StrCat(
          "prompts: number ", i, " has 1 token, and a draft head drafts after two or more"));
    }
    if (static_cast<int>(prompts_[i].size()) + 2 * options_.draft_tokens + 16 > most) {
      return absl::InvalidArgumentError(
          absl::StrCat("prompts: number ", i, " has ", prompts_[i].size(),
                       " tokens, too many for a context of ", most + 1));
    }
  }
  return absl::OkStatus();
}

absl::Status Prover::Prepare() {
  if (pair_->drafter == nullptr) {
    return absl::InvalidArgumentError(
        "drafter: must not be none, because the proof needs speculation");
  }
  RETURN_IF_ERROR(ReadPrompts());
  ASSIGN_OR_RETURN(target_, RememberedModel::Create(pair_->target.get(), pair_->target_cache.get(),
                                                    kRowBytes, pair_->has_head()));
  DrafterParts parts{.target_vocab_size = pair_->target->vocab_size(),
                     .chunk_tokens = pair_->chunk_tokens,
                     .mask_token = pair_->mask_token};
  if (pair_->has_head()) {
    draft_ =
        std::make_unique<RememberedHead>(RememberedHead::Parts{.head = pair_->draft.get(),
                                                               .target = pair_->target.get(),
                                                               .cache = pair_->target_cache.get(),
                                                               .backend = pair_->backend.get(),
                                                               .remembered = target_.get()},
                                         kRowBytes);
    parts.target = target_.get();
    parts.backend = target_->backend();
  } else if (pair_->draft != nullptr) {
    ASSIGN_OR_RETURN(
        draft_, RememberedModel::Create(pair_->draft.get(), pair_->draft_cache.get(), kRowBytes));
  }
  if (draft_ != nullptr) {
    parts.model = draft_.get();
    parts.cache = draft_->cache();
  }
  for (const std::vector<TokenId>& prompt : prompts_) {
    RETURN_IF_ERROR(target_->KeepPrompt(prompt));
    if (draft_ != nullptr) RETURN_IF_ERROR(draft_->KeepPrompt(prompt));
  }
  ASSIGN_OR_RETURN(drafter_, MakeDrafter(engine_.drafter, parts));
  models_ = {.target = pair_->target.get(),
             .target_cache = pair_->target_cache.get(),
             .drafter = pair_->drafter.get()};
  remembered_ = {
      .target = target_.get(), .target_cache = target_->cache(), .drafter = drafter_.get()};
  sound_models_ = models_;
  sound_remembered_ = remembered_;
  // The proof's generations draft from the text of earlier ones, as the engine's do. Laws of model
  // drafts are tested without this: the thousandth generation from a prompt would be drafted only
  // from memory, and faults of drawing would not be seen.
  models_.tenant = Tenants(engine_.draft_memory_bytes).Get(nullptr);
  if (pair_->draft == nullptr)
    remembered_.tenant = Tenants(engine_.draft_memory_bytes).Get(nullptr);
  if (options_.plant.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const PlantedFault* fault, FindPlantedFault(options_.plant));
  if (!fault->applies_to(*drafter_)) {
    return absl::InvalidArgumentError(absl::StrCat("plant: ", options_.plant,
                                                   " is not a fault that the drafter ",
                                                   std::string(drafter_->name()), " can have"));
  }
  planted_models_ = std::make_unique<PlantedWorld>(models_, *fault);
  planted_remembered_ = std::make_unique<PlantedWorld>(remembered_, *fault);
  models_ = planted_models_->world();
  remembered_ = planted_remembered_->world();
  return absl::OkStatus();
}

ExactOptions Prover::MakeExactOptions(absl::FunctionRef<bool()> go_on) const {
  int longest = 0;
  for (const auto& prompt : prompts_) longest = std::max<int>(longest, prompt.size());
  const int room = pair_->target->context_length() - longest;
  return {.prompts = prompts_,
          .settings = ExactSettings(),
          .draft_tokens = options_.draft_tokens,
          .max_tokens = std::min(48, room),
          .seed = options_.seed,
          .go_on = go_on};
}

absl::Status Prover::CheckExactly(LosslessProof* proof) {
  LanguageModel* plain = pair_->target.get();
  const auto until = [this](double share) { return [this, share] { return GoOn(share); }; };
  const auto rows_until = until(kExactUntil / 4);
  ASSIGN_OR_RETURN(ExactCheck rows, CheckRows(plain, models_.target, models_.target_cache,
                                              MakeExactOptions(rows_until)));
  proof->exact.push_back(std::move(rows));
  const auto outputs_until = until(kExactUntil * 3 / 4);
  ASSIGN_OR_RETURN(std::vector<ExactCheck> outputs,
                   CheckOutputs(plain, models_, MakeExactOptions(outputs_until)));
  std::move(outputs.begin(), outputs.end(), std::back_inserter(proof->exact));
  const auto state_until = until(kExactUntil);
  ASSIGN_OR_RETURN(ExactCheck state,
                   CheckDraftState(models_, sound_remembered_, MakeExactOptions(state_until)));
  proof->exact.push_back(std::move(state));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LawTrials>> Prover::TrialsOf(const ProofWorld& world,
                                                            const LawCase& where) {
  ASSIGN_OR_RETURN(TargetLaw law,
                   TargetLaw::Expand(target_.get(), where.prompt, where.sampling.params,
                                     {.length = where.length}));
  return std::make_unique<LawTrials>(world, std::make_shared<const TargetLaw>(std::move(law)),
                                     where, NextSeeds(), kBatch);
}

// Adds a test of `world` in this case and under this rule.
absl::Status Prover::AddLawTest(const ProofWorld& world, LawCase where, AcceptanceRule rule,
                                int64_t min_runs, std::vector<LawTest>* tests) {
  where.rule = rule;
  ASSIGN_OR_RETURN(auto trials, TrialsOf(world, where));
  tests->push_back(
      {.models_ran = &world == &models_, .trials = std::move(trials), .min_runs = min_runs});
  return absl::OkStatus();
}

// Adds tests of every kind of sampling under every rule and with plain decoding; some in which the
// models run in every round; and one for each case in which a fault was searched for, with twice
// the runs of that search.
absl::Status Prover::AddLawTests(std::vector<LawTest>* tests) {
  const std::vector<LawSetting>& settings = LawSettings();
  const auto where = [&](const LawSetting& setting, size_t prompt, bool drafts) {
    const int k = std::min(options_.draft_tokens, setting.max_draft_tokens);
    return LawCase{.prompt = prompts_[prompt % prompts_.size()],
                   .sampling = setting.sampling,
                   .draft_tokens = drafts ? k : 0,
                   .length = k + 1};
  };
  const AcceptanceRule rules[] = {AcceptanceRule::kToken, AcceptanceRule::kBlock,
                                  AcceptanceRule::kExactMatch};
  for (size_t i = 0; i < settings.size(); ++i) {
    for (size_t j = 0; j < std::size(rules); ++j) {
      RETURN_IF_ERROR(
          AddLawTest(remembered_, where(settings[i], i + j, true), rules[j], kMinRuns, tests));
    }
    RETURN_IF_ERROR(
        AddLawTest(remembered_, where(settings[i], i, false), rules[0], kMinRuns, tests));
  }
  for (size_t j = 0; j < std::size(rules); ++j) {
    RETURN_IF_ERROR(
        AddLawTest(models_, where(settings[j], j, true), rules[j], kMinRunsOfModels, tests));
  }
  for (const auto& [place, runs] : fault_runs_) {
    RETURN_IF_ERROR(AddLawTest(remembered_, CaseOf(place.first), place.second, 2 * runs, tests));
  }
  return absl::OkStatus();
}

absl::Status Prover::CheckLaws(LosslessProof* proof) {
  std::vector<LawTest> tests;
  RETURN_IF_ERROR(AddLawTests(&tests));
  TANDEM_CHECK(tests.size() <= kMaxLawTests);
  if (options_.runs > 0) {
    for (LawTest& test : tests) {
      RETURN_IF_ERROR(test.trials->Run(std::max(options_.runs, test.min_runs)));
      GoOn(1.0);
    }
  } else {
    // The tests get equal times. Those whose rows repeat get many runs.
    for (;;) {
      LawTest& test =
          *std::min_element(tests.begin(), tests.end(), [](const LawTest& a, const LawTest& b) {
            return a.is_short() != b.is_short() ? a.is_short() : a.time < b.time;
          });
      if (!GoOn(1.0) && !test.is_short()) break;
      const Instant start = Instant::Now();
      RETURN_IF_ERROR(test.trials->Run(test.models_ran ? kMinRunsOfModels : kSlice));
      test.time += Instant::Now() - start;
    }
  }
  std::vector<double> p_values;
  for (const LawTest& test : tests) p_values.push_back(test.trials->fit().p_value);
  const std::vector<double> adjusted = HolmAdjusted(p_values);
  for (size_t i = 0; i < tests.size(); ++i) {
    const LawTrials& trials = *tests[i].trials;
    const LawCase& where = trials.law_case();
    LawCheck check{.rule = where.draft_tokens == 0 ? "plain" : std::string(NameOf(where.rule)),
                   .prompt_tokens = static_cast<int>(where.prompt.size()),
                   .models_ran = tests[i].models_ran,
                   .accepted = trials.stats().AcceptanceRate(),
                   .adjusted_p = adjusted[i]};
    Describe(trials, &check);
    check.seen_variation = SeenVariation(
        check.runs, check.degrees, options_.error_rate / static_cast<double>(tests.size()), kPower);
    proof->laws.push_back(std::move(check));
  }
  return absl::OkStatus();
}

absl::StatusOr<FaultCheck> Prover::SeekInLaw(const PlantedFault& fault, AcceptanceRule rule,
                                             double until) {
  FaultCheck check{.fault = std::string(fault.name),
                   .what = std::string(fault.what),
                   .rule = std::string(NameOf(rule)),
                   .seen_by = "law"};
  LawCase where = CaseOf(fault.shows);
  where.rule = rule;
  const PlantedWorld planted(sound_remembered_, fault);
  ASSIGN_OR_RETURN(const auto trials, TrialsOf(planted.world(), where));
  // The fault counts as caught if the proof's own tests would have rejected it.
  const double limit = options_.error_rate / kMaxLawTests;
  const int64_t most = options_.runs > 0 ? options_.runs * kFaultPatience : kMaxRuns;
  for (int64_t next = kFirstFaultRuns; !check.caught; next *= 2) {
    next = std::min(next, most);
    while (trials->runs() < next) {
      RETURN_IF_ERROR(trials->Run(std::min(kSlice, next - trials->runs())));
      if (!GoOn(until) && trials->runs() >= kMinFaultRuns && options_.runs == 0) break;
    }
    Describe(*trials, &check);
    check.caught = check.p_value < limit;
    if (trials->runs() < next || next == most) break;
  }
  int64_t& runs = fault_runs_[{fault.shows, rule}];
  runs = std::max(runs, check.runs);
  return check;
}

absl::StatusOr<FaultCheck> Prover::SeekExactly(const PlantedFault& fault) {
  const bool in_draft = fault.seen_by == SeenBy::kProposals;
  FaultCheck check{.fault = std::string(fault.name),
                   .what = std::string(fault.what),
                   .seen_by = in_draft ? "draft" : "output"};
  const PlantedWorld planted(sound_models_, fault);
  const auto go_on = [] { return false; };  // one part of each kind is enough
  std::vector<ExactCheck> checks;
  if (in_draft) {
    ASSIGN_OR_RETURN(ExactCheck state,
                     CheckDraftState(planted.world(), sound_remembered_, MakeExactOptions(go_on)));
    checks.push_back(std::move(state));
  } else {
    ASSIGN_OR_RETURN(checks,
                     CheckOutputs(pair_->target.get(), planted.world(), MakeExactOptions(go_on)));
  }
  for (const ExactCheck& c : checks) {
    check.compared += c.compared;
    check.different += c.different;
  }
  check.caught = check.different > 0;
  return check;
}

absl::Status Prover::CheckFaults(LosslessProof* proof) {
  struct Part {
    const PlantedFault* fault;
    std::optional<AcceptanceRule> rule;
  };
  std::vector<Part> parts;
  for (const PlantedFault& fault : PlantedFaults()) {
    if (!fault.applies_to(*drafter_)) {
      proof->faults.push_back(
          {.fault = std::string(fault.name), .what = std::string(fault.what), .applies = false});
      continue;
    }
    if (fault.seen_by != SeenBy::kLaw) parts.push_back({&fault, std::nullopt});
    for (const AcceptanceRule rule : fault.rules) parts.push_back({&fault, rule});
  }
  ASSIGN_OR_RETURN(fault_cases_, FindFaultCases(prompts_, target_.get(), draft_.get(),
                                                drafter_.get(), TimeOf(kCasesUntil)));
  for (size_t i = 0; i < parts.size(); ++i) {
    // Time that one fault does not use is shared among the rest.
    const double now = absl::FDivDuration(Instant::Now() - start_, options_.time);
    const double until =
        now + std::max(kFaultsUntil - now, 0.0) / static_cast<double>(parts.size() - i);
    auto check = parts[i].rule.has_value() ? SeekInLaw(*parts[i].fault, *parts[i].rule, until)
                                           : SeekExactly(*parts[i].fault);
    RETURN_IF_ERROR(check.status());
    proof->faults.push_back(*std::move(check));
  }
  return absl::OkStatus();
}

void Prover::Conclude(LosslessProof* proof) const {
  const auto conclude = [proof](ProofVerdict verdict, std::string reason) {
    proof->verdict = verdict;
    proof->reason = std::move(reason);
  };
  for (const ExactCheck& check : proof->exact) {
    if (check.different == 0) continue;
    return conclude(ProofVerdict::kBroken,
                    absl::StrCat(check.name, ": ", check.different, " of ", check.compared,
                                 " differ, the first: ", check.first_difference));
  }
  double accepted = 0.0;
  for (const LawCheck& check : proof->laws) {
    accepted = std::max(accepted, check.accepted);
    if (check.adjusted_p >= options_.error_rate) continue;
    return conclude(ProofVerdict::kBroken,
                    absl::StrCat(check.rule, " at ", check.sampling, " does not follow the ",
                                 "target's law: adjusted p ", check.adjusted_p));
  }
  if (accepted == 0.0) {
    return conclude(ProofVerdict::kIncomplete, "no draft token was accepted in any test of a law");
  }
  for (const FaultCheck& check : proof->faults) {
    if (check.caught || !check.applies) continue;
    return conclude(ProofVerdict::kIncomplete,
                    absl::StrCat("the planted fault ", check.fault,
                                 check.rule.empty() ? "" : absl::StrCat(" (", check.rule, ")"),
                                 " was not seen"));
  }
  conclude(
      ProofVerdict::kLossless,
      "everything that must be equal is, no law is broken, and every planted fault was caught");
}

absl::StatusOr<LosslessProof> Prover::Prove() {
  LosslessProof proof;
  proof.target = engine_.target;
  if (pair_->draft != nullptr) proof.draft = engine_.draft;
  proof.drafter = std::string(pair_->drafter->name());
  proof.device = std::string(pair_->backend->description());
  proof.planted = options_.plant;
  proof.num_prompts = static_cast<int>(prompts_.size());
  proof.error_rate = options_.error_rate;
  RETURN_IF_ERROR(CheckExactly(&proof));
  RETURN_IF_ERROR(CheckFaults(&proof));
  RETURN_IF_ERROR(CheckLaws(&proof));
  Conclude(&proof);
  proof.time = Instant::Now() - start_;
  return proof;
}

}  // namespace

absl::Status ProofOptions::Validate() const {
  if (prompts.empty() && prompt_ids.empty()) {
    return absl::InvalidArgumentError("prompts: must not be empty");
  }
  if (draft_tokens < 1 || draft_tokens > kMaxDraftTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("draft_tokens: ", draft_tokens, " is not from 1 to ", kMaxDraftTokens));
  }
  if (runs < 0 || runs > kMaxRuns / kFaultPatience) {
    return absl::InvalidArgumentError(
        absl::StrCat("runs: ", runs, " is not from 0 to ", kMaxRuns / kFaultPatience));
  }
  if (time <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("time: must be positive");
  }
  if (!(error_rate > 0.0 && error_rate < 1.0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("error_rate: ", error_rate, " is not between 0 and 1"));
  }
  if (!plant.empty()) {
    if (const auto fault = FindPlantedFault(plant); !fault.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("plant: ", fault.status().message()));
    }
  }
  return absl::OkStatus();
}

std::string_view NameOf(ProofVerdict verdict) {
  constexpr std::string_view kNames[] = {"lossless", "broken", "incomplete"};
  return kNames[static_cast<int>(verdict)];
}

absl::StatusOr<LosslessProof> ProveLossless(const EngineOptions& engine,
                                            const ProofOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  EngineOptions roomy = engine;
  roomy.max_batch = std::max(engine.max_batch, kBatch);
  ASSIGN_OR_RETURN(Runtime pair, Runtime::Load(roomy));
  Prover prover(roomy, options, &pair);
  RETURN_IF_ERROR(prover.Prepare());
  return prover.Prove();
}

std::vector<FaultName> PlantableFaults() {
  std::vector<FaultName> names;
  for (const PlantedFault& fault : PlantedFaults()) names.push_back({fault.name, fault.what});
  return names;
}

}  // namespace tandem
