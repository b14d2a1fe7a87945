#include "engine/prompt_transfer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/guard.h"
#include "base/instant.h"
#include "base/log.h"
#include "base/net/secret.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/utf8.h"
#include "engine/pool_identity.h"
#include "tandem/field_error.h"
#include "tandem/parameter.h"

namespace tandem {
namespace {

// Maximum bytes of a prompt's pages that have arrived and wait to be inserted into a cache.
constexpr size_t kMaxFetchedBytes = size_t{64} << 20;
constexpr size_t kLongestName = 256;  // of leases and hosts

absl::Status Refusal(absl::string_view field, absl::string_view why) {
  return FieldError(absl::StrCat("kv_transfer_params.", field), why);
}

absl::Status CheckName(absl::string_view field, const std::string& name) {
  if (!name.empty() && name.size() <= kLongestName) return absl::OkStatus();
  return Refusal(field,
                 absl::StrCat("must have from 1 to ", kLongestName, " bytes, got ", name.size()));
}

// Whether a text has the form of NewRandomName's.
bool IsRandomName(absl::string_view text) {
  return text.size() == 32 && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(c) || ('a' <= c && c <= 'f');
         });
}

bool IsWorkersName(absl::string_view name) {
  return absl::ConsumePrefix(&name, "w-") && IsRandomName(name);
}

// The name between workers of a lease that clients of `tenant` know by `name`.
std::string LeaseOf(const std::string& tenant, const std::string& name) {
  if (IsWorkersName(name)) return name;
  const PartHasher::Digest digest = PartHasher().Add(tenant).Add(name).Finish();
  return absl::StrCat("c-", absl::BytesToHexString(View(absl::MakeConstSpan(digest))));
}

}  // namespace

absl::StatusOr<std::optional<HostAndPort>> ParseTransferAddress(absl::string_view text) {
  if (text.empty()) return std::nullopt;
  return ParseHostAndPort(text, "kv_transfer");
}

SessionTransfer::~SessionTransfer() {
  if (offered_ != nullptr) offered_->Release(lease_);
}

absl::StatusOr<std::unique_ptr<PromptTransfer>> PromptTransfer::Open(const EngineOptions& options,
                                                                     std::vector<PoolId> pools) {
  ASSIGN_OR_RETURN(const auto address, ParseTransferAddress(options.kv_transfer));
  if (!address.has_value()) return nullptr;
  ASSIGN_OR_RETURN(
      std::unique_ptr<PageTransfer> transfer,
      PageTransfer::Open({.host = address->host,
                          .port = address->port,
                          .secret = options.kv_transfer_secret,
                          .peers = options.kv_transfer_peers,
                          .fabric = options.kv_transfer_fabric,
                          .build = ThisBuild(),
                          .pools = std::move(pools),
                          .offered = {.max_bytes = static_cast<size_t>(options.kv_transfer_bytes),
                                      .lease = absl::Seconds(options.kv_transfer_lease_seconds)}}));
  Log(LogLevel::kInfo, absl::StrCat("kv transfer: engine ", transfer->engine_id(), " at ",
                                    transfer->host(), ":", transfer->port()));
  return std::make_unique<PromptTransfer>(std::move(transfer));
}

PromptTransfer::~PromptTransfer() {
  for (const Reader& reader : readers_) reader.fetch->Cancel();
  transfer_.reset();  // ends every read
  for (Reader& reader : readers_) reader.thread.join();
}

absl::StatusOr<std::shared_ptr<SessionTransfer>> PromptTransfer::Begin(
    const Request& request) const {
  const KvTransferParams& params = request.kv_transfer_params;
  if (params.do_remote_decode && params.do_remote_prefill) {
    return FieldError("kv_transfer_params",
                      "do_remote_decode and do_remote_prefill cannot both be true");
  }
  std::shared_ptr<SessionTransfer> session(new SessionTransfer);
  session->request_id_ = request.request_id;
  session->name_ = params.remote_request_id;
  if (params.do_remote_decode) {
    if (IsWorkersName(session->name_)) {
      return Refusal("remote_request_id",
                     "must not be w- and 32 hexadecimal digits: so workers name leases");
    }
    if (session->name_.empty()) session->name_ = absl::StrCat("w-", NewRandomName());
    RETURN_IF_ERROR(CheckName("remote_request_id", session->name_));
    session->lease_ = LeaseOf(request.cache_salt, session->name_);
    if (!transfer_->offered().Open(session->lease_)) {
      return Refusal("remote_request_id",
                     absl::StrCat("\"", EscapeControls(session->name_), "\" is in use"));
    }
    session->offered_ = &transfer_->offered();
    return session;
  }
  // It is sent in clear text.
  if (!IsRandomName(params.remote_engine_id)) {
    return Refusal("remote_engine_id", "must be 32 hexadecimal digits in lower case");
  }
  RETURN_IF_ERROR(CheckName("remote_request_id", session->name_));
  RETURN_IF_ERROR(CheckName("remote_host", params.remote_host));
  RETURN_IF_ERROR(
      CheckWithin("kv_transfer_params.remote_port", params.remote_port, {.low = 1, .high = 65535}));
  session->tokens_per_second_ = std::max(params.tokens_per_second, 0.0);
  // The engine's own pages are in its prefix cache.
  if (params.remote_engine_id == transfer_->engine_id()) return session;
  const PageTransfer::Remote remote = {.host = params.remote_host,
                                       .port = params.remote_port,
                                       .engine_id = params.remote_engine_id,
                                       .lease = LeaseOf(request.cache_salt, session->name_)};
  RETURN_IF_ERROR(transfer_->CheckPeer(remote));
  session->lender_ = transfer_->Borrow(remote, request.request_id);
  return session;
}

