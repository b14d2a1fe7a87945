#!/usr/bin/env python3
"""Writes the files of this folder with torch.save (torch 2.15.0): state dicts that
model/checkpoint/torch_file.cc reads, and files that it refuses."""
import collections
import os
import pathlib

import torch

FOLDER = pathlib.Path(__file__).parent


class Calls:
    """An object that runs a program when it is loaded."""

    def __reduce__(self):
        return os.system, ("exit 1",)


def main():
    both = torch.arange(12, dtype=torch.float32).reshape(6, 2)
    parameter = torch.nn.Parameter(torch.tensor([0.5, -2.0], dtype=torch.bfloat16))
    tensors = collections.OrderedDict(
        {
            "fc.weight": both[:3],
            "lm_head.weight": both[3:],  # shares its storage
            "norm.weight": parameter,
            "half": torch.tensor([[1.0, 2.0, -0.25]], dtype=torch.float16),
            "d2t": torch.tensor([0, 3, 300]),
            "t2d": torch.tensor([True, False, False, True]),
            "empty": torch.empty(0, 5),
            "scalar": torch.tensor(7.0, dtype=torch.float64),
            "narrow": torch.tensor([-1, 2], dtype=torch.int8),
        }
    )
    torch.save(tensors, FOLDER / "state_dict.bin")
    module = torch.nn.Linear(2, 1)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 2.0]]))
        module.bias.fill_(3.0)
    torch.save(module.state_dict(), FOLDER / "module.bin")
    torch.save(tensors, FOLDER / "before_zip.bin", _use_new_zipfile_serialization=False)
    torch.save({"a": Calls()}, FOLDER / "calls_a_function.bin")
    torch.save({"a": both.T}, FOLDER / "transposed.bin")
    torch.save({"state_dict": {"a": both}}, FOLDER / "nested.bin")
    torch.save({1: both}, FOLDER / "numbered.bin")
    torch.save({"a": [both]}, FOLDER / "listed.bin")
    torch.save(both, FOLDER / "tensor.bin")


main()
