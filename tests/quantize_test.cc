// Models that `tandem quantize` writes.
#include "kernels/quantize.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/source_path_testing.h"
#include "base/thread_pool.h"
#include "draft/vocabulary_map.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/checkpoint/gguf.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_tensors.h"
#include "model/checkpoint/weights.h"
#include "model/transformer.h"
#include "tandem/chat_template.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"
#include "tests/folder_testing.h"
#include "tests/golden_file.h"
#include "tests/model_testing.h"
#include "tools/checkpoints/quantized_model.h"
#include "tools/checkpoints/random_model.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class QuantizedModelTest : public FolderTest {
 protected:
  std::string MakeModel(const std::string& shape) const {
    const auto parsed = RandomModelShape::Parse(shape);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_TRUE(WriteRandomModel(*parsed, 7, Path("model"), [](int64_t) {}).ok());
    return Path("model");
  }
  static absl::StatusOr<QuantizedModel> Quantize(const std::string& source, DType dtype,
                                                 const std::string& out) {
    return WriteQuantizedModel(source, dtype, out, [](int64_t, int64_t) {});
  }

  // Generates seeded tokens with their log-probabilities.
  static absl::StatusOr<Completion> Generate(const std::string& folder,
                                             Quantization quantize = Quantization::kNone) {
    EngineOptions options{.target = folder, .drafter = DrafterKind::kNone, .quantize = quantize};
    options.kv_memory_bytes = 1 << 24;
    auto engine = Engine::Create(options);
    if (!engine.ok()) return engine.status();
    Request request;
    request.prompt_ids = {5, 100, 17};
    request.max_tokens = 20;
    request.sampling.temperature = 0.8f;
    request.seed = 3;
    request.ignore_eos = true;
    request.logprobs.num_top = 2;
    return (*engine)->Generate(request);
  }

  // Expects that both tokenizers encode and decode texts equally, including ids of the model that
  // do not have a token.
  static void ExpectSameTexts(const std::string& folder, const std::string& file) {
    const auto wanted = *Tokenizer::Load(folder);
    const auto read = *Tokenizer::Load(file);
    const int vocab_size = ReadModelConfig(folder)->vocab_size;
    for (TokenId id = 0; id < vocab_size; ++id) {
      for (const bool skip_special : {false, true}) {
        EXPECT_EQ(read->Decode({&id, 1}, skip_special), wanted->Decode({&id, 1}, skip_special))
            << id;
      }
      EXPECT_EQ(read->TextOf(id, true).has_value(), wanted->TextOf(id, true).has_value()) << id;
    }
    // A draft with one and a target with the other have the same ids.
    EXPECT_TRUE(
        VocabularyMap::HasSameIds({wanted.get(), vocab_size, {}}, {read.get(), vocab_size, {}}));
    const std::string text =
        "It's  1 king\u0308, \n<s></s><|endoftext|><|im_end|>[PAD299] in 2024!";
    for (const SpecialTokens special : {SpecialTokens::kParse, SpecialTokens::kPlain}) {
      const auto ids = *wanted->Encode(text, special);
      EXPECT_EQ(*read->Encode(text, special), ids);
      EXPECT_EQ(read->WithTemplate(ids), wanted->WithTemplate(ids));
    }
  }
};

TEST_F(QuantizedModelTest, KeepsAHeadThatTheConfigurationCallsTied) {
  const std::string model = MakeModel("base=tiny,tied=0");
  ASSERT_TRUE(Quantize(model, DType::kQ8_0, Path("untied")).ok());
  auto config = SortedJson::parse(Read("model/config.json"));
  config["tie_word_embeddings"] = true;
  Write("model/config.json", config.dump());
  ASSERT_TRUE(Quantize(model, DType::kQ8_0, Path("claim")).ok());
  EXPECT_EQ(Read("claim/model.gguf"), Read("untied/model.gguf"));
  EXPECT_EQ(Generate(Path("claim"))->token_ids, Generate(Path("untied"))->token_ids);
  ASSERT_TRUE(Quantize(model, DType::kQ8_0, Path("claim.gguf")).ok());
  EXPECT_FALSE(ReadModelConfig(Path("claim.gguf"))->tied_embeddings);
}

