"""Reads a trained draft model, a Hugging Face folder or a GGUF file of a Llama, Qwen2 or Qwen3, for models/training/model.py."""
import glob
import json
import os
import numpy as np
import torch
from distill_train import gguf_parts, gguf_values
from model import Config, Llama

FAMILIES = ("llama", "qwen2", "qwen3")
LAYER_NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
# What Llama 3 has; a GGUF file does not say it, but has the divisors that follow from it.
LLAMA3 = dict(rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)


def refuse(path, name, found, allowed):
    raise SystemExit(f"{path}: {name}: found {found}, allowed: {allowed}")


def read_draft(path):
    """Returns the shape (model.Config), the weights by their Hugging Face names, in float32, and the mask token or None."""
    parts = gguf_parts(path)
    if not parts and not os.path.exists(os.path.join(path, "config.json")):
        raise SystemExit(f"{path}: is neither a Hugging Face folder nor a GGUF file")
    shape, weights, mask = read_gguf(path, parts) if parts else read_folder(path)
    shape["tied"] = shape["tied"] or "lm_head.weight" not in weights
    with torch.device("meta"):
        wanted = {name: list(w.shape) for name, w in Llama(Config(**{**shape, "max_pos": 1})).state_dict().items()}
    for name, size in wanted.items():
        if name not in weights or list(weights[name].shape) != size:
            refuse(path, name, list(weights[name].shape) if name in weights else "nothing", size)
    return shape, {name: weights[name] for name in wanted}, mask


def read_folder(path):
    from safetensors import safe_open
    with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    family = config.get("model_type")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    for name, found, allowed in (("model_type", family, FAMILIES), ("rope_type", kind, ("default", "llama3")),
                                 ("hidden_act", config.get("hidden_act", "silu"), ("silu",)),
                                 ("attention_bias", bool(config.get("attention_bias")), (family == "qwen2", False)),
                                 ("mlp_bias", bool(config.get("mlp_bias")), (False,)),
                                 ("use_sliding_window", bool(config.get("use_sliding_window")), (False,)),
                                 ("quantization_config", config.get("quantization_config"), (None,))):
        if found not in allowed:
            refuse(path, name, found, " or ".join(map(str, allowed)))
    heads = config["num_attention_heads"]
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    scaling = {name: rope[name] for name in ("factor", *LLAMA3)} if kind == "llama3" else None
    shape = dict(vocab=config["vocab_size"], hidden=config["hidden_size"], layers=config["num_hidden_layers"], heads=heads,
                 kv_heads=config.get("num_key_value_heads") or heads, head_dim=config.get("head_dim") or config["hidden_size"] // heads,
                 ffn=config["intermediate_size"], theta=theta, eps=config["rms_norm_eps"], max_pos=config["max_position_embeddings"],
                 qkv_bias=family == "qwen2", head_norms=family == "qwen3", tied=bool(config.get("tie_word_embeddings")), scaling=scaling)
    weights = {}
    for file in sorted(glob.glob(os.path.join(path, "*.safetensors"))):
        with safe_open(file, "pt") as tensors:
            weights.update({name: tensors.get_tensor(name).float() for name in tensors.keys()})
    return shape, weights, config.get("pard_token")


def read_gguf(path, parts):
    import gguf
    readers = [gguf.GGUFReader(part) for part in parts]
    fields = readers[0].fields
    family = fields["general.architecture"].contents()
    if family not in FAMILIES:
        refuse(path, "general.architecture", family, " or ".join(FAMILIES))

    def known(name, default=None):
        field = fields.get(f"{family}.{name}", fields.get(name))
        value = default if field is None else field.contents()
        return float(str(np.float32(value))) if isinstance(value, float) else value

    if known("rope.scaling.type", "none") != "none":
        refuse(path, "rope.scaling.type", known("rope.scaling.type"), "none")
    heads, hidden = known("attention.head_count"), known("embedding_length")
    size = dict(heads=heads, kv_heads=known("attention.head_count_kv", heads), head_dim=known("attention.key_length", hidden // heads))
    weights, scaling = {}, None
    for tensor in (tensor for reader in readers for tensor in reader.tensors):
        values = gguf_values(tensor)
        if tensor.name == "rope_freqs.weight":
            scaling = llama3_scaling(path, values, known("rope.freq_base", 10000.0))
            continue
        stem, kind = tensor.name.rsplit(".", 1)
        block = stem.split(".")
        name = NAMES.get(stem) or (f"model.layers.{block[1]}.{LAYER_NAMES[block[2]]}" if block[0] == "blk" and block[-1] in LAYER_NAMES else None)
        if name is None:
            refuse(path, "a tensor", tensor.name, f"those of {family}")
        if family == "llama" and block[-1] in ("attn_q", "attn_k"):  # GGUF has neighbouring rows rotated together
            values = values.view(-1, size["head_dim"] // 2, 2, hidden).transpose(1, 2).reshape(values.shape)
        weights[f"{name}.{kind}"] = values
    shape = dict(vocab=len(weights["model.embed_tokens.weight"]), hidden=hidden, layers=known("block_count"), **size,
                 ffn=known("feed_forward_length"), theta=known("rope.freq_base", 10000.0), eps=known("attention.layer_norm_rms_epsilon"),
                 max_pos=known("context_length"), qkv_bias=family == "qwen2", head_norms=family == "qwen3", tied=False, scaling=scaling)
    return shape, weights, known("tandem.draft.mask_token_id")


def llama3_scaling(path, divisors, theta):
    """Returns the scaling of Llama 3 whose divisors of the frequencies these are."""
    from model import rope_frequencies
    scaling = dict(LLAMA3, factor=float(divisors.max()))
    plain = Config(head_dim=2 * len(divisors), theta=theta)
    expected = rope_frequencies(plain) / rope_frequencies(Config(**{**plain.dict(), "scaling": scaling}))
    if not torch.allclose(expected, divisors, rtol=1e-4):
        refuse(path, "rope_freqs.weight", "other divisors", "those of Llama 3's rotation over 8,192 tokens")
    return scaling
