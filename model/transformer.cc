#include "model/transformer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

bool WantsArgMax(absl::Span<const ForwardRequest> requests) {
  return absl::c_any_of(requests, [](const ForwardRequest& request) {
    return request.to_host == LogitsToHost::kOnlyArgMax && request.num_logits > 0;
  });
}

void CopyColumns(ConstMatrixView from, MatrixView to) {
  if (from.cols == 0) return;
  const size_t bytes = sizeof(float) * from.cols;
  for (int64_t r = 0; r < from.rows; ++r) {
    std::memcpy(static_cast<float*>(to.data) + r * to.stride,
                static_cast<const float*>(from.data) + r * from.stride, bytes);
  }
}

}  // namespace

Transformer::Transformer(Backend* backend, const ModelConfig& config, const LoadOptions& options,
                         std::unique_ptr<TransformerWeights> weights)
    : backend_(backend),
      sampler_(backend->sampler()),
      config_(config),
      group_(options.group),
      first_slot_(options.first_slot),
      first_layer_(options.first_layer),
      weights_(std::move(weights)),
      parts_(OwnPartsOf(config_, weights_->num_head_tokens, group_)),
      weights_form_(options.FormOf(*weights_->source, config_)),
      graph_cache_(backend->MakeGraphCache()) {}

RankParts Transformer::PartsOf(int rank) const {
  return RankPartsOf(config_, head_tokens(), rank, group_->world());
}

KvLayout KvLayoutOf(const ModelConfig& config, int page_size, KvDType dtype) {
  return {.num_layers = config.num_layers,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim,
          .page_size = page_size,
          .dtype = dtype};
}

KvLayout Transformer::kv_layout(int page_size, KvDType dtype) const {
  KvLayout layout = KvLayoutOf(config_, page_size, dtype);
  layout.num_kv_heads = parts_.kv_heads.size();
  return layout;
}

size_t Transformer::bytes_read_per_pass() const {
  size_t bytes = weights_->head.bytes_read + weights_->state_parts.fc.bytes_read;
  for (const Layer& layer : weights_->layers) {
    for (const PackedWeight& weight : layer.qkv) bytes += weight.bytes_read;
    bytes += layer.attention_out.bytes_read + layer.gate_up.bytes_read + layer.down.bytes_read;
    if (layer.experts.down.empty()) continue;
    const size_t expert =
        layer.experts.gate_up.front().bytes_read + layer.experts.down.front().bytes_read;
    // In a group, the average number of a row's experts that this rank has.
    bytes += layer.router.bytes_read +
             expert * config_.experts_per_row * parts_.experts.size() / config_.num_experts;
  }
  return bytes;
}

size_t Transformer::bytes_to_pack() const {
  size_t bytes = 0;
  for (const auto& unpacked : weights_->unpacked) bytes += unpacked.weight->bytes_read;
  return bytes;
}

MatrixView Transformer::View(const Buffer& buffer, int rows, int cols) const {
  return {buffer.data(), DType::kF32, rows, cols, cols};
}

absl::Status Transformer::Grow(Buffer* buffer, size_t bytes, std::optional<SharedBuffer> shared) {
  if (buffer->size_bytes() >= bytes) return absl::OkStatus();
  graph_cache_->Forget();
  if (group_ == nullptr || !shared.has_value()) {
    ASSIGN_OR_RETURN(*buffer, backend_->Allocate(bytes));
    return absl::OkStatus();
  }
  const int slot = first_slot_ + static_cast<int>(*shared);
  ASSIGN_OR_RETURN(*buffer, group_->Memory(slot, bytes, backend_));
  return absl::OkStatus();
}

