// The table of EngineOptions.
#ifndef TANDEM_INCLUDE_TANDEM_ENGINE_PARAMETERS_H_
#define TANDEM_INCLUDE_TANDEM_ENGINE_PARAMETERS_H_

#include <string>
#include <vector>

#include "tandem/draft_tokens.h"
#include "tandem/engine_options.h"
#include "tandem/parameter.h"

namespace tandem {

// The headings of helps. Commands have the options of some; an option without one is of the first.
inline constexpr char kEngineGroup[] = "Models and machine";
inline constexpr char kStoreGroup[] = "Store";
inline constexpr char kTransferGroup[] = "Transfer";
inline constexpr char kEventGroup[] = "Events";
inline constexpr char kLimitGroup[] = "Limits";

inline constexpr Limits kBatchLimits = {.low = 1, .high = 65536};

// The names that EngineOptions::quantize may have; draft_quantize may be "auto", too.
std::vector<std::string> QuantizationNames();

// Calls visitor(Parameter, member, allowed) for every option that users may set, where `allowed` is
// Limits of numbers, OneOf of names, and is missing for others.
template <typename Visitor>
void VisitEngineOptions(const Visitor& visit) {
  using O = EngineOptions;
  constexpr double kNone = 0;
  std::vector<std::string> draft_quantizations = QuantizationNames();
  draft_quantizations.insert(draft_quantizations.begin(), "auto");
  visit(Parameter{"target", "-m,--target", "PATH",
                  "Target model: a Hugging Face folder, a GGUF file or the name of a fetched model",
                  "the shipped storyteller-7m"},
        &O::target);
  visit(
      Parameter{"draft", "--draft", "PATH",
                "Draft model, in the same forms (also -md); without a tokenizer it has the "
                "target's; self:FORMAT is the target's own weights as --quantize makes them, self "
                "those of int4; or a draft head for this target",
                "the one that is known for a target given by its name, else none"},
      &O::draft);
  visit(Parameter{"drafter", "--drafter", "NAME",
                  "What proposes: model (the draft), ngram (what followed last time, in prompt or "
                  "output), model+ngram; where the draft is a head also eagle3 and eagle3+ngram, "
                  "which are the same; none",
                  "the draft and ngram if there is a draft, else ngram"},
        &O::drafter);
  visit(Parameter{"all_drafters"}, &O::all_drafters);
  visit(Parameter{"draft_tokens", "-k,--draft-tokens", "N",
                  "Most tokens proposed per round, or auto; 0 decodes plainly"},
        &O::draft_tokens, kDraftTokenLimits);
  visit(Parameter{"verifier", "--verifier", "NAME",
                  "What decides: exact_match, block, token; auto is exact_match with a seed or at "
                  "temperature 0 and where drafts are not drawn, else block"},
        &O::verifier);
  visit(Parameter{"device", "--device", "NAME",
                  "cpu, cuda:N, or auto: cuda:0 where there is one of compute capability 8.0 or "
                  "later, else the CPU"},
        &O::device);
  visit(Parameter{"threads", "--threads", "N", "CPU threads, at most one for each processor",
                  "the physical cores"},
        &O::threads, Limits{.low = 1, .high = 4096, .unset = kNone});
  visit(
      Parameter{"compute", "--compute", "NAME",
                "Activations in CPU products with bf16 weights: f32, bf16; auto is bf16 where the "
                "CPU has it. With f32 quantised checkpoints are dequantised",
                ""},
      &O::compute, OneOf{{"auto", "f32", "bf16"}});
  visit(Parameter{"quantize", "--quantize", "NAME",
                  "Quantise the target's weights of floats at load: none, a block format (q8_0, "
                  "q6_k, q5_k, q5_1, q5_0, q4_k, q4_1, q4_0, iq4_nl, iq4_xs, q3_k, q2_k), or the "
                  "best of 8 or 4 bits: int8, int4"},
        &O::quantize, OneOf{QuantizationNames()});
  visit(Parameter{"draft_quantize", "--draft-quantize", "NAME",
                  "The same for the draft's weights, of blocks too where the format is smaller; "
                  "auto is int4 for a large draft whose drafts gain from it"},
        &O::draft_quantize, OneOf{draft_quantizations});
  visit(
      Parameter{"draft_head_tokens", "--draft-head-tokens", "N",
                "Tokens that the draft can propose, those of the lowest ids: a smaller head takes "
                "less time. 0 for all; auto learns which are common, and how many pay",
                ""},
      &O::draft_head_tokens, Limits{.low = 0, .unset = kAutoDraftHeadTokens, .word = "auto"});
  visit(Parameter{"draft_window", "--draft-window", "N",
                  "The draft reads the first few and the last N tokens of a longer context; auto "
                  "keeps the reading of long prompts short, 0 reads all"},
        &O::draft_window, Limits{.low = 0, .unset = kAutoDraftWindow, .word = "auto"});
  visit(Parameter{"kv_cache", "--kv-cache", "NAME",
                  "Type of the caches: f32, bf16, or int8 with a scale per token and head; auto is "
                  "bf16 on a CUDA device and f32 on a CPU"},
        &O::kv_cache, OneOf{{"auto", "f32", "bf16", "int8"}});
  visit(Parameter{"draft_kv_cache", "--draft-kv-cache", "NAME",
                  "Type of the draft's cache; it affects speed alone", "as --kv-cache"},
        &O::draft_kv_cache, OneOf{{"auto", "f32", "bf16", "int8"}});
  visit(Parameter{"kv_memory_bytes", "--kv-memory", "SIZE",
                  "Memory of both caches, such as 512M or 2G", "a quarter of the free memory"},
        &O::kv_memory_bytes, Limits{.low = 1, .unset = kNone, .is_size = true});
  visit(Parameter{"draft_memory_bytes", "--draft-memory", "SIZE",
                  "Memory to draft from what earlier texts went on with, half of it for requests "
                  "without a cache_salt and a 32nd for each of 16 others; 0 for none"},
        &O::draft_memory_bytes, Limits{.low = 0, .is_size = true});
  visit(Parameter{"context", "-c,--context", "N",
                  "Limits the context: no prompt and answer have more tokens together",
                  "the model's context"},
        &O::context, Limits{.low = 1, .unset = kNone});
  visit(Parameter{"page_size", "--page-size", "N", "Tokens per cache page"}, &O::page_size,
        Limits{.low = 1, .high = 4096});
  visit(Parameter{"tensor_parallel", "--tensor-parallel", "N",
                  "Processes that compute the target's passes together, each its own part of every "
                  "layer, with the bits of one; --threads are those of each"},
        &O::tensor_parallel, Limits{.low = 1, .high = kMaxRanks});
  visit(Parameter{"draft_tensor_parallel", "--draft-tensor-parallel", "",
                  "They compute the draft's passes together, too", "the first one has the draft"},
        &O::draft_tensor_parallel);
  visit(Parameter{"rank_program"}, &O::rank_program);
  visit(Parameter{"rendezvous", "--rendezvous", "HOST:PORT",
                  "For processes on several machines, which are started with the same command and "
                  "--rank each: where rank 0 listens, as the others reach it. Rank 0 does the job, "
                  "the others follow it",
                  "all are on this machine"},
        &O::rendezvous);
  visit(Parameter{"rank", "--rank", "R", "With --rendezvous: which process this is, from 0", ""},
        &O::rank, Limits{.low = 0, .high = kMaxRanks - 1});
  visit(Parameter{"rendezvous_secret"}, &O::rendezvous_secret);
  visit(Parameter{"packed_weights", "--packed-weights", "DIR",
                  "Folder that caches large models' weights in the CPU's layout, so that later "
                  "starts are fast, and what speculation has learned; none for no cache",
                  "packed/ next to fetched models"},
        &O::packed_weights);
  visit(Parameter{"allow_unknown_config", "--allow-unknown-config", "KEY",
                  "A key of config.json that is ignored though it is not known and might change "
                  "the result; may be given again"},
        &O::allow_unknown_config);
  visit(Parameter{"kv_store", "--kv-store", "DIR",
                  "Folder that keeps both models' caches of prompts and answers, so that later "
                  "processes need not compute them again",
                  "none", kStoreGroup},
        &O::kv_store);
  visit(Parameter{"kv_store_bytes", "--kv-store-size", "SIZE",
                  "Limit of that folder's size, such as 20G; the least recently used pages leave "
                  "first",
                  "", kStoreGroup, "--kv-store"},
        &O::kv_store_bytes, Limits{.low = kMinStoreBytes, .is_size = true});
  visit(Parameter{"kv_transfer", "--kv-transfer", "HOST:PORT",
                  "Address at which other workers fetch cache pages, and from which pages are "
                  "fetched, as they reach it; port 0 is any that is free",
                  "none", kTransferGroup},
        &O::kv_transfer);
  visit(Parameter{"kv_transfer_secret"}, &O::kv_transfer_secret);
  visit(
      Parameter{"kv_transfer_bytes", "--kv-transfer-memory", "SIZE",
                "Limit of the memory that keeps prompts for other workers; the oldest leave first",
                "", kTransferGroup, "--kv-transfer"},
      &O::kv_transfer_bytes, Limits{.low = 1 << 20, .is_size = true});
  visit(Parameter{"kv_transfer_lease_seconds", "--kv-transfer-lease", "SECONDS",
                  "How long a prompt that no worker fetches is kept", "", kTransferGroup,
                  "--kv-transfer"},
        &O::kv_transfer_lease_seconds, Limits{.low = 1, .high = 86400});
  visit(Parameter{"kv_events", "--kv-events", "ENDPOINT",
                  "Where to publish what the prefix cache holds, in vLLM's format, for routers: an "
                  "endpoint of ZeroMQ such as tcp://*:5557",
                  "none", kEventGroup},
        &O::kv_events);
  visit(Parameter{"kv_events_replay", "--kv-events-replay", "ENDPOINT",
                  "Where subscribers ask for events that they have missed", "none", kEventGroup},
        &O::kv_events_replay);
  visit(Parameter{"kv_events_topic", "--kv-events-topic", "TOPIC",
                  "Topic of the events, such as kv@POD@MODEL for llm-d", "none", kEventGroup},
        &O::kv_events_topic);
  // No count of pages, rows or threads may overflow.
  visit(Parameter{"max_batch", "--max-batch", "N", "Sequences generated together", "", kLimitGroup},
        &O::max_batch, kBatchLimits);
  visit(Parameter{"max_generations"}, &O::max_generations, Limits{.low = 1});
  visit(Parameter{"chunk_tokens", "--chunk-tokens", "N", "Prompt tokens read per pass",
                  "1024 on a CUDA device, 256 on a CPU", kLimitGroup},
        &O::chunk_tokens, Limits{.low = 1, .high = 65536, .unset = kNone});
  visit(Parameter{"prefix_cache", "--no-prefix-cache", "",
                  "Forget prompts instead of keeping them for later requests", "", kLimitGroup},
        &O::prefix_cache);
  visit(Parameter{"warm_up"}, &O::warm_up);
}

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_ENGINE_PARAMETERS_H_
