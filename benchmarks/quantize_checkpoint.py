#!/usr/bin/env python3
"""Writes a Hugging Face folder of bfloat16 weights as a quantised checkpoint, rounded to nearest.

Use it to measure how such checkpoints load and decode, and the loss of accuracy of their formats. Rounds to nearest, without
calibration. Embeddings, norms and the head are not quantised. Needs numpy.
"""
import argparse
import json
import os
import shutil
import struct
import sys

import numpy

SCHEMES = ("gptq", "gptq-act", "gptq-int8", "awq", "w4a16", "w4a16-asym", "w8a16", "w8a8", "fp8-tensor", "fp8-channel", "fp8-block")
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
BLOCK = 128


def tensors_of(path):
    """Yields the name, dtype, shape and bytes of each tensor of a safetensors file."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
    data = numpy.memmap(path, dtype=numpy.uint8, mode="r", offset=8 + length)
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, entry["dtype"], entry["shape"], data[begin:end]


def write_tensors(path, tensors):
    """Writes tensors, each (name, dtype, shape, bytes)."""
    header, offset = {}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + data.nbytes]}
        offset += data.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, _, data in tensors:
            file.write(data.tobytes())


def to_f32(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def to_bf16(values):
    bits = values.astype(numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)


def e4m3_values():
    """Returns the values of bytes 0 to 126, which are ascending."""
    return numpy.array([(m / 8 if e == 0 else 1 + m / 8) * 2.0 ** (max(e, 1) - 7) for e in range(16) for m in range(8)][:127])


def to_e4m3(values):
    table = e4m3_values()
    magnitude = numpy.abs(values).astype(numpy.float32)
    middles = ((table[1:] + table[:-1]) / 2).astype(numpy.float32)
    return (numpy.searchsorted(middles, magnitude).astype(numpy.uint8) | (numpy.signbit(values).astype(numpy.uint8) << 7))


def pack(codes, bits):
    """Packs numbers [rows, n] into words [rows, n * bits / 32], the first number in the lowest bits."""
    per_word = 32 // bits
    words = codes.astype(numpy.uint32).reshape(codes.shape[0], -1, per_word)
    return (words << (numpy.arange(per_word, dtype=numpy.uint32) * bits)).sum(axis=2, dtype=numpy.uint32)


def round_groups(weights, bits, group, symmetric, groups_of_inputs, scale_dtype):
    """Returns codes [out, in], zeros [out, groups] and scales [out, groups], the scales rounded to `scale_dtype`."""
    top = 2 ** bits - 1
    middle = (top + 1) // 2
    count = int(groups_of_inputs.max()) + 1
    codes = numpy.empty(weights.shape, numpy.uint8)
    zeros = numpy.empty((weights.shape[0], count), numpy.int64)
    scales = numpy.empty((weights.shape[0], count), numpy.float32)
    for g in range(count):
        inputs = numpy.flatnonzero(groups_of_inputs == g)
        part = weights[:, inputs]
        low, high = numpy.minimum(part.min(axis=1), 0), numpy.maximum(part.max(axis=1), 0)
        scale = numpy.maximum(numpy.maximum(-low, high) / (middle - 0.5) if symmetric else (high - low) / top, 1e-5)
        scale = scale.astype(numpy.float16).astype(numpy.float32) if scale_dtype == "F16" else to_f32(to_bf16(scale))
        zero = numpy.full(len(scale), middle) if symmetric else numpy.clip(numpy.rint(-low / scale), 1, top)
        codes[:, inputs] = numpy.clip(numpy.rint(part / scale[:, None]) + zero[:, None], 0, top)
        zeros[:, g], scales[:, g] = zero, scale
    return codes, zeros, scales


def words(array):
    array = numpy.ascontiguousarray(array)
    return "I32", array.shape, array


def floats(array, dtype):
    array = numpy.ascontiguousarray(array)
    return dtype, array.shape, array.astype(numpy.float16) if dtype == "F16" else to_bf16(array)


def quantise(scheme, name, weights, group, random):
    """Returns the tensors of a module, by the suffix after its name."""
    outputs, inputs = weights.shape
    group = min(group, inputs)
    in_order = numpy.arange(inputs) // group
    if scheme.startswith("gptq"):
        order = random.permutation(inputs) // group if scheme == "gptq-act" else in_order
        bits = 8 if scheme == "gptq-int8" else 4
        codes, zeros, scales = round_groups(weights, bits, group, scheme != "gptq-act", order, "F16")
        return {"qweight": words(pack(codes, bits).T), "qzeros": words(pack(zeros.T - 1, bits)), "scales": floats(scales.T, "F16"),
                "g_idx": words(order.astype(numpy.int32))}
    if scheme == "awq":
        codes, zeros, scales = round_groups(weights, 4, group, False, in_order, "F16")
        reorder = lambda a: pack(a.reshape(a.shape[0], -1, 8)[:, :, AWQ_ORDER].reshape(a.shape), 4)
        return {"qweight": words(reorder(codes.T)), "qzeros": words(reorder(zeros.T)), "scales": floats(scales.T, "F16")}
    if scheme in ("w4a16", "w4a16-asym", "w8a16"):
        bits = 8 if scheme == "w8a16" else 4
        symmetric = scheme != "w4a16-asym"
        codes, zeros, scales = round_groups(weights, bits, group, symmetric, numpy.zeros(inputs, int) if bits == 8 else in_order, "BF16")
        tensors = {"weight_packed": words(pack(codes, bits)), "weight_scale": floats(scales, "BF16"),
                   "weight_shape": ("I64", [2], numpy.array([outputs, inputs], numpy.int64))}
        if not symmetric:
            tensors["weight_zero_point"] = words(pack(zeros.T, bits).T)
        return tensors
    if scheme == "w8a8":
        codes, _, scales = round_groups(weights, 8, group, True, numpy.zeros(inputs, int), "BF16")
        return {"weight": ("I8", codes.shape, (codes ^ 0x80).view(numpy.int8)), "weight_scale": floats(scales, "BF16")}
    down, across = {"fp8-tensor": (outputs, inputs), "fp8-channel": (1, inputs), "fp8-block": (BLOCK, BLOCK)}[scheme]
    rows, cols = -(-outputs // down), -(-inputs // across)
    scales = numpy.empty((rows, cols), numpy.float32)
    for r in range(rows):
        for c in range(cols):
            scales[r, c] = numpy.abs(weights[r * down:(r + 1) * down, c * across:(c + 1) * across]).max() / 448
    scales = to_f32(to_bf16(scales))
    spread = scales.repeat(down, axis=0)[:outputs].repeat(across, axis=1)[:, :inputs]
    tensors = {"weight": ("F8_E4M3", weights.shape, to_e4m3(weights / spread))}
    if scheme == "fp8-block":
        return tensors | {"weight_scale_inv": floats(scales, "BF16")}
    return tensors | {"weight_scale": floats(scales.reshape(-1) if scheme == "fp8-tensor" else scales, "BF16")}


def quantization_config(scheme, group):
    if scheme.startswith("gptq"):
        return dict(quant_method="gptq", bits=8 if scheme == "gptq-int8" else 4, group_size=group, desc_act=scheme == "gptq-act",
                    sym=scheme != "gptq-act", checkpoint_format="gptq")
    if scheme == "awq":
        return dict(quant_method="awq", bits=4, group_size=group, zero_point=True, version="gemm")
    if scheme == "fp8-block":
        return dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[BLOCK, BLOCK])
    is_float = scheme.startswith("fp8")
    grouped = scheme.startswith("w4")
    weights = dict(num_bits=4 if grouped else 8, type="float" if is_float else "int", symmetric=scheme != "w4a16-asym",
                   strategy="group" if grouped else "tensor" if scheme == "fp8-tensor" else "channel", dynamic=False,
                   group_size=group if grouped else None)
    return dict(quant_method="compressed-tensors", quantization_status="compressed", ignore=["lm_head"],
                format="float-quantized" if is_float else "int-quantized" if scheme == "w8a8" else "pack-quantized",
                config_groups={"group_0": dict(targets=["Linear"], weights=weights)})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder with model.safetensors in bfloat16")
    parser.add_argument("--to", required=True, choices=SCHEMES)
    parser.add_argument("--group", type=int, default=128, help="inputs per group in 4-bit formats [128]")
    parser.add_argument("--out", required=True, help="the folder to create")
    args = parser.parse_args()
    random = numpy.random.default_rng(1)
    os.makedirs(args.out)
    for entry in os.scandir(args.model):
        if entry.is_file() and not entry.name.endswith(".safetensors"):
            shutil.copy(entry.path, args.out)
    with open(os.path.join(args.model, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    config["quantization_config"] = quantization_config(args.to, args.group)
    with open(os.path.join(args.out, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    tensors = []
    for name, dtype, shape, data in tensors_of(os.path.join(args.model, "model.safetensors")):
        if dtype != "BF16":
            sys.exit(f"quantize_checkpoint.py: {name} is {dtype}, not BF16")
        if len(shape) == 2 and name.endswith("_proj.weight"):
            module = name.removesuffix(".weight")
            weights = to_f32(numpy.asarray(data).view(numpy.uint16)).reshape(shape)
            for suffix, (kind, made_shape, array) in quantise(args.to, module, weights, args.group, random).items():
                tensors.append((f"{module}.{suffix}", kind, made_shape, array))
        else:
            tensors.append((name, dtype, shape, numpy.asarray(data)))
    write_tensors(os.path.join(args.out, "model.safetensors"), tensors)


if __name__ == "__main__":
    main()
