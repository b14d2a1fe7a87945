"""An engine whose draft is a head."""

import json
import struct

import numpy as np
import pytest
import tandem

from conftest import TARGET

PROMPT = "Once upon a time there lived an old king"


def write_head(folder, target):
    """Writes a one-layer head with random weights, which predicts tokens only by chance."""
    hidden, ffn, rng = target["hidden_size"], 96, np.random.default_rng(1)
    heads, kv_heads, dim = (target[n] for n in ("num_attention_heads", "num_key_value_heads",
                                                "head_dim"))
    shapes = {"fc": (hidden, 2 * hidden), "lm_head": (64, hidden), "norm": (hidden,),
              "embed_norm": (hidden,), "hidden_norm": (hidden,)}
    layer = {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
             "self_attn.q_proj": (heads * dim, hidden), "self_attn.k_proj": (kv_heads * dim, hidden),
             "self_attn.v_proj": (kv_heads * dim, hidden), "self_attn.o_proj": (hidden, heads * dim),
             "mlp.gate_proj": (ffn, hidden), "mlp.up_proj": (ffn, hidden),
             "mlp.down_proj": (hidden, ffn)}
    shapes.update({f"layers.0.{name}": shape for name, shape in layer.items()})
    arrays = {f"{name}.weight": rng.standard_normal(shape).astype("<f4") / 16
              for name, shape in shapes.items()}
    arrays["d2t"] = np.arange(64, dtype="<i8") * 3  # offsets: ids 0, 4, 8, ...
    header, data = {}, b""
    for name, array in arrays.items():
        header[name] = {"dtype": "I64" if name == "d2t" else "F32", "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    config = {"architectures": ["TandemOneLayerHead"], "model_type": "llama",
              "draft_vocab_size": 64, "intermediate_size": ffn, "num_hidden_layers": 1,
              **{name: target[name] for name in (
                  "vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads",
                  "head_dim", "hidden_act", "max_position_embeddings", "rms_norm_eps",
                  "rope_theta")}}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    folder = tmp_path_factory.mktemp("head")
    write_head(folder, json.loads((TARGET / "config.json").read_text()))
    return folder


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_its_output_equals_plain_output_bit_for_bit(head, temperature):
    with tandem.Engine(TARGET, draft=head) as engine:
        assert engine.drafter == "eagle3+ngram"
        params = {"max_tokens": 32, "temperature": temperature, "seed": 3}
        plain = engine.generate(PROMPT, drafter="none", **params)
        drafted = engine.generate(PROMPT, draft_tokens=3, **params)
        assert drafted.token_ids.tolist() == plain.token_ids.tolist()
        assert drafted.stats.proposed > 0
        engine.check_integrity()


def test_options_of_draft_models_are_refused(head):
    with pytest.raises(ValueError, match="^draft_window: found 64, .* is a draft head$"):
        tandem.Engine(TARGET, draft=head, draft_window=64)