TEST_F(QuantizedModelTest, RefusesATensorThatItWouldDrop) {
  auto config = SortedJson::parse(*ReadFile(GoldenModelPath("qwen2-fp16") + "/config.json"));
  config["model_type"] = "llama";  // has no biases
  config["architectures"] = {"LlamaForCausalLM"};
  Write("model/config.json", config.dump());
  fs::copy(GoldenModelPath("qwen2-fp16") + "/model.safetensors", Path("model/model.safetensors"));
  EXPECT_THAT(std::string(Quantize(Path("model"), DType::kQ8_0, Path("out")).status().message()),
              HasSubstr("\"model.layers.0.self_attn.k_proj.bias\" has no place in a llama model"));
}

// Inputs whose size is not a multiple of 32, which stay floats; a separate head and a tied one;
// rows that GGUF files store in another order; and a file that contains its tokenizer and end
// tokens.
TEST_F(QuantizedModelTest, GeneratesTheSameAsQuantisingAtLoad) {
  const std::string shapes[] = {"base=tiny,hidden=72,ffn=224",
                                "base=tiny,tied=0,dtype=float16",
                                "base=tiny,family=qwen3,dtype=float32",
                                "base=tiny,family=mistral",
                                "base=tiny,family=qwen2,hidden=256,ffn=512,head_dim=64",
                                "base=tiny,family=qwen3_moe,hidden=256,experts=11,"
                                "experts_per_token=3,expert_ffn=96"};
  for (const std::string& shape : shapes) {
    const std::string model = MakeModel(shape);
    const auto floats = Generate(model);
    ASSERT_TRUE(floats.ok()) << floats.status();
    for (const auto& [quantize, dtype] :
         {std::pair(Quantization::kQ8_0, DType::kQ8_0), {Quantization::kQ5_1, DType::kQ5_1}}) {
      for (const char* kind : {"", ".gguf"}) {
        const std::string out = Path(absl::StrCat(NameOf(dtype), kind));
        const auto written = Quantize(model, dtype, out);
        ASSERT_TRUE(written.ok()) << shape << ": " << written.status();
        EXPECT_LT(written->bytes_after, written->bytes_before);
        const auto at_load = Generate(model, quantize);
        const auto from_file = Generate(out);
        ASSERT_TRUE(at_load.ok() && from_file.ok()) << shape << ": " << from_file.status();
        EXPECT_EQ(at_load->token_ids, from_file->token_ids);
        for (size_t i = 0; i < at_load->logprobs.size(); ++i) {
          EXPECT_EQ(at_load->logprobs[i].logprob, from_file->logprobs[i].logprob);
          EXPECT_NE(at_load->logprobs[i].logprob, floats->logprobs[i].logprob);
        }
        fs::remove_all(out);
      }
    }
    fs::remove_all(model);
  }
}

