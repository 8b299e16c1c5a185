#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Safetensors files beside the Python package of that name, which writes one, lets the test
program copy it, and reads the copy; with PyTorch and NumPy too where these are installed. Exits with
77 where the package is missing.

usage: safetensors_peer_test.py SAFETENSORS_TEST
"""
import ctypes
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    import safetensors
except ImportError:
    print("skipped: the Python package safetensors is not installed")
    sys.exit(1 if os.environ.get("CI") == "true" else 77)

SIZES = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "uint8": 1, "int32": 4, "int64": 8}


def copy(program, folder, data):
    """The bytes that the test program writes after it has read `data`."""
    paths = [os.path.join(folder, name) for name in ("in", "out")]
    with open(paths[0], "wb") as file:
        file.write(data)
    subprocess.run([program, "copy", *paths], check=True, stdout=subprocess.DEVNULL)
    with open(paths[1], "rb") as file:
        return file.read()


def serialize(tensors, texts):
    """The package takes bytes, or in later versions the address of a buffer."""
    if not hasattr(safetensors, "TensorSpec"):
        return bytes(safetensors.serialize(tensors, texts))
    buffers = {
        name: ctypes.create_string_buffer(t["data"], len(t["data"]) + 1) for name, t in tensors.items()
    }
    specs = {
        name: safetensors.TensorSpec(
            dtype=t["dtype"],
            shape=t["shape"],
            data_ptr=ctypes.addressof(buffers[name]),
            data_len=len(t["data"]),
        )
        for name, t in tensors.items()
    }
    return bytes(safetensors.serialize(specs, texts))


def tensors_of(data):
    return {
        name: (info["dtype"], list(info["shape"]), bytes(info["data"]))
        for name, info in safetensors.deserialize(data)
    }


def raw(program, folder, draw):
    """Random bytes of every dtype and rank."""
    tensors, total = {}, 0
    for dtype, size in SIZES.items():
        for rank in range(9):
            shape = [draw.randint(0 if draw.random() < 0.2 else 1, 3) for _ in range(rank)]
            count = size
            for length in shape:
                count *= length
            name = f'{dtype} {rank} "\\\n\té𝄞/'
            tensors[name] = {"dtype": dtype, "shape": shape, "data": draw.randbytes(count)}
            total += 1
    texts = {"step": "12", "é\n\"": "\\ {} \x01", "": ""}
    before = serialize(tensors, texts)
    after = copy(program, folder, before)
    assert tensors_of(after) == tensors_of(before) and len(tensors_of(after)) == total
    length = int.from_bytes(after[:8], "little")
    header = json.loads(after[8 : 8 + length])
    assert length % 8 == 0 and header["__metadata__"] == texts
    print(f"{total} tensors of {len(SIZES)} dtypes")


def with_numpy(program, folder):
    try:
        import numpy
        import safetensors.numpy
    except ImportError:
        print("without NumPy")
        return
    names = [name for name in SIZES if name != "bfloat16"]
    arrays = {name: numpy.arange(24).reshape(2, 3, 4).astype(name) for name in names}
    after = safetensors.numpy.load(copy(program, folder, safetensors.numpy.save(arrays)))
    for name in names:
        assert after[name].dtype == name and (after[name] == arrays[name]).all()
    print("NumPy", numpy.__version__)


def with_torch(program, folder):
    try:
        import torch
        import safetensors.torch
    except ImportError:
        print("without PyTorch")
        return
    arrays = {name: torch.arange(24).reshape(2, 3, 4).to(getattr(torch, name)) for name in SIZES}
    after = safetensors.torch.load(copy(program, folder, safetensors.torch.save(arrays)))
    for name in SIZES:
        assert after[name].dtype == arrays[name].dtype and (after[name] == arrays[name]).all()
    print("PyTorch", torch.__version__)


def main():
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(5):
            raw(sys.argv[1], folder, draw)
        with_numpy(sys.argv[1], folder)
        with_torch(sys.argv[1], folder)


main()
