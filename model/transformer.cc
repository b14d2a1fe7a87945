#include "model/transformer.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace tandem {

// The integers of a pass, one after the other in one buffer so that one copy brings them over.
struct Transformer::PassTables {
  PassTables(int batch, int rows, int logit_rows, int max_pages)
      : max_pages(max_pages),
        ids(0),
        starts(ids + rows),
        lengths(starts + batch + 1),
        page_tables(lengths + batch),
        wanted(page_tables + static_cast<size_t>(batch) * max_pages),
        sources(wanted + logit_rows),
        variants(sources + rows),
        size(variants + batch) {}
  int max_pages;
  // Offsets in elements.
  size_t ids;          // [rows]
  size_t starts;       // [batch + 1]
  size_t lengths;      // [batch]
  size_t page_tables;  // [batch, max_pages]
  size_t wanted;       // [logit_rows]: rows whose logits are asked for
  size_t sources;      // [rows]: slots that drew the ids, or -1
  size_t variants;     // [batch]: of the sequences
  size_t size;
};

namespace {

bool WantLargest(absl::Span<const ForwardRequest> requests) {
  return absl::c_any_of(requests, [](const ForwardRequest& request) {
    return request.to_host == LogitsToHost::kOnlyLargest && request.num_logits > 0;
  });
}

}  // namespace

KvLayout Transformer::kv_layout(int page_size, KvDType dtype) const {
  return {.num_layers = config_.num_layers,
          .num_kv_heads = config_.num_kv_heads,
          .head_dim = config_.head_dim,
          .page_size = page_size,
          .dtype = dtype};
}

size_t Transformer::bytes_read_per_pass() const {
  size_t bytes = head_.bytes_read;
  for (const Layer& layer : layers_) {
    for (const PackedWeight& weight : layer.qkv) bytes += weight.bytes_read;
    bytes += layer.attention_out.bytes_read + layer.gate_up.bytes_read + layer.down.bytes_read;
    if (layer.experts.down.empty()) continue;
    const size_t expert =
        layer.experts.gate_up.front().bytes_read + layer.experts.down.front().bytes_read;
    bytes += layer.router.bytes_read + expert * config_.experts_per_row;
  }
  return bytes;
}

size_t Transformer::bytes_to_pack() const {
  size_t bytes = 0;
  for (const Unpacked& unpacked : unpacked_) bytes += unpacked.weight->bytes_read;
  return bytes;
}

MatrixView Transformer::View(const Buffer& buffer, int rows, int cols) const {
  return {buffer.data(), DType::kF32, rows, cols, cols};
}

absl::Status Transformer::Reserve(int rows, int logit_rows, size_t table_bytes) {
  const auto grow = [this](Buffer* buffer, size_t bytes) -> absl::Status {
    if (buffer->size_bytes() >= bytes) return absl::OkStatus();
    graph_cache_->Forget();
    ASSIGN_OR_RETURN(*buffer, backend_->Allocate(bytes));
    return absl::OkStatus();
  };
  Workspace& w = workspace_;
  const auto grow_rows = [&](Buffer* buffer, int num_rows, int cols) {
    return grow(buffer, sizeof(float) * num_rows * static_cast<size_t>(cols));
  };
  const int query_size = config_.num_heads * config_.head_dim;
  const int kv_size = config_.num_kv_heads * config_.head_dim;
  RETURN_IF_ERROR(grow_rows(&w.hidden, rows, config_.hidden_size));
  RETURN_IF_ERROR(grow_rows(&w.normed, rows, config_.hidden_size));
  RETURN_IF_ERROR(grow_rows(&w.qkv, rows, query_size + 2 * kv_size));
  RETURN_IF_ERROR(grow_rows(&w.attended, rows, query_size));
  RETURN_IF_ERROR(grow_rows(&w.mlp, rows, config_.intermediate_size));
  RETURN_IF_ERROR(grow_rows(&w.output, rows, config_.hidden_size));
  if (config_.num_experts > 0) {
    RETURN_IF_ERROR(grow_rows(&w.router_logits, rows, config_.num_experts));
    RETURN_IF_ERROR(grow_rows(&w.expert_weights, rows, config_.experts_per_row));
    RETURN_IF_ERROR(grow_rows(&w.expert_ids, rows, config_.experts_per_row));
  }
  for (Rotation& rotation : rotations_) {
    if (rotation.is_used()) RETURN_IF_ERROR(grow_rows(&rotation.angles, rows, config_.head_dim));
  }
  RETURN_IF_ERROR(grow_rows(&w.wanted, logit_rows, config_.hidden_size));
  RETURN_IF_ERROR(grow_rows(&w.logits, logit_rows, head_tokens()));
  RETURN_IF_ERROR(grow(&w.largest, sizeof(int32_t) * static_cast<size_t>(logit_rows)));
  return grow(&w.tables, table_bytes);
}