// Every family: norms with an offset, joined tensors, heads that are rotated in part, biases, and
// values that only keys hold. A folder is exact; a file rounds the scaling of positions to 32 bits.
TEST_F(QuantizedModelTest, EveryFamilyIsReadBack) {
  std::vector<std::string> refused;
  for (const auto& entry : fs::directory_iterator(GoldenModelPath(""))) {
    const std::string name = entry.path().filename();
    SCOPED_TRACE(name);
    const auto at_load = Generate(entry.path(), Quantization::kQ8_0);
    ASSERT_TRUE(at_load.ok()) << at_load.status();
    for (const auto& [kind, tolerance] : {std::pair("", 0.0), {".gguf", 1e-4}}) {
      const std::string out = Path(absl::StrCat(name, kind));
      const auto written = Quantize(entry.path(), DType::kQ8_0, out);
      if (!written.ok()) {
        refused.push_back(absl::StrCat(name, kind, ": ", written.status().message()));
        EXPECT_FALSE(fs::exists(out));
        continue;
      }
      ExpectSameTexts(entry.path(), out);
      const auto read = Generate(out);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(read->token_ids, at_load->token_ids);
      for (size_t i = 0; i < at_load->logprobs.size(); ++i) {
        EXPECT_NEAR(read->logprobs[i].logprob, at_load->logprobs[i].logprob, tolerance) << kind;
      }
    }
  }
  std::sort(refused.begin(), refused.end());
  const auto says = [](const std::string& name, const std::string& what) {
    return testing::AllOf(
        testing::StartsWith(name + ".gguf: "),
        HasSubstr(absl::StrCat("config.json: ", what, " has no place in a GGUF file")));
  };
  const std::string scale = "query_pre_attn_scalar or another scale of scores";
  EXPECT_THAT(refused, testing::ElementsAre(says("gemma2", scale), says("gemma3-nested", scale),
                                            says("gemma3-text", scale),
                                            says("mistral-window", "a sliding window"),
                                            says("qwen3-moe-mixed",
                                                 "which layers have experts "
                                                 "(decoder_sparse_step, mlp_only_layers)")));
}

// Quantises a copy of a golden model whose configuration is patched.
TEST_F(QuantizedModelTest, ValuesWithoutAGgufKeyAreRefusedBeforeWriting) {
  const auto written_with = [&](const std::string& name, const SortedJson& patch) {
    fs::remove_all(Path("patched"));
    fs::remove(Path("patched.gguf"));
    fs::copy(GoldenModelPath(name), Path("patched"));
    const std::string path = Path("patched/config.json");
    std::ifstream in(path);
    SortedJson config = SortedJson::parse(in);
    config.update(patch);
    fs::permissions(path, fs::perms::owner_all);
    std::ofstream(path) << config;
    return Quantize(Path("patched"), DType::kQ8_0, Path("patched.gguf")).status();
  };
  const auto error = [&](const std::string& name, const SortedJson& patch) {
    const absl::Status status = written_with(name, patch);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << patch;
    EXPECT_FALSE(fs::exists(Path("patched.gguf")));
    return std::string(status.message());
  };
  for (const auto& [name, head_dim] : {std::pair("gemma2", 20), {"gemma3-text", 24}}) {
    const absl::Status status = written_with(name, {{"query_pre_attn_scalar", head_dim}});
    ASSERT_TRUE(status.ok()) << status;
    const ModelConfig folder = *ReadModelConfig(Path("patched"));
    const ModelConfig file = *ReadModelConfig(Path("patched.gguf"));
    EXPECT_EQ(file.windows, folder.windows);
    EXPECT_EQ(file.rotations, folder.rotations);
    const auto at_load = Generate(Path("patched"), Quantization::kQ8_0);
    const auto read = Generate(Path("patched.gguf"));
    ASSERT_TRUE(at_load.ok() && read.ok()) << at_load.status() << read.status();
    EXPECT_EQ(read->token_ids, at_load->token_ids);
  }
  EXPECT_TRUE(written_with("gemma2", {{"query_pre_attn_scalar", 20},
                                      {"layer_types",
                                       {"full_attention", "sliding_attention", "full_attention",
                                        "full_attention"}}})
                  .ok());
  EXPECT_THAT(ReadModelConfig(Path("patched.gguf"))->windows, testing::ElementsAre(0, 9, 0, 0));
  EXPECT_THAT(error("gemma2", {{"query_pre_attn_scalar", 20}, {"attn_logit_softcapping", nullptr}}),
              HasSubstr("attn_logit_softcapping has no place"));
  EXPECT_THAT(
      error("gemma3-text", {{"query_pre_attn_scalar", 24}, {"attn_logit_softcapping", 7.0}}),
      HasSubstr("attn_logit_softcapping"));
  EXPECT_THAT(error("smollm3", {{"no_rope_layers", {1, 0, 1, 0}}}),
              HasSubstr("which layers have positions has no place"));
  EXPECT_THAT(error("qwen3-moe", {{"norm_topk_prob", false}}),
              HasSubstr("norm_topk_prob has no place"));
  EXPECT_THAT(error("mixtral", {{"sliding_window", 16}}), HasSubstr("a sliding window has no pl"));
  SortedJson yarn = {{"rope_type", "yarn"},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 32},
                     {"beta_fast", 16.0}};
  EXPECT_THAT(error("llama-yarn", {{"rope_scaling", yarn}}),
              HasSubstr("key \"llama.rope.scaling.yarn_beta_fast\": found 16, allowed: 32"));
  yarn.erase("beta_fast");
  yarn["truncate"] = false;
  EXPECT_THAT(error("llama-yarn", {{"rope_scaling", yarn}}),
              HasSubstr("rope_scaling has no place"));
  const SortedJson llama3 = {{"rope_type", "llama3"},
                             {"factor", 4.0},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0},
                             {"original_max_position_embeddings", 8}};
  EXPECT_THAT(
      error("qwen2-yarn", {{"rope_scaling", llama3}}),
      HasSubstr(
          "tensor \"rope_freqs.weight\": found a tensor, allowed: no such tensor in this qwen2"));
}