bool PromptTransfer::Fetches(const Session& session) {
  return session.fetch.transfer != nullptr && session.fetch.transfer->lender_ != nullptr;
}

double PromptTransfer::LenderSpeed(const Session& session) {
  return session.fetch.transfer->tokens_per_second_;
}

void PromptTransfer::EndFetching(const Session& session) {
  if (session.fetch.transfer != nullptr) session.fetch.transfer->lender_ = nullptr;
}

std::shared_ptr<Fetch> PromptTransfer::Read(std::vector<StoredRun> runs, const Session& session) {
  std::erase_if(readers_, [](Reader& reader) {
    const bool is_done = *reader.is_done;
    if (is_done) reader.thread.join();
    return is_done;
  });
  auto fetch = std::make_shared<Fetch>(std::move(runs), kMaxFetchedBytes);
  auto is_done = std::make_shared<std::atomic<bool>>(false);
  std::list<Reader> one;  // joins the others once its thread runs
  Reader& reader = one.emplace_back(Reader{.fetch = fetch, .is_done = is_done, .thread = {}});
  const std::string name = absl::StrCat("request=", session.fetch.transfer->request_id_,
                                        " lease=", session.fetch.transfer->name_);
  reader.thread = std::thread(
      [fetch, is_done, name, lender = std::move(session.fetch.transfer->lender_)]() mutable {
        const Instant start = Instant::Now();
        int num_wanted = 0;
        for (const StoredRun& run : fetch->runs()) num_wanted += static_cast<int>(run.pages.size());
        int num_pages = 0;
        Attempt("kv transfer", [&] { num_pages = fetch->ReadFrom(lender.get()); });
        fetch->Finish();
        Attempt("kv transfer", [&] {
          lender = nullptr;
          Log(LogLevel::kInfo,
              absl::StrCat("kv transfer: fetched ", name, " pages=", num_pages, " of ", num_wanted,
                           " ms=", absl::ToInt64Milliseconds(Instant::Now() - start)));
        });
        *is_done = true;
      });
  readers_.splice(readers_.end(), one);
  return fetch;
}

void PromptTransfer::Offer(StoredCache* target, StoredCache* draft, Drafter* drafter,
                           double tokens_per_second, Session* session) const {
  SessionTransfer* const own = session->fetch.transfer.get();
  if (own == nullptr || own->offered_ == nullptr) return;
  const auto offer = [&](StoredCache& cache, absl::Span<const TokenId> tokens, int variant,
                         const CacheSalt& salt, int* next) {
    const size_t page_bytes = cache.cache().layout().page_bytes();
    *next = cache.ForPublished(
        tokens, variant, salt, *next, [&](const PageKey& key, Backend::CopyPage copy) {
          return own->offered_->Add(own->lease_, cache.pool(), key, page_bytes, copy);
        });
  };
  const auto prompt = absl::MakeConstSpan(session->tokens).first(session->prompt_length);
  offer(*target, prompt, session->target_kv.variant(), session->salt, &own->next_target_page_);
  if (draft != nullptr && session->draft_state != nullptr && session->draft_tokens != 0) {
    drafter->Publish(session->draft_state.get(), session->tokens);
    if (const auto text = drafter->TextOf(session->draft_state.get(), prompt); text.has_value()) {
      offer(*draft, text->tokens, text->variant, text->salt, &own->next_draft_page_);
    }
  }
  if (session->num_output() == 0 && !session->finished) return;
  own->offered_->Complete(own->lease_);
  own->offered_ = nullptr;
  const int num_tokens = own->next_target_page_ * target->cache().layout().page_size;
  Log(LogLevel::kInfo, absl::StrCat("kv transfer: keep request=", own->request_id_,
                                    " lease=", own->name_, " tokens=", num_tokens,
                                    " pages=", own->next_target_page_, "+", own->next_draft_page_));
  session->completion.kv_transfer_params =
      KvTransferParams{.do_remote_prefill = true,
                       .remote_engine_id = transfer_->engine_id(),
                       .remote_request_id = own->name_,
                       .remote_host = transfer_->host(),
                       .remote_port = transfer_->port(),
                       .remote_num_tokens = num_tokens,
                       .tokens_per_second = tokens_per_second};
}

}  // namespace tandem
