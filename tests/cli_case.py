# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""What the tests of the program share: NPY files, the definition of softmax, and a test case with a folder."""
import ast
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = None
FORMATS = {"<f4": "f", "<f8": "d", "<f2": "e", "<i8": "q"}
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}  # as on a machine without one


# ---- NPY and the definition, by hand ----


def save(path, shape, values, descr="<f4"):
    text = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % (
        descr,
        "".join("%d, " % dim for dim in shape),
    )
    text += " " * (-(len(text) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
        file.write(struct.pack("<%d%s" % (len(values), FORMATS[descr]), *values))


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    assert data[:6] == b"\x93NUMPY"
    length = struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10 : 10 + length].decode())
    body = data[10 + length :]
    kind = FORMATS[header["descr"]]
    count = len(body) // struct.calcsize(kind)
    return header["shape"], list(struct.unpack("<%d%s" % (count, kind), body)), header["descr"]


def softmax(row):
    top = max(row)
    powers = [math.exp(value - top) for value in row]
    return [power / sum(powers) for power in powers]


def gradient(dy, y):
    dot = sum(a * b for a, b in zip(dy, y))
    return [b * (a - dot) for a, b in zip(dy, y)]


def log_gradient(dy, y):
    return [a - math.exp(b) * sum(dy) for a, b in zip(dy, y)]


def by_rows(function, length, *arrays):
    result = []
    for start in range(0, len(arrays[0]), length):
        result += function(*(array[start : start + length] for array in arrays))
    return result


# ---- a test case ----


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        draw = random.Random(1)
        self.x = [draw.uniform(-2, 2) for _ in range(24)]
        self.dy = [draw.uniform(-2, 2) for _ in range(24)]
        self.y = by_rows(softmax, 4, self.x)
        self.save("x", (2, 3, 4), self.x)
        self.save("dy", (2, 3, 4), self.dy)
        self.save("y", (2, 3, 4), self.y)

    def path(self, name):
        return os.path.join(self.folder.name, name + ".npy")

    def save(self, name, shape, values, descr="<f4"):
        save(self.path(name), shape, values, descr)

    def run_program(self, *arguments, **environment):
        return subprocess.run(
            [PROGRAM, *arguments],
            cwd=self.folder.name,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=300,
        )

    def works(self, *arguments, **environment):
        done = self.run_program(*arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, status, *arguments, words=(), **environment):
        """One sentence on stderr with these words, nothing on stdout, no file."""
        before = sorted(os.listdir(self.folder.name))
        done = self.run_program(*arguments, **environment)
        self.assertEqual(done.returncode, status, (arguments, done.stderr))
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(sorted(os.listdir(self.folder.name)), before)

    def close(self, name, want, shape=(2, 3, 4), descr="<f4", within=1e-5):
        got_shape, got, got_descr = load(self.path(name))
        self.assertEqual((got_shape, got_descr), (shape, descr))
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertLessEqual(abs(a - b), within)


def main():
    """Runs the tests of the script that was started, with the program that is its first argument."""
    global PROGRAM
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