// Rows of 320 weights: the last block of a K format is short in memory, but files have whole
// blocks.
TEST_F(QuantizedModelTest, FilesHaveWholeBlocks) {
  const std::string model = MakeModel("base=tiny,hidden=320,heads=5,kv_heads=5,ffn=512");
  for (const auto& [dtype, other] : {std::pair(DType::kQ4K, DType::kQ4_1),
                                     {DType::kQ5K, DType::kQ5_1},
                                     {DType::kQ6K, DType::kQ8_0},
                                     {DType::kQ3K, DType::kIq4Nl}}) {
    const std::string out = Path(absl::StrCat(NameOf(dtype), ".gguf"));
    ASSERT_TRUE(Quantize(model, dtype, out).ok());
    const auto weights = *Weights::Open(out);
    const auto dtype_of = [&](const char* name, int64_t rows, int64_t cols) {
      return weights->Get(name, {rows, cols})->dtype;
    };
    EXPECT_EQ(dtype_of("model.layers.0.mlp.gate_proj.weight", 512, 320), other);
    EXPECT_EQ(dtype_of("model.layers.1.mlp.down_proj.weight", 320, 512), dtype);
    EXPECT_EQ(weights->Get("model.norm.weight", {320})->dtype, DType::kF32);
    EXPECT_TRUE(Generate(out).ok());
    EXPECT_TRUE(Generate(model, *ParseQuantization(NameOf(dtype))).ok());
  }
}

// Experts are stacked by number, 10 after 9, and their router is f32.
TEST_F(QuantizedModelTest, ExpertsAreStacked) {
  const std::string model = MakeModel(
      "base=tiny,family=qwen3_moe,hidden=256,experts=12,experts_per_token=3,expert_ffn=288");
  const auto written = Quantize(model, DType::kQ4K, Path("experts.gguf"));
  ASSERT_TRUE(written.ok()) << written.status();
  const int layers = ReadModelConfig(model)->num_layers;
  EXPECT_EQ(written->num_quantized, layers * (4 + 3 * 12) + 1);
  const auto file = *GgufFile::Open(Path("experts.gguf"));
  std::vector<std::string> found;
  for (const GgufTensor& tensor : file->tensors()) {
    if (!absl::StartsWith(tensor.name, "blk.1.ffn_")) continue;
    found.push_back(absl::StrCat(tensor.name, " ", NameOf(tensor.dtype), ShapeText(tensor.shape)));
  }
  EXPECT_THAT(found,
              testing::UnorderedElementsAre("blk.1.ffn_norm.weight float32[256]",
                                            "blk.1.ffn_gate_inp.weight float32[12, 256]",
                                            "blk.1.ffn_gate_exps.weight q4_k[12, 288, 256]",
                                            "blk.1.ffn_up_exps.weight q4_k[12, 288, 256]",
                                            "blk.1.ffn_down_exps.weight q4_1[12, 256, 288]"));
  const auto floats = *ArrangeWeights(*Weights::Open(model), *ReadModelConfig(model));
  const auto blocks = *Weights::Open(Path("experts.gguf"));
  for (int expert = 0; expert < 12; ++expert) {
    const std::string name = absl::StrCat("model.layers.1.mlp.experts.", expert, ".up_proj.weight");
    ThreadPool pool(1);
    const std::vector<std::byte> wanted =
        QuantizeMatrix(*floats->Get(name, {288, 256}), DType::kQ4K, &pool);
    EXPECT_EQ(std::memcmp(blocks->Get(name, {288, 256})->data, wanted.data(), 288 * 144), 0);
  }
}

