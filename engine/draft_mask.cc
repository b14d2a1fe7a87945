#include "engine/draft_mask.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "model/sampling.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

constexpr char kField[] = "draft_mask_token";
// The trial of a mask: tokens written, and how many of them it must have predicted. Any token in
// place of the mask predicts some, because texts repeat themselves (half of the shipped draft's ids
// 3 of 32 or more). So a mask must predict twice as many as another id does.
constexpr int kTrialTokens = 32;
constexpr int kMinRight = 3;
constexpr char kTrialText[] = "Once upon a time there was";

bool NamesId(const EngineOptions& options) { return options.draft_mask_token > MaskToken::kNone; }

absl::Status RefuseMask(const EngineOptions& options, absl::string_view what) {
  return FieldError(kField, absl::StrCat(NameOf(options.draft_mask_token), ": ", what));
}

// The opening of the trial's text, in those of the draft's tokens that it can read; not empty.
absl::StatusOr<std::vector<TokenId>> TrialPrompt(const Runtime& runtime) {
  ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                   runtime.tokenizer->Encode(kTrialText, SpecialTokens::kPlain));
  tokens = runtime.tokenizer->WithTemplate(tokens);
  std::vector<TokenId> read;
  for (const TokenId token : tokens) {
    const absl::Span<const TokenId> reading = runtime.vocabulary == nullptr
                                                  ? absl::MakeConstSpan(&token, 1)
                                                  : runtime.vocabulary->Reading(token);
    absl::c_copy_if(reading, std::back_inserter(read),
                    [&runtime](TokenId id) { return 0 <= id && id < runtime.draft->vocab_size(); });
  }
  if (read.empty()) read.push_back(0);
  return read;
}

TokenId LikeliestIn(const MatrixView& logits, int64_t row, const LanguageModel& model) {
  const float* values = static_cast<const float*>(logits.data) + row * logits.stride;
  const TokenId best = ArgMax({values, static_cast<size_t>(logits.cols)});
  const absl::Span<const TokenId> ids = model.head_ids();
  return best < 0 || ids.empty() ? best : ids[best];
}

// Returns how many of kTrialTokens tokens a mask predicted a token ahead.
absl::StatusOr<int> NumPredicted(const Runtime& runtime, TokenId mask) {
  LanguageModel* const model = runtime.draft.get();
  ASSIGN_OR_RETURN(std::vector<TokenId> unread, TrialPrompt(runtime));
  KvSequence kv = runtime.draft_cache->NewSequence();
  int num_right = 0;
  TokenId predicted = kNoMaskToken;
  for (int i = 0; i <= kTrialTokens; ++i) {
    const int length = kv.length() + static_cast<int>(unread.size());
    if (length >= model->context_length()) break;
    unread.push_back(mask);
    const ForwardRequest pass{.tokens = unread, .kv = &kv, .num_logits = 2};
    ASSIGN_OR_RETURN(const MatrixView logits, model->Forward({&pass, 1}));
    kv.Truncate(length);
    const TokenId next = LikeliestIn(logits, 0, *model);
    if (next < 0) break;
    if (i > 0 && next == predicted) ++num_right;
    predicted = LikeliestIn(logits, 1, *model);
    unread = {next};
  }
  return num_right;
}

}  // namespace

bool DraftsInOnePass(const EngineOptions& options, const ModelConfig& draft) {
  if (draft.is_draft_head() || IsSelfDraft(options.draft)) return false;
  if (options.draft_mask_token == MaskToken::kAuto) return draft.mask_token != kNoMaskToken;
  return NamesId(options);
}

absl::Status CheckMaskOption(const EngineOptions& options, DraftForm form) {
  if (!NamesId(options)) return absl::OkStatus();
  if (form == DraftForm::kNone) return RefuseMask(options, "needs a draft model, but none is used");
  if (form == DraftForm::kHead) {
    return RefuseMask(options,
                      absl::StrCat("needs a draft model, but ", options.draft, " is a draft head"));
  }
  if (!IsSelfDraft(options.draft)) return absl::OkStatus();
  return RefuseMask(
      options, absl::StrCat("needs a draft model of its own, but the draft is ", options.draft));
}

absl::StatusOr<TokenId> ChooseMaskToken(const EngineOptions& options, const Runtime& runtime) {
  if (runtime.draft == nullptr) return kNoMaskToken;
  const ModelConfig& config = runtime.draft->config();
  if (!DraftsInOnePass(options, config)) {
    if (options.draft_mask_token == MaskToken::kAuto && !IsSelfDraft(options.draft) &&
        absl::StrContains(absl::AsciiStrToLower(options.draft), "pard")) {
      Log(LogLevel::kWarning,
          absl::StrCat(options.draft,
                       ": names no mask token, so it drafts a token in each pass; if it was "
                       "trained for parallel drafts, give --draft-mask-token its id"));
    }
    return kNoMaskToken;
  }
  if (!NamesId(options)) return config.mask_token;
  const auto mask = static_cast<TokenId>(options.draft_mask_token);
  if (mask >= config.vocab_size) {
    return RefuseMask(
        options, absl::StrCat("must be an id of the draft, from 0 to ", config.vocab_size - 1));
  }
  if (absl::c_linear_search(config.eos_token_ids, mask)) {
    return RefuseMask(options, "ends a text, so it cannot be a mask");
  }
  if (mask == config.mask_token) return mask;
  const TokenId other = (mask + config.vocab_size / 2) % config.vocab_size;
  ASSIGN_OR_RETURN(const int num_right, NumPredicted(runtime, mask));
  ASSIGN_OR_RETURN(const int by_other, NumPredicted(runtime, other));
  if (num_right >= std::max(kMinRight, 2 * by_other)) return mask;
  return RefuseMask(options,
                    absl::StrCat("the draft was not trained for this mask (", num_right, " of ",
                                 kTrialTokens, " tokens right, ", by_other, " with the id ", other,
                                 " in its place); \"none\" drafts serially"));
}

}  // namespace tandem