absl::Status Transformer::Reserve(int rows, int logit_rows, size_t table_bytes) {
  Workspace& w = workspace_;
  const auto grow_rows = [&](Buffer* buffer, int num_rows, int cols,
                             std::optional<SharedBuffer> shared = std::nullopt) {
    return Grow(buffer, sizeof(float) * num_rows * static_cast<size_t>(cols), shared);
  };
  const ModelConfig& c = config_;
  const int query_size = c.num_heads * c.head_dim;
  const int own_heads = parts_.heads.size() + 2 * parts_.kv_heads.size();
  RETURN_IF_ERROR(grow_rows(&w.hidden, rows, c.hidden_size, SharedBuffer::kHidden));
  RETURN_IF_ERROR(grow_rows(&w.attended, rows, query_size, SharedBuffer::kAttended));
  RETURN_IF_ERROR(grow_rows(&w.mlp, rows, c.intermediate_size, SharedBuffer::kMlp));
  RETURN_IF_ERROR(grow_rows(&w.output, rows, c.hidden_size, SharedBuffer::kOutput));
  RETURN_IF_ERROR(grow_rows(&w.logits, logit_rows, head_tokens(), SharedBuffer::kLogits));
  if (group_ != nullptr && c.query_key_norm == QueryKeyNorm::kAllHeads) {
    const int cols = query_size + c.num_kv_heads * c.head_dim;
    RETURN_IF_ERROR(grow_rows(&w.queries_and_keys, rows, cols, SharedBuffer::kQueriesAndKeys));
    RETURN_IF_ERROR(grow_rows(&w.normed_heads, rows, cols));
  }
  if (group_ != nullptr && c.num_experts > 0) {
    RETURN_IF_ERROR(grow_rows(&w.expert_outputs, rows * c.experts_per_row, c.hidden_size,
                              SharedBuffer::kExpertOutputs));
  }
  RETURN_IF_ERROR(grow_rows(&w.normed, rows, c.hidden_size));
  if (c.normalizes_outputs) RETURN_IF_ERROR(grow_rows(&w.normed_output, rows, c.hidden_size));
  RETURN_IF_ERROR(grow_rows(&w.qkv, rows, own_heads * c.head_dim));
  if (c.num_experts > 0) {
    RETURN_IF_ERROR(grow_rows(&w.router_logits, rows, c.num_experts));
    RETURN_IF_ERROR(grow_rows(&w.expert_weights, rows, c.experts_per_row));
    RETURN_IF_ERROR(grow_rows(&w.expert_ids, rows, c.experts_per_row));
  }
  for (int i = 0; i < kNumLayerRotations; ++i) {
    if (!weights_->rotations[i].is_used()) continue;
    RETURN_IF_ERROR(grow_rows(&w.angles[i], rows, c.head_dim));
  }
  RETURN_IF_ERROR(grow_rows(&w.wanted, logit_rows, c.hidden_size));
  RETURN_IF_ERROR(Grow(&w.largest, sizeof(int32_t) * static_cast<size_t>(logit_rows)));
  if (is_draft_head()) {
    RETURN_IF_ERROR(grow_rows(&w.joined, rows, 2 * c.hidden_size));
  } else {
    RETURN_IF_ERROR(grow_rows(&w.states, rows, state_size()));
  }
  return Grow(&w.tables, table_bytes);
}

absl::StatusOr<MatrixView> Transformer::Forward(absl::Span<const ForwardRequest> requests) {
  std::vector<int> lengths;  // before the pass
  lengths.reserve(requests.size());
  absl::Cleanup undo = [&] {
    for (size_t i = 0; i < lengths.size(); ++i) requests[i].kv->Truncate(lengths[i]);
  };
  int rows = 0;
  int logit_rows = 0;
  for (const ForwardRequest& request : requests) {
    const int count = static_cast<int>(request.tokens.size());
    const int length = request.kv->length();
    const int end = length + count;
    TANDEM_CHECK(count > 0 && 0 <= request.num_logits && request.num_logits <= count);
    TANDEM_CHECK(request.drawn_by < 0 || (sampler_ != nullptr && count == 1));
    if (end > config_.context_length) {
      return absl::OutOfRangeError(absl::StrCat("sequence of ", end,
                                                " tokens is longer than the model's context of ",
                                                config_.context_length));
    }
    RETURN_IF_ERROR(request.kv->Extend(count));
    lengths.push_back(length);
    rows += count;
    logit_rows += request.num_logits;
  }
  if (rows == 0) return View(workspace_.logits, 0, head_tokens());
  RETURN_IF_ERROR(Run(requests, rows, logit_rows));
  const bool host_waits =
      logit_rows == 0 || absl::c_any_of(requests, [](const ForwardRequest& request) {
        return request.to_host != LogitsToHost::kNothing && request.num_logits > 0;
      });
  if (host_waits) RETURN_IF_ERROR(EndGroupIfFailed(backend_->Synchronize()));
  std::move(undo).Cancel();

  states_ = View(is_draft_head() ? workspace_.hidden : workspace_.states, rows, state_size());
  logits_ = View(workspace_.logits, logit_rows, head_tokens());
  if (backend_->memory_is_host() || !host_waits) return logits_;
  return CopyLogitsToHost(requests, logits_);
}