// Compares the logits of rows that go through experts in blocks, in passes of 1, 3 and all rows.
TEST_F(QuantizedModelTest, RowsOfQuantisedExpertsHaveTheSameBitsInEveryBatch) {
  const std::string model = MakeModel(
      "base=tiny,family=qwen3_moe,hidden=256,experts=6,experts_per_token=2,expert_ffn=256");
  ASSERT_TRUE(Quantize(model, DType::kQ4K, Path("experts.gguf")).ok());
  for (const std::string& isa : CpuIsas()) {
    SCOPED_TRACE(isa);
    const auto backend = *MakeCpuBackend({.num_threads = 2, .isa = isa});
    const auto transformer = *Transformer::Load(Path("experts.gguf"), backend.get());
    const auto cache = *PagedKvCache::Create(backend.get(), transformer->kv_layout(4), 64);
    const std::vector<TokenId> ids = {5, 100, 17, 3, 90, 41, 7, 8, 9, 60, 61, 62, 5};
    std::vector<float> alone;
    for (const size_t chunk : {size_t{1}, size_t{3}, ids.size()}) {
      KvSequence kv = cache->NewSequence(0);
      const std::vector<float> logits = Feed(*transformer, &kv, ids, chunk);
      if (alone.empty()) alone = logits;
      ASSERT_EQ(logits.size(), alone.size());
      EXPECT_EQ(std::memcmp(logits.data(), alone.data(), alone.size() * sizeof(float)), 0) << chunk;
    }
  }
}

TEST_F(QuantizedModelTest, AFileIsSelfContained) {
  const std::string source = ShippedModelPath("storyteller-1m");
  const std::string out = Path("story.gguf");
  ASSERT_TRUE(Quantize(source, DType::kQ8_0, out).ok());
  const auto ours = *Tokenizer::Load(source);
  const auto written = *Tokenizer::Load(out);
  const std::string text = "Once upon a time, in 1812, there lived\n\n  an old kïng.<|endoftext|>";
  for (const SpecialTokens special : {SpecialTokens::kParse, SpecialTokens::kPlain}) {
    const auto ids = *ours->Encode(text, special);
    EXPECT_EQ(*written->Encode(text, special), ids);
    EXPECT_EQ(written->Decode(ids), ours->Decode(ids));
    EXPECT_EQ(written->WithTemplate(ids), ours->WithTemplate(ids));
  }
  EXPECT_EQ(*(*GgufFile::Open(out))->GetNumber("general.file_type"), 7);  // mostly q8_0
  const ModelConfig config = *ReadModelConfig(out);
  EXPECT_EQ(config.eos_token_ids, ReadModelConfig(source)->eos_token_ids);
  EXPECT_EQ(config.context_length, ReadModelConfig(source)->context_length);
}

