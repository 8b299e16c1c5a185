#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""The example onnx_training: an ONNX model is trained step by step, saved, loaded and exported.

usage: onnx_session_test.py PROGRAM EXAMPLE
"""
import pathlib
import struct
import subprocess
import sys
import tempfile

from onnx_made import OWN_NAMES, classifier, named_classifier

PROGRAM, EXAMPLE = (pathlib.Path(path).resolve() for path in sys.argv[1:3])


def write_npy(path, dims, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(dims)}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                     struct.pack(f"<{len(values)}f", *values))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        arguments = [EXAMPLE, "model.onnx", "trained.onnx", "state.safetensors"]
        for made in (named_classifier(OWN_NAMES, channels=2), classifier(channels=2)):
            (folder / "model.onnx").write_bytes(made)
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, cwd=folder)
            assert done.returncode == 0, (done.stdout, done.stderr)
            line = [text for text in done.stdout.splitlines() if text.startswith("loss before")][0].replace(",", "").split()
            assert float(line[4]) < 0.5 * float(line[2]), done.stdout
            stripes = [0.5 + (row * 3 // 8 == label) for label in range(3) for _ in range(2) for row in range(8) for _ in range(8)]
            write_npy(folder / "x.npy", [3, 2, 8, 8], stripes)
            for model, right in (("model.onnx", False), ("trained.onnx", True)):
                subprocess.run([PROGRAM, "run", model, "x=x.npy", "-o", "y=y.npy"], check=True, timeout=120, cwd=folder)
                rows = struct.unpack("<9f", (folder / "y.npy").read_bytes()[-36:])
                best = [max(range(3), key=lambda k, row=row: rows[3 * row + k]) for row in range(3)]
                assert not right or best == [0, 1, 2], (model, rows)
        for content in (b"", (folder / "state.safetensors").read_bytes()[:-4]):
            (folder / "model.onnx").write_bytes(content[:100])
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, cwd=folder)
            assert done.returncode == 1 and "model.onnx" in done.stderr, done.stderr


main()