absl::StatusOr<MatrixView> Transformer::Forward(absl::Span<const ForwardRequest> requests) {
  size_t num_extended = 0;
  absl::Cleanup undo = [&] {
    for (const ForwardRequest& request : requests.first(num_extended)) {
      request.kv->Truncate(request.kv->length() - static_cast<int>(request.tokens.size()));
    }
  };
  int rows = 0;
  int logit_rows = 0;
  for (const ForwardRequest& request : requests) {
    const int count = static_cast<int>(request.tokens.size());
    TANDEM_CHECK(count > 0 && 0 <= request.num_logits && request.num_logits <= count);
    TANDEM_CHECK(request.drawn_by < 0 || (sampler_ != nullptr && count == 1));
    if (request.kv->length() + count > config_.context_length) {
      return absl::OutOfRangeError(absl::StrCat("sequence of ", request.kv->length() + count,
                                                " tokens is longer than the model's context of ",
                                                config_.context_length));
    }
    RETURN_IF_ERROR(request.kv->Extend(count));
    ++num_extended;
    rows += count;
    logit_rows += request.num_logits;
  }
  if (rows == 0) return View(workspace_.logits, 0, head_tokens());
  RETURN_IF_ERROR(Run(requests, rows, logit_rows));
  const bool host_waits =
      logit_rows == 0 || absl::c_any_of(requests, [](const ForwardRequest& request) {
        return request.to_host != LogitsToHost::kNothing && request.num_logits > 0;
      });
  if (host_waits) RETURN_IF_ERROR(backend_->Synchronize());
  std::move(undo).Cancel();

  logits_ = View(workspace_.logits, logit_rows, head_tokens());
  if (backend_->memory_is_host() || !host_waits) return logits_;
  return BringLogits(requests, logits_);
}