TEST_F(QuantizedModelTest, AFileHasBothChatTemplates) {
  fs::copy(ShippedModelPath("storyteller-1m"), Path("talks"));
  fs::permissions(Path("talks/tokenizer_config.json"), fs::perms::owner_all);
  std::ofstream(Path("talks/tokenizer_config.json"))
      << R"({"eos_token": "<|endoftext|>", "chat_template": [
             {"name": "default", "template": "{{ messages[0].content }}{{ eos_token }}"},
             {"name": "tool_use", "template": "{{ tools[0] }}"}]})";
  ASSERT_TRUE(Quantize(Path("talks"), DType::kQ8_0, Path("talks.gguf")).ok());
  const auto chat = ChatTemplate::Load(Path("talks.gguf"));
  ASSERT_TRUE(chat.ok()) << chat.status();
  ChatInput input = ChatInputOf({{.role = "user", .content = "Hi"}}, absl::UnixEpoch());
  EXPECT_EQ(chat->Render(input)->back().text, "<|endoftext|>");
  input.tools = SortedJson::array({"a tool"});
  EXPECT_EQ(chat->Render(input)->back().text, "a tool");
}

// A parallel draft remains one, as a file and as a folder.
TEST_F(QuantizedModelTest, KeepsTheMaskOfAParallelDraft) {
  const std::string draft = ParallelGoldenPath("qwen2-parallel");
  const TokenId mask = ReadModelConfig(draft)->mask_token;
  ASSERT_EQ(mask, 405);
  for (const char* const out : {"draft.gguf", "folder"}) {
    ASSERT_TRUE(Quantize(draft, DType::kQ8_0, Path(out)).ok());
    EXPECT_EQ(ReadModelConfig(Path(out))->mask_token, mask) << out;
  }
}

TEST_F(QuantizedModelTest, AGgufFileOfFloatsKeepsItsKeys) {
  const std::string source = GoldenGgufPath("llama-small.F32.gguf");
  const std::string out = Path("small.gguf");
  ASSERT_TRUE(Quantize(source, DType::kQ4_0, out).ok());
  const auto before = *GgufFile::Open(source);
  const auto after = *GgufFile::Open(out);
  for (const std::string& key : before->keys()) {
    if (key == "general.file_type" || key == "general.alignment") continue;
    ASSERT_TRUE(after->Has(key)) << key;
    EXPECT_EQ(after->EncodedValue(key), before->EncodedValue(key)) << key;
  }
  const auto at_load = Generate(source, Quantization::kQ4_0);
  const auto from_file = Generate(out);
  ASSERT_TRUE(at_load.ok() && from_file.ok()) << at_load.status() << from_file.status();
  EXPECT_EQ(at_load->token_ids, from_file->token_ids);
}

TEST_F(QuantizedModelTest, RefusesToQuantiseTwice) {
  const std::string model = MakeModel("tiny");
  ASSERT_TRUE(Quantize(model, DType::kQ8_0, Path("q8_0")).ok());
  EXPECT_THAT(std::string(Quantize(Path("q8_0"), DType::kQ4_0, Path("q4_0")).status().message()),
              AllOf(HasSubstr("model.gguf: tensor \""),
                    HasSubstr("dtype: found q8_0, allowed: float32, float16, bfloat16")));
  EXPECT_FALSE(fs::exists(Path("q4_0")));
  EXPECT_THAT(std::string(Generate(Path("q8_0"), Quantization::kQ4_0).status().message()),
              HasSubstr("quantize: found q4_0, allowed: none"));
  EXPECT_EQ(Quantize(model, DType::kQ8_0, Path("q8_0")).status().code(),
            absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(Quantize(model, DType::kQ8_0, Path("one.gguf")).ok());
  EXPECT_EQ(Quantize(model, DType::kQ8_0, Path("one.gguf")).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Quantize(model, DType::kQ8_0, Path("nowhere/one.gguf")).status().code(),
            absl::StatusCode::kNotFound);
}

// Returns a SentencePiece vocabulary as a tokenizer.json: every pair that forms a token is a merge.
SortedJson PiecesAsJson() {
  SortedJson tokenizer = SortedJson::parse(R"({
      "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
      "pre_tokenizer": null,
      "post_processor": null,
      "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
      "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
        "merges": ["a b", "b c", "ab c", "a bc", "\u2581 a", "\u2581 abc", "\u2581a bc",
                   "\u2581 \u2581"]}})");
  int id = 0;
  for (const char* const special : {"<unk>", "<s>", "</s>"}) {
    tokenizer["added_tokens"].push_back(
        {{"id", id}, {"content", special}, {"normalized", false}, {"special", true}});
    tokenizer["model"]["vocab"][special] = id++;
  }
  for (int byte = 0; byte < 256; ++byte) {
    tokenizer["model"]["vocab"][absl::StrFormat("<0x%02X>", byte)] = id++;
  }
  for (const char* const piece :
       {"\u2581", "a", "b", "c", "ab", "bc", "abc", "\u2581a", "\u2581abc", "\u2581\u2581"}) {
    tokenizer["model"]["vocab"][piece] = id++;
  }
  return tokenizer;
}

