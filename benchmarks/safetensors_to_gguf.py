"""Writes a Hugging Face folder of safetensors as a GGUF file for llama.cpp, with the layout of llama.cpp's own converter.

The file holds the weights and the configuration. It has no tokenizer, because the comparisons use token ids, or made-up tokens
for programs that need a tokenizer. Runs in an environment with `gguf`.
"""
import glob
import json
import math
import os
import re
import struct

import gguf
import numpy

# Other architectures have the same name in GGUF as in config.json.
ARCHITECTURES = {"mistral": "llama", "mixtral": "llama", "gemma3_text": "gemma3", "qwen3_moe": "qwen3moe"}
PARTS = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm",
    "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp"}
EXPERT = re.compile(r"model\.layers\.(\d+)\.(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)\.weight")
STACKS = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps",
          "w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps"}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
PREFIXES = (("language_model.model.", "model."), ("model.language_model.", "model."), ("language_model.lm_head", "lm_head"))
OTHERS = ("vision_tower.", "vision_model.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")
GEMMA = ("gemma2", "gemma3")
# The keys of all architectures, and further keys of some: key in the file, key in config.json.
KEYS = {"context_length": "max_position_embeddings", "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
        "feed_forward_length": "intermediate_size", "vocab_size": "vocab_size"}
NORM = {"attention.layer_norm_rms_epsilon": "rms_norm_eps"}
FLOATS = {"cohere2": {"attention.layer_norm_epsilon": "layer_norm_eps", "logit_scale": "logit_scale"},
          "granite": {**NORM, "attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier",
                      "residual_scale": "residual_multiplier", "logit_scale": "logits_scaling"},
          "gemma2": {**NORM, "attn_logit_softcapping": "attn_logit_softcapping",
                     "final_logit_softcapping": "final_logit_softcapping"}}
NUMPY = {"F32": numpy.float32, "F16": numpy.float16}