// Copies the requested logits to the host.
MatrixView Transformer::CopyLogitsToHost(absl::Span<const ForwardRequest> requests,
                                         ConstMatrixView logits) {
  host_logits_.Resize(logits.rows, logits.cols);
  std::vector<int32_t> largest(logits.rows);
  if (WantsArgMax(requests)) {
    backend_->Download(workspace_.largest.data(), {reinterpret_cast<std::byte*>(largest.data()),
                                                   largest.size() * sizeof(int32_t)});
  }
  int row = 0;
  for (const ForwardRequest& request : requests) {
    if (request.to_host == LogitsToHost::kOnlyArgMax) {
      for (int i = row; i < row + request.num_logits; ++i) host_logits_.SetArgMax(i, largest[i]);
    }
    if (request.to_host == LogitsToHost::kWhole && request.num_logits > 0) {
      const absl::Span<float> whole = host_logits_.Whole(row, request.num_logits);
      backend_->Download(
          static_cast<const float*>(logits.data) + row * logits.stride,
          {reinterpret_cast<std::byte*>(whole.data()), whole.size() * sizeof(float)});
    }
    row += request.num_logits;
  }
  return host_logits_.view();
}

// Makes host_tables_ those of a pass of this size whose rows are all padding: they belong to no
// sequence and read any token.
PassTables Transformer::EmptyTables(const PassSize& size, const PagedKvCache* cache) {
  const PassTables at = size.Tables(graph_cache_->replays(), cache->layout().page_size);
  host_tables_.assign(at.size, 0);
  int32_t* const host = host_tables_.data();
  std::fill_n(host + at.sources, at.rows, -1);
  std::iota(host + at.row_indices, host + at.row_indices + at.rows, 0);
  return at;
}

// Returns this rank's plan of the rows in host_tables_.
std::vector<int32_t> Transformer::PlanRows(const PassTables& at, const PagedKvCache* cache) const {
  AttentionSizes sizes{.num_heads = parts_.heads.size(),
                       .num_kv_heads = parts_.kv_heads.size(),
                       .head_dim = config_.head_dim};
  if (cache != nullptr) sizes.dtype = cache->LayerView(first_layer_).dtype;
  return backend_->PlanRows({host_tables_.data() + at.starts, static_cast<size_t>(at.batch) + 1},
                            at.rows, sizes);
}

absl::Status Transformer::RecordPass(const PassSize& size, bool reads_own_states,
                                     PagedKvCache* cache) {
  TANDEM_CHECK(size.batch > 0 && size.rows >= size.batch && size.logit_rows <= size.rows);
  if (!records_passes()) return absl::OkStatus();
  const PassTables at = EmptyTables(size, cache);
  if (is_draft_head()) RETURN_IF_ERROR(ReserveReadStates(at.rows));
  reads_own_states_ = reads_own_states;
  // The first run allocates what the recording uses.
  for (int run = 0; run < 2; ++run) {
    RETURN_IF_ERROR(RunOnAllRanks(at, cache, /*has_drawn=*/false, /*finds_argmax=*/false));
  }
  return EndGroupIfFailed(backend_->Synchronize());
}