TEST_F(QuantizedModelTest, MergesOfPiecesBecomeScores) {
  const auto model = RandomModelShape::Parse("base=tiny,vocab=512");
  ASSERT_TRUE(model.ok() && WriteRandomModel(*model, 7, Path("pieces"), [](int64_t) {}).ok());
  const std::string path = Path("pieces/tokenizer.json");
  std::vector<SortedJson> all = {PiecesAsJson()};
  SortedJson plain = PiecesAsJson();  // like Gemma's, which does not prepend a space
  plain["normalizer"] = plain["normalizer"]["normalizers"][1];
  plain["decoder"]["decoders"].erase(3);
  all.push_back(plain);
  // A vocabulary that was trained on text. It is not in the repository.
  std::ifstream trained(SourcePath("../shared/golden/tokenizers/tok512-legacy/tokenizer.json"));
  if (trained) all.push_back(SortedJson::parse(trained));
  for (const SortedJson& tokenizer : all) {
    std::ofstream(path) << tokenizer;
    fs::remove(Path("pieces.gguf"));
    const absl::Status written =
        Quantize(Path("pieces"), DType::kQ8_0, Path("pieces.gguf")).status();
    ASSERT_TRUE(written.ok()) << written;
    ExpectSameTexts(Path("pieces"), Path("pieces.gguf"));
    const auto wanted = *Tokenizer::Load(Path("pieces"));
    const auto read = *Tokenizer::Load(Path("pieces.gguf"));
    for (int number = 0; number < 4096; ++number) {  // every text of 6 of these characters
      std::string text;
      for (int rest = number, i = 0; i < 6; ++i, rest /= 4) text += " abc"[rest % 4];
      ASSERT_EQ(*read->Encode(text, SpecialTokens::kParse),
                *wanted->Encode(text, SpecialTokens::kParse))
          << text;
    }
  }
  const auto error = [&](const char* patch) {
    std::ofstream(path) << PiecesAsJson().patch(SortedJson::parse(patch));
    const auto status = Quantize(Path("pieces"), DType::kQ8_0, Path("odd.gguf")).status();
    EXPECT_FALSE(fs::exists(Path("odd.gguf"))) << patch;
    return std::string(status.message());
  };
  EXPECT_THAT(error(R"([{"op": "remove", "path": "/model/merges/3"}])"),
              HasSubstr("tokenizer.json: the lack of a merge \"a\" \"bc\" has no place"));
  EXPECT_THAT(error(R"([{"op": "move", "from": "/model/merges/2", "path": "/model/merges/5"}])"),
              HasSubstr("the position of the merge \"ab\" \"c\", apart from other"));
  for (const char* const part : {"decoder", "normalizer"}) {
    EXPECT_THAT(
        error(absl::StrCat(R"([{"op": "replace", "value": null, "path": "/)", part, R"("}])")
                  .c_str()),
        HasSubstr("its combination of normalizer, pre_tokenizer and decoder has no place"));
  }
  EXPECT_THAT(error(R"([{"op": "remove", "path": "/model/vocab/<0x0A>"}])"),
              HasSubstr("the lack of a token <0x0A> has no place"));
  EXPECT_THAT(error(R"([{"op": "add", "path": "/model/ignore_merges", "value": true}])"),
              HasSubstr("model.ignore_merges has no place"));
}

