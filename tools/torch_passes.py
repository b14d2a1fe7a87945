#!/usr/bin/env python3
"""Measures passes of a model with random weights in PyTorch, to compare with `tandem bench device`.

    tandem make-random --shape llama-8b --print-config | tools/torch_passes.py --device cuda:0

The model is a plain decoder of PyTorch's own operations (linear, rms_norm,
scaled_dot_product_attention) with bfloat16 weights and a cache of fixed size. Prints a line of JSON
for each pass: `ms` is the host's time for consecutive calls; `device_ms` is the same with a CUDA
graph, null on a CPU.
"""

import argparse
import json
import statistics
import sys
import time
import types

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right


class Decoder:
    """A decoder with the sizes of a config.json of the Llama or Qwen3 family."""

    def __init__(self, config, device):
        torch.manual_seed(0)

        def make(outputs, inputs):
            weight = torch.empty(outputs, inputs, dtype=torch.bfloat16, device=device)
            return weight.normal_(std=inputs ** -0.5)

        self.config = config
        self.device = device
        self.heads = config["num_attention_heads"]
        self.kv_heads = config["num_key_value_heads"]
        self.dim = config["head_dim"]
        self.embedding = make(config["vocab_size"], config["hidden_size"])
        hidden, ffn = config["hidden_size"], config["intermediate_size"]
        self.layers = [types.SimpleNamespace(
            qkv=make((self.heads + 2 * self.kv_heads) * self.dim, hidden),
            out=make(hidden, self.heads * self.dim),
            gate_up=make(2 * ffn, hidden), down=make(hidden, ffn))
            for _ in range(config["num_hidden_layers"])]
        tied = config.get("tie_word_embeddings", False)
        self.head = self.embedding if tied else make(*self.embedding.shape)
        ones = {"dtype": torch.bfloat16, "device": device}
        self.norm = torch.ones(config["hidden_size"], **ones)
        # Qwen3 normalises the heads of queries and keys.
        self.head_norm = torch.ones(self.dim, **ones) if config["model_type"] == "qwen3" else None

    def set_sequences(self, batch, context, rows):
        length = context + rows
        shape = (batch, self.kv_heads, length, self.dim)
        make = {"dtype": torch.bfloat16, "device": self.device}
        self.caches = []  # free the old caches first
        self.caches = [(torch.randn(shape, **make), torch.randn(shape, **make))
                       for _ in self.layers]
        self.ids = torch.zeros(batch, rows, dtype=torch.long, device=self.device)
        base = self.config.get("rope_theta") or 10000.0
        frequencies = base ** (-torch.arange(0, self.dim, 2, device=self.device) / self.dim)
        angles = torch.outer(torch.arange(context, length, device=self.device), frequencies)
        self.cos = torch.cat([angles.cos()] * 2, -1).to(torch.bfloat16)
        self.sin = torch.cat([angles.sin()] * 2, -1).to(torch.bfloat16)
        # Row i of the last `rows` sees the tokens up to its own. A mask as a tensor would make
        # attention use its slow kernels.
        self.mask = causal_lower_right(rows, length) if rows > 1 else None
        self.context = context

    def rotate(self, x):
        low, high = x.chunk(2, -1)
        return x * self.cos + torch.cat([-high, low], -1) * self.sin

    def normed(self, x, weight):
        return F.rms_norm(x, weight.shape, weight, 1e-5)

    def attend(self, layer, cache, x):
        batch, rows, _ = x.shape
        qkv = F.linear(x, layer.qkv).view(batch, rows, -1, self.dim).transpose(1, 2)
        q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], 1)
        if self.head_norm is not None:
            q, k = self.normed(q, self.head_norm), self.normed(k, self.head_norm)
        keys, values = cache
        keys[:, :, self.context:] = self.rotate(k)
        values[:, :, self.context:] = v
        found = F.scaled_dot_product_attention(self.rotate(q), keys, values, self.mask,
                                               enable_gqa=self.heads != self.kv_heads)
        return F.linear(found.transpose(1, 2).reshape(batch, rows, -1), layer.out)

    @torch.inference_mode()
    def logits(self):
        x = F.embedding(self.ids, self.embedding)
        for layer, cache in zip(self.layers, self.caches):
            x = x + self.attend(layer, cache, self.normed(x, self.norm))
            gate, up = F.linear(self.normed(x, self.norm), layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return F.linear(self.normed(x, self.norm), self.head)


class Clock:
    def __init__(self, device, repeat, sample_ms):
        self.on_cuda = device.startswith("cuda")
        self.repeat, self.sample_seconds = repeat, sample_ms / 1e3

    def wait(self):
        if self.on_cuda:
            torch.cuda.synchronize()

    def ms(self, call):
        """Returns the median time of a call over `repeat` samples of about `sample_ms` each."""
        samples = []
        for times in [1] + [0] * self.repeat:
            times = times or max(1, round(self.sample_seconds / one))
            self.wait()
            start = time.perf_counter()
            for _ in range(times):
                call()
            self.wait()
            one = max((time.perf_counter() - start) / times, 1e-7)
            samples.append(1e3 * one)
        return statistics.median(samples[1:])

    def graph_ms(self, call):
        if not self.on_cuda:
            return None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return self.ms(graph.replay)


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", help="config.json [standard input]")
    parser.add_argument("--shape", default="", help="the shape's name in the output")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rows", type=numbers, default=[1, 5, 16, 64, 256],
                        help="rows of one sequence [1,5,16,64,256]")
    parser.add_argument("--batches", type=numbers, default=[4, 16, 64],
                        help="numbers of sequences with one row [4,16,64]")
    parser.add_argument("--contexts", type=numbers, default=[0, 1024, 4096],
                        help="tokens before the rows [0,1024,4096]")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--sample-ms", type=float, default=20)
    arguments = parser.parse_args()
    with open(arguments.config, encoding="utf-8") if arguments.config else sys.stdin as file:
        config = json.load(file)
    decoder = Decoder(config, arguments.device)
    clock = Clock(arguments.device, arguments.repeat, arguments.sample_ms)
    engine = f"PyTorch {torch.__version__}"
    for context in arguments.contexts:
        for batch, rows in ([(1, rows) for rows in arguments.rows]
                            + [(batch, 1) for batch in arguments.batches if batch > 1]):
            decoder.set_sequences(batch, context, rows)
            decoder.logits()  # warms up
            print(json.dumps({
                "engine": engine, "device": arguments.device, "shape": arguments.shape,
                "op": "pass", "part": "decode" if rows == 1 else "verify", "rows": rows,
                "batch": batch, "context": context, "ms": clock.ms(decoder.logits),
                "device_ms": clock.graph_ms(decoder.logits)}), flush=True)


if __name__ == "__main__":
    main()