absl::Status Transformer::Run(absl::Span<const ForwardRequest> requests, int rows, int logit_rows) {
  const int batch = static_cast<int>(requests.size());
  PassSize size{.batch = batch, .rows = rows, .logit_rows = logit_rows};
  for (const ForwardRequest& request : requests) {
    size.pages = std::max(size.pages, static_cast<int>(request.kv->pages().size()));
  }
  const PagedKvCache* const cache = requests[0].kv->cache();
  const PassTables at = EmptyTables(size, cache);
  int32_t* host = host_tables_.data();
  int row = 0;
  int wanted = 0;
  for (int i = 0; i < batch; ++i) {
    const ForwardRequest& request = requests[i];
    host[at.starts + i] = row;
    host[at.lengths + i] = request.kv->length();
    host[at.variants + i] = request.kv->variant();
    absl::c_copy(request.kv->pages(),
                 host + at.page_tables + static_cast<size_t>(i) * at.max_pages);
    for (const TokenId token : request.tokens) {
      TANDEM_CHECK(0 <= token && token < config_.vocab_size);
      host[at.sources + row] = request.drawn_by;
      host[at.ids + row++] = token;
    }
    for (int j = request.num_logits; j > 0; --j) host[at.wanted + wanted++] = row - j;
  }
  std::fill(host + at.starts + batch, host + at.starts + at.batch + 1, row);
  const bool has_drawn =
      absl::c_any_of(requests, [](const ForwardRequest& request) { return request.drawn_by >= 0; });
  const bool finds_argmax = !backend_->memory_is_host() && WantsArgMax(requests);
  if (is_draft_head()) RETURN_IF_ERROR(TakeStates(requests, at.rows));
  return RunOnAllRanks(at, cache, has_drawn, finds_argmax);
}

// Runs the pass over host_tables_ on every rank, without waiting for its end.
absl::Status Transformer::RunOnAllRanks(const PassTables& at, const PagedKvCache* cache,
                                        bool has_drawn, bool finds_argmax) {
  if (group_ == nullptr) return RunPass(at, cache, has_drawn, finds_argmax);
  const PassMessage pass{.model = first_slot_,
                         .tables = at,
                         .finds_argmax = finds_argmax,
                         .copies = page_copies_.copies,
                         .integers = absl::MakeConstSpan(host_tables_).first(at.size)};
  RETURN_IF_ERROR(group_->Send(pass.Encode()));
  page_copies_.copies.clear();
  RETURN_IF_ERROR(EndGroupIfFailed(RunPass(at, cache, has_drawn, finds_argmax)));
  return group_->status();
}

// Fails the group if this rank left the pass: the other ranks still wait in it.
absl::Status Transformer::EndGroupIfFailed(absl::Status status) {
  if (!status.ok() && group_ != nullptr) group_->Fail(status);
  return status;
}

absl::Status Transformer::Follow(const PassMessage& pass, PagedKvCache* cache) {
  if (cache != nullptr) {
    // One by one: a page may be freed and copied to again.
    for (const PageCopy& copy : pass.copies) cache->CopyPages({&copy, 1});
  }
  host_tables_.assign(pass.integers.begin(), pass.integers.end());
  const auto sources = pass.integers.subspan(pass.tables.sources, pass.tables.rows);
  const bool has_drawn = absl::c_any_of(sources, [](int32_t source) { return source >= 0; });
  RETURN_IF_ERROR(RunPass(pass.tables, cache, has_drawn, pass.finds_argmax));
  RETURN_IF_ERROR(backend_->Synchronize());
  return group_->status();
}

// Runs the pass over host_tables_, without waiting for its end.
absl::Status Transformer::RunPass(const PassTables& at, const PagedKvCache* cache, bool has_drawn,
                                  bool finds_argmax) {
  const std::vector<int32_t> plan = PlanRows(at, cache);
  host_tables_.resize(at.plan);
  host_tables_.insert(host_tables_.end(), plan.begin(), plan.end());
  const size_t table_bytes = host_tables_.size() * sizeof(int32_t);
  RETURN_IF_ERROR(Reserve(at.rows, at.logit_rows, table_bytes));
  backend_->Upload({reinterpret_cast<const std::byte*>(host_tables_.data()), table_bytes},
                   workspace_.tables.data());
  if (has_drawn) {
    auto* const tables = static_cast<int32_t*>(workspace_.tables.data());
    const bool draws = group_ == nullptr || group_->rank() == 0;
    if (draws) sampler_->TakeDrawn(tables + at.sources, at.rows, tables + at.ids);
    if (group_ != nullptr) {
      group_->GatherColumns({tables + at.ids, DType::kF32, 1, at.rows, at.rows}, [&](int rank) {
        return RankShare{rank == 0 ? 0 : at.rows, at.rows};
      });
    }
  }
  const auto address = [](const void* at) {
    return static_cast<int64_t>(std::bit_cast<intptr_t>(at));
  };
  PagedKvView first, last;
  if (cache != nullptr) {
    first = cache->LayerView(first_layer_);
    last = cache->LayerView(first_layer_ + config_.num_layers - 1);
  }
  const int64_t key[] = {at.batch,
                         at.rows,
                         at.logit_rows,
                         reads_own_states_,
                         at.max_pages,
                         address(first.keys),
                         address(first.values),
                         address(last.keys),
                         address(last.values),
                         first.page_size,
                         static_cast<int64_t>(first.dtype),
                         first.group_stride};
  graph_cache_->Run(key, [&] { Enqueue(at, cache); });
  if (finds_argmax) {
    backend_->ArgMax(View(workspace_.logits, at.logit_rows, head_tokens()),
                     static_cast<int32_t*>(workspace_.largest.data()));
  }
  last_pass_ = at;
  last_cache_ = cache;
  return absl::OkStatus();
}