// An added token has rules for where it is found, in addition to its text.
TEST_F(QuantizedModelTest, RulesOfAddedTokensAreNamed) {
  fs::copy(GoldenModelPath("qwen3-norm"), Path("odd"));  // its normaliser composes characters
  const std::string path = Path("odd/tokenizer.json");
  fs::permissions(path, fs::perms::owner_all);
  std::ifstream in(path);
  const SortedJson tokenizer = SortedJson::parse(in);
  const std::string text = tokenizer["added_tokens"][0]["content"];
  for (const std::string rule : {"lstrip", "rstrip", "single_word", "normalized"}) {
    SortedJson odd = tokenizer;
    odd["added_tokens"][0][rule] = true;
    std::ofstream(path) << odd;
    EXPECT_THAT(
        std::string(Quantize(Path("odd"), DType::kQ8_0, Path("odd.gguf")).status().message()),
        HasSubstr(absl::StrCat("tokenizer.json: \"", rule, "\" of the token \"", text,
                               "\" has no place in a GGUF file")));
    EXPECT_FALSE(fs::exists(Path("odd.gguf")));
  }
  std::ofstream(path) << tokenizer;
  EXPECT_TRUE(Quantize(Path("odd"), DType::kQ8_0, Path("odd.gguf")).ok());
}

TEST_F(QuantizedModelTest, TokenizersWithoutAGgufFormAreNamed) {
  const std::string source = ShippedModelPath("storyteller-1m");
  const auto error_with = [&](const std::string& file, const SortedJson& patch) {
    fs::remove_all(Path("odd"));
    fs::copy(source, Path("odd"));
    const std::string path = absl::StrCat(Path("odd"), "/", file);
    std::ifstream in(path);
    SortedJson json = SortedJson::parse(in);
    json.merge_patch(patch);
    std::ofstream(path) << json;
    EXPECT_TRUE(
        Quantize(Path("odd"), DType::kQ8_0, Path("folder")).ok());  // a folder can hold everything
    fs::remove_all(Path("folder"));
    const auto status = Quantize(Path("odd"), DType::kQ8_0, Path("odd.gguf")).status();
    EXPECT_FALSE(fs::exists(Path("odd.gguf")));
    return std::string(status.message());
  };
  EXPECT_THAT(error_with("tokenizer.json", {{"normalizer", {{"type", "Lowercase"}}}}),
              HasSubstr("tokenizer.json: the way its pre_tokenizer cuts texts has no place in a "
                        "GGUF file; with a folder as --out"));
  EXPECT_THAT(error_with("generation_config.json", {{"eos_token_id", {0, 1, 2, 3}}}),
              HasSubstr("a list of 4 end tokens has no place"));
  EXPECT_THAT(error_with("config.json", {{"model_type", "mistral"},
                                         {"architectures", {"MistralForCausalLM"}},
                                         {"sliding_window", 64}}),
              HasSubstr("config.json: a sliding window has no place"));

  fs::remove_all(Path("odd"));
  fs::copy(source, Path("odd"));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::remove(absl::StrCat(Path("odd"), "/", name));
  }
  fs::copy(SourcePath("tests/data/sentencepiece/plain.model"), Path("odd/tokenizer.model"));
  const auto status = Quantize(Path("odd"), DType::kQ8_0, Path("odd.gguf")).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tokenizer.model: a tokenizer of SentencePiece has no place in a GGUF "
                        "file; with a folder as --out"));
}

}  // namespace
}  // namespace tandem