// What is wanted of the logits, to the host.
MatrixView Transformer::BringLogits(absl::Span<const ForwardRequest> requests,
                                    ConstMatrixView logits) {
  host_logits_.Resize(logits.rows, logits.cols);
  std::vector<int32_t> largest(logits.rows);
  if (WantLargest(requests)) {
    backend_->Download(workspace_.largest.data(), {reinterpret_cast<std::byte*>(largest.data()),
                                                   largest.size() * sizeof(int32_t)});
  }
  int row = 0;
  for (const ForwardRequest& request : requests) {
    if (request.to_host == LogitsToHost::kOnlyLargest) {
      for (int i = row; i < row + request.num_logits; ++i) host_logits_.SetLargest(i, largest[i]);
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

absl::Status Transformer::Run(absl::Span<const ForwardRequest> requests, int rows, int logit_rows) {
  const int batch = static_cast<int>(requests.size());
  size_t max_pages = 0;
  for (const ForwardRequest& request : requests) {
    max_pages = std::max(max_pages, request.kv->pages().size());
  }
  // A power of two, so that passes of one shape over texts that grow can be repeated.
  max_pages = std::bit_ceil(max_pages);
  const PassTables at(batch, rows, logit_rows, static_cast<int>(max_pages));
  RETURN_IF_ERROR(Reserve(rows, logit_rows, at.size * sizeof(int32_t)));

  host_tables_.assign(at.size, 0);
  int32_t* host = host_tables_.data();
  int row = 0;
  int wanted = 0;
  for (int i = 0; i < batch; ++i) {
    const ForwardRequest& request = requests[i];
    host[at.starts + i] = row;
    host[at.lengths + i] = request.kv->length();
    host[at.variants + i] = request.kv->variant();
    std::copy(request.kv->pages().begin(), request.kv->pages().end(),
              host + at.page_tables + i * max_pages);
    for (const TokenId token : request.tokens) {
      TANDEM_CHECK(0 <= token && token < config_.vocab_size);
      host[at.sources + row] = request.drawn_by;
      host[at.ids + row++] = token;
    }
    for (int j = request.num_logits; j > 0; --j) host[at.wanted + wanted++] = row - j;
  }
  host[at.starts + batch] = row;
  backend_->Upload({reinterpret_cast<const std::byte*>(host), at.size * sizeof(int32_t)},
                   workspace_.tables.data());
  const bool has_drawn =
      absl::c_any_of(requests, [](const ForwardRequest& request) { return request.drawn_by >= 0; });
  if (has_drawn) {
    auto* const tables = static_cast<int32_t*>(workspace_.tables.data());
    sampler_->TakeDrawn(tables + at.sources, rows, tables + at.ids);
  }

  const PagedKvCache& cache = *requests[0].kv->cache();
  const PagedKvView first = cache.LayerView(0);
  const PagedKvView last = cache.LayerView(config_.num_layers - 1);
  const auto address = [](const void* at) {
    return static_cast<int64_t>(std::bit_cast<intptr_t>(at));
  };
  const bool finds_largest = !backend_->memory_is_host() && WantLargest(requests);
  const int64_t key[] = {batch,
                         rows,
                         logit_rows,
                         finds_largest,
                         at.max_pages,
                         address(first.keys),
                         address(first.values),
                         address(last.keys),
                         address(last.values),
                         first.page_size,
                         static_cast<int64_t>(first.dtype),
                         first.group_stride};
  graph_cache_->Run(key, [&] { Enqueue(at, cache, batch, rows, logit_rows, finds_largest); });
  return absl::OkStatus();
}

// The pass over what the tables say: all that depends on more than their sizes is read from them.
void Transformer::Enqueue(const PassTables& at, const PagedKvCache& cache, int batch, int rows,
                          int logit_rows, bool finds_largest) {
  const auto* tables = static_cast<const int32_t*>(workspace_.tables.data());
  const RaggedRows ragged{.starts = tables + at.starts, .batch = batch, .num_rows = rows};
  const MatrixView hidden = View(workspace_.hidden, rows, config_.hidden_size);
  backend_->Embed(tables + at.ids, embedding_, hidden);
  if (config_.embedding_scale != 1.0f) {
    backend_->ScaleAndCap(config_.embedding_scale, 0.0f, hidden);
  }
  for (const Rotation& rotation : rotations_) {
    if (!rotation.is_used()) continue;
    backend_->RotaryAngles(
        ragged, tables + at.lengths,
        {.inverse_frequencies = static_cast<const float*>(rotation.inverse_frequencies.data()),
         .magnitudes = static_cast<const float*>(rotation.magnitudes.data()),
         .of_sequence = tables + at.variants},
        View(rotation.angles, rows, config_.head_dim));
  }
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    PagedKvView kv = cache.LayerView(layer);
    kv.page_tables = tables + at.page_tables;
    kv.lengths = tables + at.lengths;
    kv.batch = batch;
    kv.max_pages = at.max_pages;
    RunLayer(layer, ragged, kv);
    ForgetPacked();
  }
  if (logit_rows == 0) return;
  const MatrixView last = View(workspace_.wanted, logit_rows, config_.hidden_size);
  backend_->GatherRows(hidden, tables + at.wanted, last);
  const MatrixView logits = View(workspace_.logits, logit_rows, head_tokens());
  backend_->MatMul(Normed(final_norm_, last, last), head_, logits);
  if (config_.logits_scale != 1.0f || config_.logits_soft_cap != 0.0f) {
    backend_->ScaleAndCap(config_.logits_scale, config_.logits_soft_cap, logits);
  }
  if (finds_largest) {
    backend_->ArgMax(logits, static_cast<int32_t*>(workspace_.largest.data()));
  }
  ForgetPacked();
  is_unread_ = false;
}

// Rows as a product takes them: normalised by `norm`, or as they are where there is none.
//   normed: where they may be left
NormedRows Transformer::Normed(const Buffer& norm, ConstMatrixView x, MatrixView normed) {
  if (norm.data() == nullptr) return {.x = x};
  if (config_.norm_form == NormForm::kLayer) {
    backend_->SubtractMean(x, normed);
    x = normed;
  }
  return {.x = x,
          .weight = static_cast<const float*>(norm.data()),
          .epsilon = config_.rms_norm_epsilon,
          .normed = normed};
}

// hidden += the product, normalised by `norm` if there is one.
void Transformer::AddOutput(ConstMatrixView x, const PackedWeight& weight, const Buffer& norm) {
  const MatrixView hidden = View(workspace_.hidden, x.rows, config_.hidden_size);
  if (norm.data() == nullptr && config_.residual_scale == 1.0f) {
    return backend_->MatMulAdd(x, weight, hidden);
  }
  const MatrixView output = View(workspace_.output, x.rows, config_.hidden_size);
  backend_->MatMul(x, weight, output);
  AddOutput(output, norm);
}

void Transformer::AddOutput(MatrixView output, const Buffer& norm) {
  if (norm.data() != nullptr) {
    backend_->RmsNorm(output, static_cast<const float*>(norm.data()), config_.rms_norm_epsilon,
                      output);
  }
  backend_->AddScaled(output, config_.residual_scale,
                      View(workspace_.hidden, output.rows, config_.hidden_size));
}

void Transformer::Attention(int index, const NormedRows& input, const RaggedRows& rows,
                            const PagedKvView& kv) {
  const Layer& layer = layers_[index];
  const ModelConfig& c = config_;
  const int query_size = c.num_heads * c.head_dim;
  const int key_size = c.num_kv_heads * c.head_dim;
  const MatrixView qkv = View(workspace_.qkv, rows.num_rows, query_size + 2 * key_size);
  const MatrixView attended = View(workspace_.attended, rows.num_rows, query_size);
  MatrixView part = qkv;
  for (const PackedWeight& weight : layer.qkv) {
    part.cols = weight.outputs;
    backend_->MatMul(input, weight, part);
    part.data = static_cast<float*>(part.data) + part.cols;
  }
  const MatrixView queries{qkv.data, DType::kF32, qkv.rows, query_size, qkv.stride};
  HeadNorms norms{.query = static_cast<const float*>(layer.query_norm.data()),
                  .key = static_cast<const float*>(layer.key_norm.data()),
                  .epsilon = c.rms_norm_epsilon};
  if (c.query_key_norm == QueryKeyNorm::kAllHeads) {
    const MatrixView keys{static_cast<float*>(qkv.data) + query_size, DType::kF32, qkv.rows,
                          key_size, qkv.stride};
    backend_->RmsNorm(queries, norms.query, norms.epsilon, queries);
    backend_->RmsNorm(keys, norms.key, norms.epsilon, keys);
    norms = {};
  }
  const Rotation& rotation = rotations_[static_cast<int>(c.rotations[index])];
  backend_->RotateAndCache(qkv, View(rotation.angles, rows.num_rows, c.head_dim), norms, rows, kv);
  backend_->Attend(
      queries, rows, kv,
      {.scale = c.attention_scale, .window = c.windows[index], .soft_cap = c.attention_soft_cap},
      attended);
  AddOutput(attended, layer.attention_out, layer.attention_output_norm);
}

void Transformer::FeedForward(int index, const NormedRows& input) {
  if (config_.has_experts(index)) return RunExperts(index, input);
  const Layer& layer = layers_[index];
  const MatrixView mlp = View(workspace_.mlp, input.x.rows, config_.intermediate_size);
  backend_->MatMulGated(input, layer.gate_up, config_.activation, mlp);
  AddOutput(mlp, layer.down, layer.mlp_output_norm);
}

void Transformer::RunExperts(int index, const NormedRows& input) {
  const Layer& layer = layers_[index];
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
  backend_->MixExperts(x, choices, layer.experts, config_.activation, output);
  AddOutput(output, layer.mlp_output_norm);
}

void Transformer::RunLayer(int index, const RaggedRows& rows, const PagedKvView& kv) {
  const Layer& layer = layers_[index];
  const MatrixView hidden = View(workspace_.hidden, rows.num_rows, config_.hidden_size);
  const MatrixView normed = View(workspace_.normed, rows.num_rows, config_.hidden_size);
  NormedRows input = Normed(layer.attention_norm, hidden, normed);
  if (config_.is_parallel) {
    // Attention changes `hidden`, and the feed-forward wants the same rows.
    backend_->RmsNorm(input.x, input.weight, input.epsilon, normed);
    input = {.x = normed};
  }
  Attention(index, input, rows, kv);
  if (!config_.is_parallel) input = Normed(layer.mlp_norm, hidden, normed);
  FeedForward(index, input);
}

}  // namespace tandem