void Transformer::RepeatPass() {
  TANDEM_CHECK(last_pass_.rows > 0 && group_ == nullptr);
  Enqueue(last_pass_, last_cache_);
}

// Enqueues the pass. Arguments depend only on the sizes of the tables; everything else is read from
// the tables by the kernels, so that graphs can be reused.
void Transformer::Enqueue(const PassTables& at, const PagedKvCache* cache) {
  const int rows = at.rows;
  const auto* tables = static_cast<const int32_t*>(workspace_.tables.data());
  const RaggedRows ragged{
      .starts = tables + at.starts, .batch = at.batch, .num_rows = rows, .plan = tables + at.plan};
  const MatrixView hidden = View(workspace_.hidden, rows, config_.hidden_size);
  const auto embed = [&] {
    if (is_draft_head()) return EnterHead(tables + at.ids, rows, tables + at.row_indices);
    backend_->Embed(tables + at.ids, weights_->embedding, hidden, NextOfResidual(0));
    if (config_.embedding_scale != 1.0f) {
      backend_->ScaleAndCap(config_.embedding_scale, 0.0f, hidden);
    }
  };
  if (group_ != nullptr) {
    group_->FillReplicated(embed);
  } else {
    embed();
  }
  for (int i = 0; i < kNumLayerRotations; ++i) {
    const TransformerWeights::Rotation& rotation = weights_->rotations[i];
    if (!rotation.is_used()) continue;
    backend_->RotaryAngles(
        ragged, tables + at.lengths,
        {.inverse_frequencies = static_cast<const float*>(rotation.inverse_frequencies.data()),
         .magnitudes = static_cast<const float*>(rotation.magnitudes.data()),
         .of_sequence = tables + at.variants},
        View(workspace_.angles[i], rows, config_.head_dim));
  }
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    PagedKvView kv;
    if (cache != nullptr) kv = cache->LayerView(first_layer_ + layer);
    kv.page_tables = tables + at.page_tables;
    kv.lengths = tables + at.lengths;
    kv.batch = at.batch;
    kv.max_pages = at.max_pages;
    KeepState(layer, rows, tables + at.row_indices);
    RunLayer(layer, ragged, kv);
    weights_->ForgetPacked();
  }
  KeepState(config_.num_layers, rows, tables + at.row_indices);
  if (at.logit_rows == 0) return;
  const MatrixView last = View(workspace_.wanted, at.logit_rows, config_.hidden_size);
  backend_->GatherRows(hidden, tables + at.wanted, last);
  const MatrixView logits = View(workspace_.logits, at.logit_rows, head_tokens());
  const MatrixView own = ColumnsOf(logits, parts_.head_rows);
  if (own.cols > 0) {
    backend_->MatMul(Normed(weights_->final_norm, last, last), weights_->head, own);
    if (config_.logits_scale != 1.0f || config_.logits_soft_cap != 0.0f) {
      backend_->ScaleAndCap(config_.logits_scale, config_.logits_soft_cap, own);
    }
  }
  Gather(logits, &RankParts::head_rows);
  weights_->ForgetPacked();
  weights_->is_unread = false;
}

