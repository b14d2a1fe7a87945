#include "draft/model_drafter.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/check.h"
#include "base/hash_map.h"
#include "base/status_macros.h"
#include "draft/tenants.h"

namespace tandem {
struct ModelDrafter::State final : DraftState {
  explicit State(std::shared_ptr<States> all_states) : all(std::move(all_states)) {
    all->push_back(this);
  }
  ~State() override { all->erase(std::find(all->begin(), all->end(), this)); }

  std::shared_ptr<States> all;
  KvSequence kv;
  // With a vocabulary map: the committed text in the draft's tokens, and the number of them for the
  // first i target tokens. Tokens drafted since then map one to one.
  std::vector<TokenId> text;
  std::vector<int> ends = {0};

  int num_read() const { return static_cast<int>(ends.size()) - 1; }
  static State& Of(DraftState* state) { return *static_cast<State*>(state); }
};

struct ModelDrafter::Draft : OngoingDraft {
  using OngoingDraft::OngoingDraft;

  State* state = nullptr;
  KvSequence* kv = nullptr;
  absl::Span<const TokenId> text;  // the context in the draft's tokens
  int num_on_device = 0;           // tokens drawn on the device; 0 if all are drawn on the host
  int last_slot = -1;              // the sampler's slot that drew the latest of them
  // With a mask token: the unread tokens and the masks after them.
  std::vector<TokenId> rows{};

