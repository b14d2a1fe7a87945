"""Writes a Llama folder of safetensors as a GGUF file for llama.cpp.

The file holds the weights and the shape, and no tokenizer: the comparisons speak in token ids. Runs in an environment
with `gguf`.
"""
import json
import os
import struct

import gguf
import numpy

LAYER_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
OTHER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def tensors(path):
    """Name and bf16 bits ([...] uint16) of each tensor of a safetensors file, read as it is asked for."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
    data = numpy.memmap(path, dtype=numpy.uint8, mode="r", offset=8 + length)
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            raise ValueError(f"{path}: {name} is {entry['dtype']}; only BF16 can be written")
        begin, end = entry["data_offsets"]
        yield name, data[begin:end].view(numpy.uint16).reshape(entry["shape"])


def gguf_name(name):
    stem = name.removesuffix(".weight")
    if stem in OTHER_NAMES:
        return OTHER_NAMES[stem] + ".weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[rest]}.weight"


def interleave_heads(bits, num_heads):
    """Rows of a q or k projection in the order of llama.cpp's rotary embedding, which turns neighbours.

    Hugging Face turns row i of a head with row i + head_dim / 2; llama.cpp turns rows 2 i and 2 i + 1.
    """
    rows, columns = bits.shape
    return bits.reshape(num_heads, 2, rows // num_heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def to_f32(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def write(folder, path, dtype):
    """Writes the model in `folder` to `path` with matrices in `dtype`, "F32" or "BF16", and norms in F32."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    if config["model_type"] != "llama" or config.get("rope_scaling"):
        raise ValueError(f"{folder}: only plain Llama models can be written, this is {config['model_type']}")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_size = config.get("head_dim", config["hidden_size"] // heads)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_rope_dimension_count(head_size)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16 if dtype == "BF16" else gguf.LlamaFileType.ALL_F32)
    for name, bits in tensors(os.path.join(folder, "model.safetensors")):
        if "q_proj" in name or "k_proj" in name:
            bits = interleave_heads(bits, heads if "q_proj" in name else kv_heads)
        if dtype == "F32" or bits.ndim == 1:
            writer.add_tensor(gguf_name(name), to_f32(bits))
        else:
            writer.add_tensor(gguf_name(name), bits.view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