void Transformer::Gather(MatrixView whole, RankShare RankParts::*columns, int unit) {
  if (group_ == nullptr) return;
  group_->GatherColumns(whole, [&](int rank) {
    const RankShare share = PartsOf(rank).*columns;
    return RankShare{share.begin * unit, share.end * unit};
  });
}

// Normalises queries and keys, each over all heads, including those of other ranks.
void Transformer::NormAllHeads(const Layer& layer, int rows, MatrixView qkv) {
  const ModelConfig& c = config_;
  const int dim = c.head_dim;
  const auto norm = [&](const Buffer& weight, MatrixView x) {
    backend_->RmsNorm(x, static_cast<const float*>(weight.data()), c.rms_norm_epsilon, x);
  };
  const RankShare own_queries{0, parts_.heads.size() * dim};
  const RankShare own_keys{own_queries.end, own_queries.end + parts_.kv_heads.size() * dim};
  if (group_ == nullptr) {
    norm(layer.query_norm, ColumnsOf(qkv, own_queries));
    norm(layer.key_norm, ColumnsOf(qkv, own_keys));
    return;
  }
  const int queries = c.num_heads * dim;
  const int keys = c.num_kv_heads * dim;
  const MatrixView whole = View(workspace_.queries_and_keys, rows, queries + keys);
  const MatrixView normed = View(workspace_.normed_heads, rows, queries + keys);
  const auto norm_part = [&](RankShare own, RankShare part, RankShare RankParts::*heads,
                             const Buffer& weight) {
    const RankShare own_part{(parts_.*heads).begin * dim, (parts_.*heads).end * dim};
    CopyColumns(ColumnsOf(qkv, own), ColumnsOf(ColumnsOf(whole, part), own_part));
    Gather(ColumnsOf(whole, part), heads, dim);
    // Each rank normalises whole rows and keeps its own heads.
    backend_->RmsNorm(ColumnsOf(whole, part), static_cast<const float*>(weight.data()),
                      c.rms_norm_epsilon, ColumnsOf(normed, part));
    CopyColumns(ColumnsOf(ColumnsOf(normed, part), own_part), ColumnsOf(qkv, own));
  };
  norm_part(own_queries, {0, queries}, &RankParts::heads, layer.query_norm);
  norm_part(own_keys, {queries, queries + keys}, &RankParts::kv_heads, layer.key_norm);
}

void Transformer::Attention(int index, const NormedRows& input, const RaggedRows& rows,
                            const PagedKvView& kv) {
  const Layer& layer = weights_->layers[index];
  const ModelConfig& c = config_;
  const int query_size = parts_.heads.size() * c.head_dim;
  const int key_size = parts_.kv_heads.size() * c.head_dim;
  const MatrixView attended = View(workspace_.attended, rows.num_rows, c.num_heads * c.head_dim);
  const MatrixView qkv = View(workspace_.qkv, rows.num_rows, query_size + 2 * key_size);
  MatrixView part = qkv;
  for (const PackedWeight& weight : layer.qkv) {
    part.cols = weight.outputs;
    backend_->MatMul(input, weight, part);
    part.data = static_cast<float*>(part.data) + part.cols;
  }
  HeadNorms norms{.query = static_cast<const float*>(layer.query_norm.data()),
                  .key = static_cast<const float*>(layer.key_norm.data()),
                  .epsilon = c.rms_norm_epsilon};
  if (c.query_key_norm == QueryKeyNorm::kAllHeads) {
    NormAllHeads(layer, rows.num_rows, qkv);
    norms = {};
  }
  if (query_size > 0) {
    const MatrixView queries = ColumnsOf(qkv, {0, query_size});
    const Buffer& angles = workspace_.angles[static_cast<int>(c.rotations[index])];
    backend_->RotateAndCache(qkv, View(angles, rows.num_rows, c.head_dim), norms, rows, kv);
    backend_->Attend(
        queries, rows, kv,
        {.scale = c.attention_scale,
         .window = c.windows[index],
         .first = is_draft_head() ? 1 : 0,  // the first token has no state before it
         .soft_cap = c.attention_soft_cap},
        ColumnsOf(attended, {parts_.heads.begin * c.head_dim, parts_.heads.end * c.head_dim}),
        OnlyProduct(layer.attention_out));
  }
  Gather(attended, &RankParts::heads, c.head_dim);
  AddOutput(attended, layer.attention_out, layer.attention_output_norm,
            NextOfResidual(index, /*in_feed_forward=*/true));
}

