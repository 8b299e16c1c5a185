# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Runs `retrograde run` on ONNX models with NPY files, by the standard library of Python alone."""
import pathlib
import struct
import subprocess
import sys

PROGRAM = pathlib.Path(sys.argv[1]).resolve()


def write_npy(path, dims, values, code="f"):
    descr = {"f": "<f4", "d": "<f8", "q": "<i8", "i": "<i4", "B": "|u1"}[code]
    shape = "(" + "".join(f"{dim}," for dim in dims) + ")"
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                     struct.pack(f"<{len(values)}{code}", *values))


def read_npy(path):
    data = path.read_bytes()
    length = struct.unpack("<H", data[8:10])[0]
    header = eval(data[10:10 + length])  # written by the program
    code = {"<f4": "f", "<f8": "d", "<i8": "q", "<i4": "i"}[header["descr"]]
    body = data[10 + length:]
    return header["shape"], struct.unpack(f"<{len(body) // struct.calcsize(code)}{code}", body)


def run_any(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def run(*arguments, command="run"):
    return run_any(command, *arguments)


def succeed(*arguments):
    done = run(*arguments)
    assert done.returncode == 0, (arguments, done.stderr)
