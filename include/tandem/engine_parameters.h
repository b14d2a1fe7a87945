// The table of EngineOptions.
#ifndef TANDEM_INCLUDE_TANDEM_ENGINE_PARAMETERS_H_
#define TANDEM_INCLUDE_TANDEM_ENGINE_PARAMETERS_H_

#include "tandem/acceptance_rule.h"
#include "tandem/draft_tokens.h"
#include "tandem/drafter_kind.h"
#include "tandem/engine_options.h"
#include "tandem/number_formats.h"
#include "tandem/parameter.h"

namespace tandem {

// Headings of the help texts. A command has the options of some of these groups; an option without
// a group belongs to the first.
inline constexpr char kEngineGroup[] = "Models and machine";
inline constexpr char kStoreGroup[] = "Store";
inline constexpr char kTransferGroup[] = "Transfer";
inline constexpr char kEventGroup[] = "Events";
inline constexpr char kLimitGroup[] = "Limits";

inline constexpr Limits kBatchLimits = {.low = 1, .high = 65536};

// Calls visitor(Parameter, member, allowed) for every option that users can set. `allowed` is
// Limits for numbers, OneOf for names, and for an enumeration the function that parses its names,
// whose errors may name another option's field. Other options are visited without it.
template <typename Visitor>
void VisitEngineOptions(const Visitor& visit) {
  using O = EngineOptions;
  constexpr double kNone = 0;
  visit(Parameter{"target", "-m,--target", "PATH",
                  "Target model: a Hugging Face folder, a GGUF file or the name of a fetched model",
                  "the shipped storyteller-7m"},
        &O::target);
  visit(Parameter{"draft", "--draft", "PATH",
                  "Draft model or draft head, in the same forms (also -md). A draft without a "
                  "tokenizer uses the target's. self:FORMAT is the target's own weights in a "
                  "format of --quantize; self is self:int4. auto is the best known draft that is "
                  "here (`tandem drafts TARGET`)",
                  "the known draft of a target given by name, else none"},
        &O::draft);
  visit(Parameter{"drafter", "--drafter", "NAME",
                  "What proposes tokens: model (the draft), ngram (tokens that followed earlier in "
                  "the prompt or output), model+ngram, or none. With a draft head, eagle3 and "
                  "eagle3+ngram are other names for model and model+ngram",
                  "model+ngram with a draft, else ngram"},
        &O::drafter, ParseDrafterKind);
  visit(Parameter{"all_drafters"}, &O::all_drafters);
  visit(Parameter{"draft_tokens", "-k,--draft-tokens", "N",
                  "Maximum tokens proposed per round, or auto; 0 for plain decoding"},
        &O::draft_tokens, kDraftTokenLimits);
  visit(Parameter{"verifier", "--verifier", "NAME",
                  "Acceptance rule: exact_match, block or token. auto is exact_match with a seed, "
                  "at temperature 0, or if drafts are not sampled, else block"},
        &O::verifier, ParseAcceptanceRule);
  visit(
      Parameter{
          "device", "--device", "NAME",
          "cpu, cuda:N, or auto: the CUDA device with the most free memory if the models fit, else "
          "the CPU"},
      &O::device);
  visit(Parameter{"cuda_tune", "--cuda-tune", "FILE",
                  "Choice among a CUDA device's kernels with equal bits: load times them at load; "
                  "with a file, choices that it has for this device and driver are read, others "
                  "are timed and written; off is the built-in choice"},
        &O::cuda_tune);
  visit(Parameter{"threads", "--threads", "N", "CPU threads, at most one per processor",
                  "one per physical core"},
        &O::threads, Limits{.low = 1, .high = 4096, .unset = kNone});
  visit(Parameter{"compute", "--compute", "NAME",
                  "Type of the activations in CPU products with bf16 weights: f32, bf16; auto is "
                  "bf16 if the CPU supports it. f32 dequantises quantised checkpoints, and keeps "
                  "f16 weights on a device",
                  ""},
        &O::compute, ParseCpuCompute);
  visit(Parameter{"quantize", "--quantize", "NAME",
                  "Quantise the target's floating-point weights at load: none, a block format "
                  "(q8_0, q6_k, q5_k, q5_1, q5_0, q4_k, q4_1, q4_0, iq4_nl, iq4_xs, q3_k, q2_k), "
                  "or int8 or int4 for the best format of 8 or 4 bits"},
        &O::quantize, ParseQuantization);
  visit(Parameter{"draft_quantize", "--draft-quantize", "NAME",
                  "The same for the draft's weights, including weights already quantised to a "
                  "larger format; auto is int4 for a large draft if that is expected to pay off"},
        &O::draft_quantize, ParseDraftQuantization);
  visit(
      Parameter{
          "draft_head_tokens", "--draft-head-tokens", "N",
          "Number of tokens that the draft can propose, those with the lowest ids; a smaller head "
          "takes less time. 0 for all; auto learns which tokens are common and how many pay off",
          ""},
      &O::draft_head_tokens, Limits{.low = 0, .unset = kAutoDraftHeadTokens, .word = "auto"});
  visit(Parameter{"draft_window", "--draft-window", "N",
                  "The draft reads only the first few and the last N tokens of a longer context; "
                  "auto keeps reading long prompts cheap, 0 reads all tokens"},
        &O::draft_window, Limits{.low = 0, .unset = kAutoDraftWindow, .word = "auto"});
  visit(Parameter{"draft_mask_token", "--draft-mask-token", "ID",
                  "Mask token with which a draft model that was trained for it proposes several "
                  "tokens in one pass: auto is the one that its files name, none drafts a token in "
                  "each pass"},
        &O::draft_mask_token, ParseMaskToken);
  visit(Parameter{"kv_cache", "--kv-cache", "NAME",
                  "Type of the caches: f32, bf16, or int8 with a scale per token and head; auto is "
                  "bf16 on a CUDA device and f32 on a CPU"},
        &O::kv_cache, ParseKvCacheType);
  visit(Parameter{"draft_kv_cache", "--draft-kv-cache", "NAME",
                  "Type of the draft's cache; it affects only speed", "the same as --kv-cache"},
        &O::draft_kv_cache, ParseKvCacheType);
  visit(Parameter{"kv_memory_bytes", "--kv-memory", "SIZE",
                  "Memory for both caches, such as 512M or 2G", "a quarter of the free memory"},
        &O::kv_memory_bytes, Limits{.low = 1, .unset = kNone, .is_size = true});
  visit(Parameter{"draft_memory_bytes", "--draft-memory", "SIZE",
                  "Memory for drafting from earlier texts: half for requests without a cache_salt, "
                  "and a 32nd for each of 16 salts; 0 turns it off"},
        &O::draft_memory_bytes, Limits{.low = 0, .is_size = true});
  visit(Parameter{"draft_texts", "--draft-text", "F",
                  "A text that outputs may repeat in parts, to draft from: a file of text, or JSON "
                  "lines in a file that ends in .jsonl, strings or {\"text\": ...}; may be given "
                  "again"},
        &O::draft_texts);
  visit(Parameter{"draft_text_bytes", "--draft-text-memory", "SIZE",
                  "Maximum memory for such texts, 8 bytes a token: half for those without a "
                  "cache_salt, and at most an eighth for each salt; 0 turns them off"},
        &O::draft_text_bytes, Limits{.low = 0, .is_size = true});
  visit(Parameter{"context", "-c,--context", "N",
                  "Maximum number of tokens of a prompt and its answer together",
                  "the model's context"},
        &O::context, Limits{.low = 1, .unset = kNone});
  visit(Parameter{"page_size", "--page-size", "N", "Tokens per cache page"}, &O::page_size,
        Limits{.low = 1, .high = 4096});
  visit(Parameter{"tensor_parallel", "--tensor-parallel", "N",
                  "Number of processes that compute the target's passes together. Each holds a "
                  "part of every layer; the output has the same bits as with one process. "
                  "--threads counts per process"},
        &O::tensor_parallel, Limits{.low = 1, .high = kMaxRanks});
  visit(Parameter{"draft_tensor_parallel", "--draft-tensor-parallel", "",
                  "Compute the draft's passes with all of these processes, too",
                  "only rank 0 runs the draft"},
        &O::draft_tensor_parallel);
  visit(Parameter{"rank_program"}, &O::rank_program);
  visit(Parameter{"rendezvous", "--rendezvous", "HOST:PORT",
                  "For processes on several machines: the address at which rank 0 listens, as the "
                  "other ranks reach it. Start each process with the same command and its own "
                  "--rank; rank 0 does the job and the others follow it",
                  "all on this machine"},
        &O::rendezvous);
  visit(
      Parameter{"rank", "--rank", "R", "With --rendezvous: the index of this process, from 0", ""},
      &O::rank, Limits{.low = 0, .high = kMaxRanks - 1});
  visit(Parameter{"rendezvous_secret"}, &O::rendezvous_secret);
  visit(Parameter{"packed_weights", "--packed-weights", "DIR",
                  "Folder that caches large models' weights in the CPU's layout, so that later "
                  "starts are fast, and what speculation has learned; none turns it off",
                  "packed/ next to fetched models"},
        &O::packed_weights);
  visit(Parameter{"packed_weights_bytes", "--packed-weights-size", "SIZE",
                  "Maximum size of the packed weights in that folder; the least recently used are "
                  "removed first. none for no limit"},
        &O::packed_weights_bytes,
        Limits{.low = 1, .unset = kNone, .word = "none", .is_size = true});
  visit(Parameter{"allow_unknown_config", "--allow-unknown-config", "KEY",
                  "Ignore this unknown key of config.json, although it might change the result; "
                  "may be given again"},
        &O::allow_unknown_config);
  visit(Parameter{"kv_store", "--kv-store", "DIR",
                  "Folder that keeps both models' caches of prompts and answers, so that later "
                  "processes need not recompute them",
                  "none", kStoreGroup},
        &O::kv_store);
  visit(Parameter{"kv_store_bytes", "--kv-store-size", "SIZE",
                  "Maximum size of that folder, such as 20G; the least recently used pages are "
                  "evicted first",
                  "", kStoreGroup, "--kv-store"},
        &O::kv_store_bytes, Limits{.low = kMinStoreBytes, .is_size = true});
  visit(Parameter{"kv_transfer", "--kv-transfer", "HOST:PORT",
                  "Exchange cache pages with other workers, which reach this one at this address; "
                  "port 0 is any free port",
                  "none", kTransferGroup},
        &O::kv_transfer);
  visit(Parameter{"kv_transfer_secret"}, &O::kv_transfer_secret);
  visit(Parameter{"kv_transfer_peers", "--kv-transfer-peers", "NETWORKS",
                  "Networks to which a request may make this server connect, such as 10.0.0.0/8 or "
                  "10.0.0.7:7777",
                  "the network of HOST", kTransferGroup, "--kv-transfer"},
        &O::kv_transfer_peers);
  visit(Parameter{"kv_transfer_fabric", "--kv-transfer-fabric", "NAME",
                  "What carries pages between workers: tcp, or ucx for RDMA", "", kTransferGroup,
                  "--kv-transfer"},
        &O::kv_transfer_fabric, OneOf{{"tcp", "ucx"}});
  visit(
      Parameter{"kv_transfer_bytes", "--kv-transfer-memory", "SIZE",
                "Maximum memory that holds prompts for other workers; the oldest are evicted first",
                "", kTransferGroup, "--kv-transfer"},
      &O::kv_transfer_bytes, Limits{.low = 1 << 20, .is_size = true});
  visit(Parameter{"kv_transfer_lease_seconds", "--kv-transfer-lease", "SECONDS",
                  "How long a prompt is kept for a worker to fetch", "", kTransferGroup,
                  "--kv-transfer"},
        &O::kv_transfer_lease_seconds, Limits{.low = 1, .high = 86400});
  visit(Parameter{"kv_events", "--kv-events", "ENDPOINT",
                  "ZeroMQ endpoint, such as tcp://*:5557, at which the contents of the prefix "
                  "cache are published for routers, in vLLM's format",
                  "none", kEventGroup},
        &O::kv_events);
  visit(Parameter{"kv_events_replay", "--kv-events-replay", "ENDPOINT",
                  "ZeroMQ endpoint at which subscribers ask for events that they have missed",
                  "none", kEventGroup},
        &O::kv_events_replay);
  visit(Parameter{"kv_events_topic", "--kv-events-topic", "TOPIC",
                  "Topic of the events, such as kv@POD@MODEL for llm-d", "none", kEventGroup},
        &O::kv_events_topic);
  // These limits keep counts of pages, rows and threads from overflowing.
  visit(Parameter{"max_batch", "--max-batch", "N", "Maximum number of sequences generated together",
                  "", kLimitGroup},
        &O::max_batch, kBatchLimits);
  visit(Parameter{"max_generations"}, &O::max_generations, Limits{.low = 1});
  visit(Parameter{"chunk_tokens", "--chunk-tokens", "N",
                  "Maximum number of prompt tokens read per pass",
                  "1024 on a CUDA device, 256 on a CPU", kLimitGroup},
        &O::chunk_tokens, Limits{.low = 1, .high = 65536, .unset = kNone});
  visit(Parameter{"prefix_cache", "--no-prefix-cache", "", "Do not keep prompts for later requests",
                  "", kLimitGroup},
        &O::prefix_cache);
  visit(Parameter{"warm_up"}, &O::warm_up);
}

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_ENGINE_PARAMETERS_H_