def tensors(path, integers=False):
    """Yields the name and values of each tensor of a safetensors file: floats as float32, and integers if allowed."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
    data = numpy.memmap(path, dtype=numpy.uint8, mode="r", offset=8 + length)
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        bits = data[begin:end]
        if entry["dtype"] == "BF16":
            values = (bits.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
        elif entry["dtype"] in NUMPY:
            values = bits.view(NUMPY[entry["dtype"]]).astype(numpy.float32)
        elif integers and entry["dtype"] == "I32":
            values = bits.view(numpy.int32)
        else:
            raise ValueError(f"{path}: {name} is {entry['dtype']}; F32, F16 and BF16 can be written")
        yield name, values.reshape(entry["shape"])


def interleave_heads(values, num_heads):
    """Reorders the rows of a q or k projection for llama.cpp's rotary embedding, which rotates neighbouring rows.

    Hugging Face rotates row i of a head with row i + head_dim / 2; llama.cpp rotates rows 2 i and 2 i + 1.
    """
    rows = values.shape[0]
    split = values.reshape(num_heads, 2, rows // num_heads // 2, *values.shape[1:])
    return split.swapaxes(1, 2).reshape(values.shape)


class Converter:
    def __init__(self, folder, path):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.config = config = {**config, **config.get("text_config", {})}
        self.folder = folder
        self.architecture = ARCHITECTURES.get(config["model_type"], config["model_type"])
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.head_size = config.get("head_dim") or config["hidden_size"] // self.heads
        self.theta = (config.get("rope_parameters") or config).get("rope_theta", 10000.0)
        self.writer = gguf.GGUFWriter(path, self.architecture)

    def has(self, *architectures):
        return self.architecture in architectures

    def float32(self, key, value):
        self.writer.add_float32(f"{self.architecture}.{key}", float(value))

    def uint32(self, key, value):
        self.writer.add_uint32(f"{self.architecture}.{key}", int(value))

    def add_keys(self):
        config = self.config
        experts = config.get("num_local_experts", config.get("num_experts"))
        whole = {**{key: config[name] for key, name in KEYS.items()},
                 "attention.head_count": self.heads, "attention.head_count_kv": self.kv_heads,
                 "attention.key_length": self.head_size, "attention.value_length": self.head_size}
        if experts:
            whole.update({"expert_count": experts, "expert_used_count": config["num_experts_per_tok"]})
        if self.has("qwen3moe"):
            whole["expert_feed_forward_length"] = config["moe_intermediate_size"]
        if self.has(*GEMMA, "cohere2", "phi3"):
            whole["attention.sliding_window"] = config["sliding_window"] or 0
        if self.has("gemma3"):
            whole["attention.sliding_window_pattern"] = config.get("sliding_window_pattern", 6)
        for key, value in whole.items():
            self.uint32(key, value)
        for key, name in FLOATS.get(self.architecture, NORM).items():
            self.float32(key, config[name])
        self.add_rope()

    def add_rope(self):
        config = self.config
        scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        turned = config.get("partial_rotary_factor", 0.5 if self.has("glm4") else 1.0)
        self.uint32("rope.dimension_count", self.head_size * turned)
        self.float32("rope.freq_base", self.theta)
        if kind == "default":
            return
        if kind in ("linear", "yarn"):
            self.writer.add_string(f"{self.architecture}.rope.scaling.type", kind)
            self.float32("rope.scaling.factor", scaling["factor"])
        if kind == "yarn":
            self.uint32("rope.scaling.original_context_length", scaling["original_max_position_embeddings"])
        elif kind == "llama3":
            self.writer.add_tensor("rope_freqs.weight", self.llama3_divisors(scaling))
        elif kind == "longrope":
            self.add_longrope(scaling)
        elif kind != "linear":
            raise ValueError(f"{self.folder}: rope_scaling {kind} cannot be written")

    def add_longrope(self, scaling):
        original = scaling.get("original_max_position_embeddings", self.config.get("original_max_position_embeddings"))
        stretch = scaling.get("factor", self.config["max_position_embeddings"] / original)
        self.writer.add_string(f"{self.architecture}.rope.scaling.type", "longrope")
        self.uint32("rope.scaling.original_context_length", original)
        self.float32("rope.scaling.attn_factor", math.sqrt(1 + math.log(stretch) / math.log(original)))
        for which in ("long", "short"):
            self.writer.add_tensor(f"rope_factors_{which}.weight", numpy.array(scaling[f"{which}_factor"], dtype=numpy.float32))

    def llama3_divisors(self, scaling):
        low = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
        high = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
        divisors = []
        for i in range(0, self.head_size, 2):
            wavelength = 2 * math.pi * self.theta ** (i / self.head_size)
            smooth = (scaling["original_max_position_embeddings"] / wavelength - scaling["low_freq_factor"]) / (
                scaling["high_freq_factor"] - scaling["low_freq_factor"])
            divisors.append(1 if wavelength < high else scaling["factor"] if wavelength > low
                            else 1 / ((1 - smooth) / scaling["factor"] + smooth))
        return numpy.array(divisors, dtype=numpy.float32)

    def name(self, stored):
        """Returns the name in the file; None for a tensor that the file does not have."""
        if stored.startswith(OTHERS):
            return None
        for prefix, replacement in PREFIXES:
            if stored.startswith(prefix):
                stored = replacement + stored[len(prefix):]
        stem, kind = stored.rsplit(".", 1)
        if stem == "lm_head" and self.has(*GEMMA):
            return None
        if stem in WHOLE:
            return f"{WHOLE[stem]}.{kind}"
        _, _, layer, part = stem.split(".", 3)
        renamed = PARTS[part]
        if part == "post_attention_layernorm" and self.has("olmo2", *GEMMA):
            renamed = "post_attention_norm"
        return f"blk.{layer}.{renamed}.{kind}"

    def arranged(self, name, values):
        part = name.split(".")[-2]
        if part in ("attn_q", "attn_k") and self.has("llama", "granite", "smollm3"):
            values = interleave_heads(values, self.heads if part == "attn_q" else self.kv_heads)
        if self.has(*GEMMA) and part.endswith("norm"):
            values = values + numpy.float32(1)
        # llama.cpp always scales gemma's scores by the head size, whatever config.json says, so put the remaining factor into the weights.
        if part == {"gemma2": "attn_q", "gemma3": "attn_q_norm"}.get(self.architecture):
            values = values * numpy.float32(math.sqrt(self.head_size / self.config["query_pre_attn_scalar"]))
        return values

    def add_made_up_tokens(self):
        writer, size = self.writer, self.config["vocab_size"]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(["a", "b", "ab"] + [f"<{i}>" for i in range(3, size)])
        writer.add_token_types([gguf.TokenType.NORMAL] * size)
        writer.add_token_merges(["a b"])

    def add_tensor(self, name, values, dtype):
        if dtype == "F32" or values.ndim == 1 or "ffn_gate_inp" in name:
            self.writer.add_tensor(name, values)
        else:
            bits = gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16)
            self.writer.add_tensor(name, bits, raw_dtype=gguf.GGMLQuantizationType.BF16)

    def write(self, dtype, has_tokens):
        self.add_keys()
        if has_tokens:
            self.add_made_up_tokens()
        else:
            self.writer.add_tokenizer_model("none")
        self.writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16 if dtype == "BF16" else gguf.LlamaFileType.ALL_F32)
        experts = {}
        for path in sorted(glob.glob(os.path.join(self.folder, "model*.safetensors"))):
            for stored, values in tensors(path):
                if part := EXPERT.fullmatch(stored):
                    layer, expert, projection = part.groups()
                    experts.setdefault(f"blk.{layer}.{STACKS[projection]}.weight", {})[int(expert)] = values
                elif (name := self.name(stored)) is not None:
                    self.add_tensor(name, numpy.ascontiguousarray(self.arranged(name, values)), dtype)
        for name, stack in experts.items():
            self.add_tensor(name, numpy.stack([stack[expert] for expert in range(len(stack))]), dtype)
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def write(folder, path, dtype, has_tokens=False):
    """Writes the model in `folder` to `path` with matrices in `dtype`, "F32" or "BF16", and norms and routers in F32."""
    Converter(folder, path).write(dtype, has_tokens)
