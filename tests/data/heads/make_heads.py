"""Makes the draft heads here and what a reference in float64 says of them: tests/data/README.md.

    python3 make_heads.py

Needs numpy. The reference has the numbering of the published code: row t of a head reads the
target's state at position t and the embedding of token t + 1, and is turned by t.
"""
import json
import pathlib
import struct

import numpy as np

HERE = pathlib.Path(__file__).parent
TARGET = HERE.parent / "models" / "llama-mha"
PREFIXES = [1, 2, 5, 16, 17, 30]  # tokens that the target has read
STEPS = 8
LEAST_GAP = 0.01  # between the best and the second-best logit
DTYPES = {"F32": np.float32, "I32": np.int32, "I64": np.int64, "BOOL": np.bool_}


def read_safetensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + size + begin : 8 + size + end], DTYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    """Floats of a model as BF16, which they fit (`rounded`); all others as they are."""
    header, blobs, offset = {}, [], 0
    for name in sorted(tensors):
        values = np.ascontiguousarray(tensors[name])
        dtype = next((d for d, kind in DTYPES.items() if values.dtype == kind), None)
        if values.dtype == np.float64:
            dtype = "BF16"
            blob = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        else:
            blob = values.tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(values.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def rounded(values):
    """To bf16, as float64."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def norm(x, weight, epsilon):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def turned(x, positions, theta):
    """x: [rows, heads, size]; pairs i and i + size / 2."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


class Layer:
    """One decoder layer over its own cache."""

    def __init__(self, config, tensors, prefix, is_eagle3=False):
        self.c, self.w, self.prefix, self.is_eagle3 = config, tensors, prefix, is_eagle3
        self.keys = self.values = None

    def weight(self, name):
        return self.w[f"{self.prefix}{name}.weight"].astype(np.float64)

    def attend(self, rows, first):
        c = self.c
        size = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        positions = np.arange(first, first + len(rows))
        theta = c.get("rope_theta") or 10000.0

        def heads(name):
            return (rows @ self.weight(f"self_attn.{name}").T).reshape(len(rows), -1, size)

        queries = turned(heads("q_proj"), positions, theta)
        keys, values = turned(heads("k_proj"), positions, theta), heads("v_proj")
        if self.keys is not None:
            keys = np.concatenate([self.keys[:first], keys])
            values = np.concatenate([self.values[:first], values])
        self.keys, self.values = keys, values
        group = queries.shape[1] // keys.shape[1]
        out = np.zeros_like(queries)
        for head in range(queries.shape[1]):
            scores = queries[:, head] @ keys[:, head // group].T / np.sqrt(size)
            scores[np.arange(len(keys))[None] > positions[:, None]] = -np.inf
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = weights / weights.sum(-1, keepdims=True) @ values[:, head // group]
        return out.reshape(len(rows), -1) @ self.weight("self_attn.o_proj").T

    def feed_forward(self, x):
        gate, up = x @ self.weight("mlp.gate_proj").T, x @ self.weight("mlp.up_proj").T
        return (gate / (1 + np.exp(-gate)) * up) @ self.weight("mlp.down_proj").T

    def run(self, x, first, next_to=None):
        """next_to: in EAGLE-3 the rows' normalised embeddings."""
        epsilon = self.c["rms_norm_eps"]
        if self.is_eagle3:
            normed = norm(x, self.weight("hidden_norm"), epsilon)
            rows = np.concatenate([next_to, normed], -1)
            if self.c.get("norm_before_residual"):
                x = normed
        else:
            rows = norm(x, self.weight("input_layernorm"), epsilon)
        x = x + self.attend(rows, first)
        return x + self.feed_forward(norm(x, self.weight("post_attention_layernorm"), epsilon))


def target_states(config, tensors, ids):
    """What enters each layer, and last the state after the final norm; and the logits."""
    x = tensors["model.embed_tokens.weight"].astype(np.float64)[ids]
    states = []
    for i in range(config["num_hidden_layers"]):
        states.append(x)
        x = Layer(config, tensors, f"model.layers.{i}.").run(x, 0)
    states.append(norm(x, tensors["model.norm.weight"].astype(np.float64), config["rms_norm_eps"]))
    return states, states[-1] @ tensors["lm_head.weight"].astype(np.float64).T


class Head:
    def __init__(self, config, tensors, target, target_config):
        self.tensors = tensors
        self.is_fused = config["architectures"] == ["TandemOneLayerHead"]
        layer = config.get("transformer_layer_config", config)
        self.c = {**layer, **{k: v for k, v in config.items() if k.startswith("norm_before")}}
        self.embedding = tensors.get(
            "embed_tokens.weight", target["model.embed_tokens.weight"]
        ).astype(np.float64)
        count = target_config["num_hidden_layers"]
        self.layers = config.get("eagle_aux_hidden_state_layer_ids") or [2, count // 2, count - 3]
        if self.is_fused:
            self.layers = [count]
        self.ids = np.arange(target_config["vocab_size"])
        if "d2t" in tensors:
            self.ids = np.arange(len(tensors["d2t"])) + tensors["d2t"]
        self.matrix = tensors.get("lm_head.weight")
        if self.matrix is None:
            self.matrix = target["lm_head.weight"].astype(np.float64)[self.ids]
        prefix = "midlayer." if "midlayer.mlp.up_proj.weight" in tensors else "layers.0."
        self.layer = Layer(self.c, tensors, prefix, is_eagle3=not self.is_fused)

    def step(self, states, tokens, first, is_own):
        """Logits [rows, draft vocabulary], and the states handed on [rows, hidden]."""
        epsilon = self.c["rms_norm_eps"]
        embedded = self.embedding[tokens]
        if self.is_fused:
            rows = [
                norm(embedded, self.tensors["embed_norm.weight"], epsilon),
                norm(states, self.tensors["hidden_norm.weight"], epsilon),
            ]
            x = self.layer.run(np.concatenate(rows, -1) @ self.tensors["fc.weight"].T, first)
        else:
            if not is_own:
                if self.c.get("norm_before_fc"):
                    states = norm(states, self.tensors["input_norm.weight"], epsilon)
                states = states @ self.tensors["fc.weight"].T
            beside = norm(embedded, self.layer.weight("input_layernorm"), epsilon)
            x = self.layer.run(states, first, beside)
        return norm(x, self.tensors["norm.weight"], epsilon) @ self.matrix.T, x

    def chain(self, states, ids, prefix):
        """Draws greedily after `prefix` tokens that the target has read, and the next one."""
        self.layer.keys = self.layer.values = None
        read = np.concatenate([states[i] for i in self.layers], -1)[:prefix]
        logits, own = self.step(read, ids[1 : prefix + 1], 0, is_own=False)
        rows = []
        for i in range(STEPS):
            best = np.argsort(logits[-1])[::-1]
            gap = logits[-1][best[0]] - logits[-1][best[1]]
            token = self.ids[best[0]]
            rows.append((logits[-1], own[-1], token, gap))
            logits, own = self.step(own[-1:], np.array([token]), prefix + i, is_own=True)
        return rows


def new_head(name, target_config, random):
    """config.json and the tensors of a head."""
    hidden, vocab = target_config["hidden_size"], target_config["vocab_size"]
    size, kv_heads = hidden // target_config["num_attention_heads"], 3
    heads, middle = (3, 40) if name == "one-layer" else (6, 56)
    draft_vocab = {"eagle3-speculators": vocab, "eagle3-residual": 90}.get(name, 64)
    layer = {
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": middle,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": size,
        "hidden_act": "silu",
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500.0,
        "attention_bias": False,
    }
    config = {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": draft_vocab}
    if name == "eagle3-speculators":
        config |= {
            "architectures": ["Eagle3Speculator"],
            "speculators_model_type": "eagle3",
            "speculators_version": "0.1.0",
            "speculators_config": {"algorithm": "eagle3"},
            "norm_before_residual": True,
            "norm_before_fc": True,
            "eagle_aux_hidden_state_layer_ids": [3, 0],
            "transformer_layer_config": layer,
        }
    else:
        config |= layer
    if name == "eagle3-residual":
        config |= {"norm_before_residual": True, "target_hidden_size": hidden}
        config["architectures"] = ["LlamaForCausalLM"]  # older
        del config["rope_theta"]
    if name == "one-layer":
        config["architectures"] = ["TandemOneLayerHead"]

    is_fused = name == "one-layer"
    num_states = len(config.get("eagle_aux_hidden_state_layer_ids", [0, 0, 0]))
    prefix = "layers.0." if name in ("eagle3-speculators", "one-layer") else "midlayer."
    width = hidden if is_fused else 2 * hidden

    def matrix(outputs, inputs):
        return rounded(random.normal(0, 1.2 / np.sqrt(inputs), (outputs, inputs)))

    def weights(count):
        return rounded(random.normal(1, 0.2, count))

    tensors = {
        "fc.weight": matrix(hidden, 2 * hidden if is_fused else num_states * hidden),
        "norm.weight": weights(hidden),
        f"{prefix}input_layernorm.weight": weights(hidden),
        f"{prefix}post_attention_layernorm.weight": weights(hidden),
        f"{prefix}self_attn.q_proj.weight": matrix(heads * size, width),
        f"{prefix}self_attn.k_proj.weight": matrix(kv_heads * size, width),
        f"{prefix}self_attn.v_proj.weight": matrix(kv_heads * size, width),
        f"{prefix}self_attn.o_proj.weight": matrix(hidden, heads * size),
        f"{prefix}mlp.gate_proj.weight": matrix(middle, hidden),
        f"{prefix}mlp.up_proj.weight": matrix(middle, hidden),
        f"{prefix}mlp.down_proj.weight": matrix(hidden, middle),
    }
    tensors["hidden_norm.weight" if is_fused else f"{prefix}hidden_norm.weight"] = weights(hidden)
    if is_fused:
        tensors["embed_norm.weight"] = weights(hidden)
    else:
        tensors["lm_head.weight"] = matrix(draft_vocab, hidden)
    if name == "eagle3-residual":
        tensors["embed_tokens.weight"] = matrix(vocab, hidden) * 4
    if config.get("norm_before_fc"):
        tensors["input_norm.weight"] = weights(num_states * hidden)
    if draft_vocab < vocab:
        ids = random.permutation(vocab)[:draft_vocab]
        if name != "eagle3-residual":  # whose ids do not ascend
            ids = np.sort(ids)
            tensors["t2d"] = np.isin(np.arange(vocab), ids)
        tensors["d2t"] = (ids - np.arange(draft_vocab)).astype(np.int64)
    return config, tensors


def main():
    target_config = json.loads((TARGET / "config.json").read_text())
    target = read_safetensors(TARGET / "model.safetensors")
    golden = read_safetensors(TARGET / "golden.safetensors")
    ids = golden["input_ids"]
    states, logits = target_states(target_config, target, ids)
    assert np.abs(logits - golden["logits"]).max() < 1e-4, "not the target of the reference"
    for name in ("eagle3-flat", "eagle3-residual", "eagle3-speculators", "one-layer"):
        for seed in range(100):
            random = np.random.default_rng([seed, len(name)])
            config, tensors = new_head(name, target_config, random)
            head = Head(config, tensors, target, target_config)
            chains = [head.chain(states, ids, prefix) for prefix in PREFIXES]
            if min(row[3] for chain in chains for row in chain) > LEAST_GAP:
                break
        else:
            raise SystemExit(f"{name}: no seed has gaps above {LEAST_GAP}")
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        write_safetensors(folder / "model.safetensors", tensors)
        write_safetensors(
            folder / "golden.safetensors",
            {
                "prefixes": np.array(PREFIXES, np.int32),
                "logits": np.array([[r[0] for r in c] for c in chains], np.float32),
                "states": np.array([[r[1] for r in c] for c in chains], np.float32),
                "tokens": np.array([[r[2] for r in c] for c in chains], np.int32),
            },
        )
        distinct = len({r[2] for c in chains for r in c})
        print(f"{name}: seed {seed}, {distinct} different tokens")


if __name__ == "__main__":
    main()