void Transformer::FeedForward(int index, const NormedRows& input) {
  if (config_.has_experts(index)) return RunExperts(index, input);
  const Layer& layer = weights_->layers[index];
  const MatrixView mlp = View(workspace_.mlp, input.x.rows, config_.intermediate_size);
  if (parts_.mlp.size() > 0) {
    backend_->MatMulGated(input, layer.gate_up, config_.activation, ColumnsOf(mlp, parts_.mlp),
                          OnlyProduct(layer.down));
  }
  Gather(mlp, &RankParts::mlp);
  AddOutput(mlp, layer.down, layer.mlp_output_norm, NextOfResidual(index + 1));
}

void Transformer::RunExperts(int index, const NormedRows& input) {
  const Layer& layer = weights_->layers[index];
  const int rows = input.x.rows;
  ConstMatrixView x = input.x;
  if (input.weight != nullptr) {
    const MatrixView normed = View(workspace_.normed, rows, config_.hidden_size);
    backend_->RmsNorm(input.x, input.weight, input.epsilon, normed);
    x = normed;
  }
  const MatrixView logits = View(workspace_.router_logits, rows, config_.num_experts);
  const MatrixView output = View(workspace_.output, rows, config_.hidden_size);
  const ExpertChoices choices{.experts = static_cast<int32_t*>(workspace_.expert_ids.data()),
                              .weights = static_cast<float*>(workspace_.expert_weights.data()),
                              .per_row = config_.experts_per_row};
  backend_->MatMul(x, layer.router, logits);
  backend_->ChooseExperts(logits, config_.renormalises_experts, choices);
  MixExperts(x, choices, layer, output);
  AddOutput(output, layer.mlp_output_norm);
}

// Computes `output`, or only this rank's columns of it in a group.
void Transformer::MixExperts(ConstMatrixView x, const ExpertChoices& choices, const Layer& layer,
                             MatrixView output) {
  if (group_ == nullptr) {
    return backend_->MixExperts(x, choices, layer.experts, config_.activation, output);
  }
  const int num_choices = x.rows * choices.per_row;
  const MatrixView outputs = View(workspace_.expert_outputs, num_choices, config_.hidden_size);
  backend_->RunExperts(x, choices, layer.experts, config_.activation, outputs);
  group_->AllGather([&](int rank, RankGroup::UsePiece use) {
    const RankShare experts = PartsOf(rank).experts;
    for (int64_t i = 0; i < num_choices; ++i) {
      if (choices.experts[i] < experts.begin || choices.experts[i] >= experts.end) continue;
      use(static_cast<float*>(outputs.data) + i * outputs.stride, sizeof(float) * outputs.cols);
    }
  });
  if (parts_.hidden.size() == 0) return;
  backend_->SumExperts(ColumnsOf(outputs, parts_.hidden), choices,
                       ColumnsOf(output, parts_.hidden));
}

void Transformer::RunLayer(int index, const RaggedRows& rows, const PagedKvView& kv) {
  const Layer& layer = weights_->layers[index];
  const MatrixView hidden = View(workspace_.hidden, rows.num_rows, config_.hidden_size);
  const MatrixView normed = View(workspace_.normed, rows.num_rows, config_.hidden_size);
  NormedRows input = config_.state_input == StateInput::kNextToEmbedding
                         ? NormedRows{.x = View(workspace_.joined, rows.num_rows, 2 * hidden.cols)}
                         : Normed(layer.attention_norm, hidden, normed);
  if (config_.is_parallel) {
    // Attention changes `hidden`, but the feed-forward part reads the rows from before.
    backend_->RmsNorm(input.x, input.weight, input.epsilon, normed);
    input = {.x = normed};
  }
  Attention(index, input, rows, kv);
  if (!config_.is_parallel) input = Normed(layer.mlp_norm, hidden, normed);
  FeedForward(index, input);
}

}  // namespace tandem