  // Pages that passes still have to take until the last token has been drawn on the device.
  int pages_to_take() const {
    return num_on_device == 0 ? 0
                              : kv->PagesToExtend(static_cast<int>(text.size()) + num_on_device -
                                                  1 - kv->length());
  }
};

ModelDrafter::ModelDrafter(LanguageModel* model, PagedKvCache* cache, int target_vocab_size,
                           int chunk_tokens, const VocabularyMap* vocabulary, TokenId mask_token)
    : model_(model),
      cache_(cache),
      target_vocab_size_(target_vocab_size),
      chunk_tokens_(chunk_tokens),
      vocabulary_(vocabulary),
      mask_token_(mask_token),
      drawer_(model, target_vocab_size, vocabulary) {
  TANDEM_CHECK(vocabulary == nullptr || vocabulary->target_size() == target_vocab_size);
  TANDEM_CHECK(mask_token == kNoMaskToken || (0 <= mask_token && mask_token < model->vocab_size()));
}

absl::Span<const TokenId> ModelDrafter::Read(State* state,
                                             absl::Span<const TokenId> context) const {
  if (vocabulary_ == nullptr) return context;
  for (const TokenId token : context.subspan(std::min<size_t>(state->num_read(), context.size()))) {
    const absl::Span<const TokenId> reading = vocabulary_->Reading(token);
    state->text.insert(state->text.end(), reading.begin(), reading.end());
    state->ends.push_back(static_cast<int>(state->text.size()));
  }
  return absl::MakeConstSpan(state->text).first(state->ends[context.size()]);
}

absl::Span<const TokenId> ModelDrafter::ReadDrafted(const TokenId& token) const {
  return vocabulary_ == nullptr ? absl::MakeConstSpan(&token, 1) : vocabulary_->Reading(token);
}

// The final length of the text is not known here, so the cache uses the variant for the prompt.
// Drafts beyond it are worse, not wrong.
KvSequence ModelDrafter::Begin(absl::Span<const TokenId> prompt, CacheSalt salt) {
  return cache_->NewSequenceWithPrefix(
      prompt, model_->cache_variant(static_cast<int>(prompt.size())), std::move(salt));
}

std::optional<Drafter::CachedText> ModelDrafter::TextOf(DraftState* state,
                                                        absl::Span<const TokenId> tokens) {
  State& s = State::Of(state);
  const absl::Span<const TokenId> read = Read(&s, tokens);
  const int variant =
      s.kv.length() > 0 ? s.kv.variant() : model_->cache_variant(static_cast<int>(read.size()));
  return CachedText{.tokens = read, .variant = variant, .salt = s.kv.salt()};
}

std::unique_ptr<DraftState> ModelDrafter::NewStateOf(DrafterKind /*kind*/,
                                                     absl::Span<const TokenId> prompt,
                                                     std::shared_ptr<const Tenant> tenant) {
  auto state = std::make_unique<State>(states_);
  state->kv = Begin(Read(state.get(), prompt), tenant == nullptr ? nullptr : tenant->salt);
  return state;
}

void ModelDrafter::AdoptLongerPrefix(DraftState* state, absl::Span<const TokenId> tokens,
                                     const KvSequence& /*target_kv*/) {
  State& s = State::Of(state);
  const absl::Span<const TokenId> read = Read(&s, tokens);
  if (s.kv.length() == 0) {
    s.kv = Begin(read, s.kv.salt());
    return;
  }
  KvSequence found = cache_->NewSequenceWithPrefix(read, s.kv.variant(), s.kv.salt());
  if (found.length() > s.kv.length()) s.kv = std::move(found);
}

void ModelDrafter::Rollback(DraftState* state, int length) {
  State& s = State::Of(state);
  int kept = length;  // of the draft's tokens
  if (vocabulary_ != nullptr) {
    const int num_drafted = std::max(length - s.num_read(), 0);
    s.ends.resize(length - num_drafted + 1);
    s.text.resize(s.ends.back());
    kept = s.ends.back() + num_drafted;
  }
  s.kv.Truncate(std::min(s.kv.length(), kept));
}

int ModelDrafter::NumCached(const DraftState& state) const {
  return static_cast<const State&>(state).kv.length();
}

void ModelDrafter::Publish(DraftState* state, absl::Span<const TokenId> tokens) {
  State& s = State::Of(state);
  cache_->Publish(Read(&s, tokens), &s.kv);
}

int ModelDrafter::Room(const KvSequence& kv, absl::Span<const TokenId> text) const {
  // A partial prompt may be shorter than the prefix that the cache adopted.
  const size_t num_read = std::min<size_t>(kv.length(), text.size());
  const bool can_read = absl::c_all_of(text.subspan(num_read), [this](TokenId token) {
    return 0 <= token && token < model_->vocab_size();
  });
  if (!can_read || text.empty()) return 0;
  // Draft token j, from 0 on, needs a context of text.size() + j tokens.
  return std::max(model_->context_length() - static_cast<int>(text.size()) + 1, 0);
}

std::vector<DraftOption> ModelDrafter::Options(DraftState* state,
                                               absl::Span<const TokenId> context) {
  State& s = State::Of(state);
  const absl::Span<const TokenId> text = Read(&s, context);
  const int room = std::min(Room(s.kv, text), kMaxDraftTokens);
  if (room == 0) return {};
  const int num_unread = std::max(static_cast<int>(text.size()) - s.kv.length(), 1);
  const int64_t lacking = s.kv.PagesToExtend(num_unread) - cache_->num_available_pages();
  if (lacking > 0 && lacking > PagesOfYounger(s)) {
    s.kv.Truncate(0);  // leaves the pages to older states
    return {};
  }
  return {{.source = DraftSource::kModel,
           .max_tokens = room,
           .num_unread = num_unread,
           .can_stop = model_->device_rows().sampler == nullptr,
           .in_one_pass = drafts_in_one_pass()}};
}

int64_t ModelDrafter::PagesOfYounger(const State& state) const {
  HashSet<PageId> pages;
  auto it = states_->rbegin();
  for (; *it != &state; ++it) pages.insert((*it)->kv.pages().begin(), (*it)->kv.pages().end());
  for (; it != states_->rend(); ++it) {
    for (const PageId page : (*it)->kv.pages()) pages.erase(page);
  }
  return static_cast<int64_t>(pages.size());
}

// Finds pages for the unread tokens of each draft, in order, and evicts younger states where pages
// run out. Drafts without enough pages end.
void ModelDrafter::MakeRoom(absl::Span<Draft> drafts) {
  int64_t taken = 0;
  for (Draft& draft : drafts) {
    if (draft.ended) continue;
    const int num_unread = static_cast<int>(draft.text.size()) - draft.kv->length();
    const int64_t pages = draft.kv->PagesToExtend(std::max(num_unread, 0));
    for (auto it = states_->rbegin();
         *it != draft.state && taken + pages > cache_->num_available_pages(); ++it) {
      (*it)->kv.Truncate(0);
      for (Draft& other : drafts) other.ended = other.ended || other.state == *it;
    }
    draft.ended = taken + pages > cache_->num_available_pages();
    if (!draft.ended) taken += pages;
  }
}

absl::Status ModelDrafter::CheckIntegrity() const {
  std::vector<const KvSequence*> sequences;
  for (const State* state : *states_) sequences.push_back(&state->kv);
  return cache_->CheckIntegrity(sequences);
}

absl::Status ModelDrafter::Propose(absl::Span<const DraftRequest> requests,
                                   absl::Span<Proposal* const> proposals) {
  std::vector<Draft> drafts;
  drafts.reserve(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    State& state = State::Of(requests[i].state);
    const absl::Span<const TokenId> text = Read(&state, requests[i].context);
    const int room = Room(state.kv, text);
    // The draft's context limits the number of tokens.
    Draft& draft =
        drafts.emplace_back(&requests[i], proposals[i], std::min(requests[i].granted, room));
    draft.state = &state;
    draft.kv = &state.kv;
    draft.text = text;
    draft.ended = room == 0;
    draft.in_one_pass = drafts_in_one_pass();
    // If the newest tokens have an empty reading, read the last one again: a step needs a row.
    if (draft.wants_more() && state.kv.length() >= static_cast<int>(text.size())) {
      state.kv.Truncate(static_cast<int>(text.size()) - 1);
    }
  }
  MakeRoom(absl::MakeSpan(drafts));
  RETURN_IF_ERROR(CatchUp(absl::MakeSpan(drafts)));
  std::vector<int> lengths_before;
  for (const Draft& draft : drafts) lengths_before.push_back(draft.kv->length());
  if (drafts_in_one_pass()) {
    AddMasks(absl::MakeSpan(drafts));
    absl::Status status = DrawInOnePass(absl::MakeSpan(drafts));
    for (const Draft& draft : drafts) {
      draft.kv->Truncate(std::min(draft.kv->length(), static_cast<int>(draft.text.size())));
    }
    return status;
  }
  absl::Status status = DrawTokens(absl::MakeSpan(drafts));
  if (!status.ok()) {
    for (size_t i = 0; i < drafts.size(); ++i) drafts[i].kv->Truncate(lengths_before[i]);
  }
  return status;
}

// Appends to the unread tokens of each draft as many masks as it wants, or as fit into the pages
// that the unread tokens of all drafts leave.
void ModelDrafter::AddMasks(absl::Span<Draft> drafts) {
  int64_t free_pages = cache_->num_available_pages();
  for (Draft& draft : drafts) {
    if (!draft.wants_more()) continue;
    const absl::Span<const TokenId> unread = draft.text.subspan(draft.kv->length());
    draft.rows.assign(unread.begin(), unread.end());
    free_pages -= draft.kv->PagesToExtend(static_cast<int>(unread.size()));
  }
  for (Draft& draft : drafts) {
    if (draft.rows.empty()) continue;
    const int num_unread = static_cast<int>(draft.rows.size());
    const int pages_of_unread = draft.kv->PagesToExtend(num_unread);
    const auto pages_of_masks = [&] {
      return draft.kv->PagesToExtend(num_unread + draft.max_tokens - 1) - pages_of_unread;
    };
    while (draft.max_tokens > 1 && pages_of_masks() > free_pages) --draft.max_tokens;
    free_pages -= pages_of_masks();
    draft.rows.resize(num_unread + draft.max_tokens - 1, mask_token_);
  }
}

// Reads the tokens that the caches lack, in chunks. Requests that want tokens leave their last
// chunk to the first step, which needs its logits.
absl::Status ModelDrafter::CatchUp(absl::Span<Draft> drafts) {
  for (Draft& draft : drafts) {
    if (draft.ended) continue;
    for (;;) {
      const int pending = static_cast<int>(draft.text.size()) - draft.kv->length();
      const int num_masks = drafts_in_one_pass() ? draft.max_tokens - 1 : 0;
      const int left_for_step = draft.wants_more() ? std::max(chunk_tokens_ - num_masks, 1) : 0;
      if (pending <= left_for_step) break;
      const int count = std::min(pending - std::min(left_for_step, 1), chunk_tokens_);
      const ForwardRequest pass{
          .tokens = draft.text.subspan(draft.kv->length(), count), .kv = draft.kv, .num_logits = 0};
      const absl::Status status = model_->Forward({&pass, 1}).status();
      if (absl::IsResourceExhausted(status)) {
        draft.ended = true;
        break;
      }
      RETURN_IF_ERROR(status);
    }
  }
  return absl::OkStatus();
}

// The tasks of the device's sampler, in the order of passes.
struct ModelDrafter::DeviceTasks {
  std::vector<RowTask> rows;
  std::vector<SlotTask> slots;      // one per draft and token
  std::vector<Draft*> drafts;       // the draft of each slot
  std::vector<int> rows_of_passes;  // the number of `rows` for each pass
};

bool ModelDrafter::StaysOnDevice(const Draft& draft) {
  return vocabulary_ == nullptr && model_->head_ids().empty() &&
         model_->device_rows().sampler != nullptr && draft.request->sampling->takes_row();
}

// Decides which tokens are drawn on the device: as many as there are pages and memory for.
void ModelDrafter::PlanOnDevice(absl::Span<Draft> drafts) {
  rows_.BeginRound();
  const int vocab_size = std::min(model_->head_tokens(), target_vocab_size_);
  int free_pages = cache_->num_available_pages();
  for (int slot = 0; slot < kMaxDraftTokens; ++slot) {
    for (Draft& draft : drafts) {
      const bool wants = draft.num_on_device == slot && draft.wants_more() &&
                         slot < draft.max_tokens && StaysOnDevice(draft);
      if (!wants) continue;
      const int num_read = static_cast<int>(draft.text.size()) - draft.kv->length() + slot;
      const int pages = draft.kv->PagesToExtend(num_read) -
                        (slot > 0 ? draft.kv->PagesToExtend(num_read - 1) : 0);
      const bool is_greedy = draft.request->sampling->is_greedy();
      Distribution* const row = draft.proposal->DistributionAt(slot);
      const bool fits =
          pages <= free_pages &&
          (is_greedy || rows_.Put(model_->device_rows().backend, vocab_size, row).ok());
      draft.ended = slot == 0 && !fits;
      if (!fits) continue;
      free_pages -= pages;
      ++draft.num_on_device;
    }
  }
}

// Returns the tokens that a draft reads to draw its token `slot`.
absl::Span<const TokenId> ModelDrafter::TokensOfPass(const Draft& draft, int slot) const {
  static constexpr TokenId kAny = 0;  // a placeholder: the token is on the device
  if (slot == 0) return draft.text.subspan(draft.kv->length());
  return draft.num_on_device > 0 ? absl::MakeConstSpan(&kAny, 1)
                                 : ReadDrafted(draft.proposal->tokens.back());
}

// Returns the drafts that draw their token `slot` in this pass. Drafts on the device come first, so
// that the places of their rows are known before the first pass. The others get the remaining
// pages, in order, and end when there are none left.
std::vector<ModelDrafter::Draft*> ModelDrafter::DraftsOfPass(absl::Span<Draft> drafts, int slot) {
  std::vector<Draft*> active;
  int free_pages = cache_->num_available_pages();
  for (Draft& draft : drafts) {
    free_pages -= draft.pages_to_take();
    if (draft.num_on_device > slot) active.push_back(&draft);
  }
  for (Draft& draft : drafts) {
    if (draft.num_on_device > 0 || !draft.wants_more()) continue;
    const int num_read = static_cast<int>(TokensOfPass(draft, slot).size());
    free_pages -= draft.kv->PagesToExtend(num_read);
    draft.ended = free_pages < 0;
    if (!draft.ended) active.push_back(&draft);
  }
  return active;
}

// Makes the sampler's tasks. Call after the first pass: later passes put their rows in the same
// places.
ModelDrafter::DeviceTasks ModelDrafter::TasksOf(absl::Span<Draft> drafts) {
  DeviceTasks tasks;
  const DeviceRows rows = model_->device_rows();
  const int vocab_size = std::min(model_->head_tokens(), target_vocab_size_);
  const auto add = [&](Draft* draft, int slot, int row) {
    SlotTask task{.target = LogitsOf(rows, row), .target_size = vocab_size};
    if (draft->request->sampling->is_greedy()) {
      task.draw = SlotDraw::kLargest;
    } else {
      float* const probs = DeviceProbs(*draft->proposal->DistributionAt(slot));
      tasks.rows.push_back(
          DistributionTask(rows, row, vocab_size, draft->SamplingFor(slot), probs));
      task.target = probs;
      SetNoise(draft->request->random, draft->PlaceOf(slot), &task);
    }
    tasks.slots.push_back(task);
    tasks.drafts.push_back(draft);
  };
  if (drafts_in_one_pass()) {
    int row = 0;
    for (Draft& draft : drafts) {
      for (int slot = 0; slot < draft.num_on_device; ++slot) add(&draft, slot, row++);
    }
    tasks.rows_of_passes = {static_cast<int>(tasks.rows.size())};
    return tasks;
  }
  for (int slot = 0; slot < kMaxDraftTokens; ++slot) {
    const size_t before = tasks.rows.size();
    int row = 0;
    for (Draft& draft : drafts) {
      if (draft.num_on_device > slot) add(&draft, slot, row++);
    }
    tasks.rows_of_passes.push_back(static_cast<int>(tasks.rows.size() - before));
  }
  return tasks;
}

// Draws all tokens of all drafts: token i of each from the logits of pass i. A token drawn on the
// device is read there by the next pass, so the host enqueues all passes without waiting, and
// collects the tokens at the end.
absl::Status ModelDrafter::DrawTokens(absl::Span<Draft> drafts) {
  PlanOnDevice(drafts);
  DeviceTasks tasks;
  int num_slots = 0;
  for (int slot = 0;; ++slot) {
    const std::vector<Draft*> active = DraftsOfPass(drafts, slot);
    if (active.empty()) break;
    std::vector<ForwardRequest> passes;
    int num_on_device = 0;
    for (Draft* draft : active) {
      ForwardRequest pass{.tokens = TokensOfPass(*draft, slot), .kv = draft->kv};
      if (draft->num_on_device > 0) {
        pass.to_host = LogitsToHost::kNothing;
        pass.drawn_by = draft->last_slot;
        draft->last_slot = num_slots++;
        ++num_on_device;
      }
      passes.push_back(pass);
    }
    ASSIGN_OR_RETURN(const MatrixView logits, model_->Forward(passes));
    if (num_on_device > 0) {
      Sampler* const sampler = model_->device_rows().sampler;
      if (slot == 0) {
        tasks = TasksOf(drafts);
        RETURN_IF_ERROR(sampler->Prepare(tasks.rows, tasks.slots));
      }
      sampler->Run(tasks.rows_of_passes[slot], num_on_device);
    }
    for (size_t i = num_on_device; i < active.size(); ++i) {
      const float* row = static_cast<const float*>(logits.data) + i * logits.stride;
      const absl::Span<const float> draft_row(row, static_cast<size_t>(logits.cols));
      if (!drawer_.DrawNext(draft_row, active[i])) active[i]->ended = true;
    }
  }
  if (tasks.slots.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CollectDrawn(tasks));
  for (Draft& draft : drafts) {
    if (draft.num_on_device == 0) continue;
    // Drop rows read after an invalid row: their tokens are meaningless.
    const int num_read = static_cast<int>(draft.text.size()) + draft.num_tokens();
    draft.kv->Truncate(std::min(draft.kv->length(), num_read));
  }
  return absl::OkStatus();
}

// Draws all tokens of all drafts from the rows of one pass. Drafts on the device come first, so
// that the sampler's rows are the first ones.
absl::Status ModelDrafter::DrawInOnePass(absl::Span<Draft> drafts) {
  PlanOnDevice(drafts);
  std::vector<Draft*> active;
  for (const bool on_device : {true, false}) {
    for (Draft& draft : drafts) {
      if (draft.rows.empty() || !draft.wants_more()) continue;
      if ((draft.num_on_device > 0) == on_device) active.push_back(&draft);
    }
  }
  if (active.empty()) return absl::OkStatus();
  std::vector<ForwardRequest> passes;
  for (Draft* draft : active) {
    const bool on_device = draft->num_on_device > 0;
    if (on_device) {
      draft->rows.resize(draft->rows.size() - (draft->max_tokens - draft->num_on_device));
      draft->max_tokens = draft->num_on_device;
    }
    draft->proposal->num_slots = draft->max_tokens;
    passes.push_back({.tokens = draft->rows,
                      .kv = draft->kv,
                      .num_logits = draft->max_tokens,
                      .to_host = on_device ? LogitsToHost::kNothing : LogitsToHost::kWhole});
  }
  ASSIGN_OR_RETURN(const MatrixView logits, model_->Forward(passes));
  const DeviceTasks tasks = active.front()->num_on_device > 0 ? TasksOf(drafts) : DeviceTasks();
  const int num_on_device = static_cast<int>(tasks.slots.size());
  if (num_on_device > 0) {
    Sampler* const sampler = model_->device_rows().sampler;
    RETURN_IF_ERROR(sampler->Prepare(tasks.rows, tasks.slots));
    sampler->Run(tasks.rows_of_passes.front(), num_on_device);
  }
  int first_row = num_on_device;
  for (Draft* draft : active) {
    if (draft->num_on_device > 0) continue;
    bool goes_on = true;
    for (int slot = 0; goes_on && slot < draft->max_tokens; ++slot) {
      const float* row =
          static_cast<const float*>(logits.data) + (first_row + slot) * logits.stride;
      goes_on = drawer_.DrawNext({row, static_cast<size_t>(logits.cols)}, draft);
    }
    first_row += draft->max_tokens;
  }
  if (num_on_device > 0) RETURN_IF_ERROR(CollectDrawn(tasks));
  for (Draft* draft : active) draft->proposal->num_steps = 1;
  return absl::OkStatus();
}

// Copies the tokens that were drawn on the device to the proposals. A draft ends at a row that is
// not a distribution.
absl::Status ModelDrafter::CollectDrawn(const DeviceTasks& tasks) {
  std::vector<RowState> states(tasks.rows.size());
  std::vector<SlotAnswer> answers(tasks.slots.size());
  RETURN_IF_ERROR(
      model_->device_rows().sampler->Collect(absl::MakeSpan(states), absl::MakeSpan(answers)));
  auto state = states.begin();
  for (size_t i = 0; i < answers.size(); ++i) {
    Draft& draft = *tasks.drafts[i];
    const bool is_greedy = draft.request->sampling->is_greedy();
    const bool is_row = is_greedy || *state++ == RowState::kDistribution;
    const TokenId drawn = answers[i].drawn;
    draft.ended = draft.ended || !is_row || drawn < 0;
    if (draft.ended) continue;
    if (is_greedy) *draft.proposal->NextDistribution() = {.only = drawn};
    draft.proposal->tokens.push_back(drawn);
  }
  return absl::OkStatus();
}

}  // namespace tandem
