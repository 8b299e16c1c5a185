# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Faults from outside: input that asks for too much, closed streams, two runs in one folder, kills, full disks, no
memory. The program ends with a sentence or goes on; a checkpoint is the old one or the new one.

    python3 fault_test.py PROGRAM [--kills N] [TEST]...

--kills sets how often runs are killed; 200 take some minutes.
"""
import json
import os
import random
import resource
import struct
import subprocess
import sys
import time
import unittest

import train_test
from train_test import Case, read, run, write_set

KILLS = 8


def write_npy(path, kind, shape, data):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }" % (kind, ", ".join(map(str, shape)))
    header = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)


def write_arrays(folder, labels, pixel=None, size=4):
    """A data set of small images; `pixel` makes them of floats, for (part, index)."""
    os.makedirs(folder, exist_ok=True)
    source = random.Random(1)
    for part, values in (("train", labels), ("test", [0, 1, 2, 3])):
        count = len(values) * size * size
        if pixel is None:
            data = bytes(source.randrange(256) for _ in range(count))
        else:
            data = struct.pack("<%df" % count, *(pixel(part, i) for i in range(count)))
        kind = "|u1" if pixel is None else "<f4"
        write_npy(os.path.join(folder, "x_%s.npy" % part), kind, (len(values), size, size, 1), data)
        write_npy(os.path.join(folder, "y_%s.npy" % part), "<i8", (len(values),),
                  struct.pack("<%dq" % len(values), *values))  # fmt: skip
    return folder


def cost(*words):
    """Seconds of processor time and megabytes of memory that the program takes."""
    child = subprocess.Popen([train_test.PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    error = child.stderr.read().decode()
    child.stderr.close()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise AssertionError("%s: exit status %s\n%s" % (words, child.returncode, error))
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


# ---- input that asks for much ----


class Bounds(Case):
    """Time and memory once grew with the square of classes and layers."""

    def chain(self, layers):
        path = self.path("chain%d.txt" % layers)
        with open(path, "w", encoding="utf-8") as file:
            file.write("dense 4\nneuron\n" * (layers // 2) + "dense classes\n")
        return path

    def test_many_classes(self):
        folder = write_arrays(self.path("set"), [20000, 1, 2, 3] * 2)
        seconds, megabytes = cost("train", "--data", folder, "--epochs", "1", "--out", self.path("out"))
        self.assertLess(seconds, 20)
        self.assertLess(megabytes, 400)
        told, _ = run("eval", self.checkpoint("out"), "--data", folder, "--json")
        cells = json.loads(told)["confusion_cells"]
        self.assertEqual(sum(count for _, _, count in cells), 4)
        told, _ = run("eval", self.checkpoint("out"), "--data", folder)
        self.assertLess(told.count("\n"), 80)
        self.assertIn("of 20001 classes", told)
        self.assertLess(os.path.getsize(self.path("out", "report.html")), 1 << 20)

    def test_many_layers(self):
        folder = write_arrays(self.path("set"), [0, 1, 2, 3] * 2)
        words = "train", "--data", folder, "--epochs", "1", "--out", self.path("out"), "--model"
        small, little = cost(*words, self.chain(1000))
        large, much = cost(*words, self.chain(4000))
        self.assertLess(large, 8 * small + 2)  # it was more than 16 times
        self.assertLess(large, 40)
        self.assertLess(much, 6 * little)

    def test_drawing(self):
        self.assertLess(cost("graph", self.chain(8000), "--out", self.path("network.dot"))[0], 20)
        _, errors = run("graph", self.chain(8000), "--out", self.path("network.svg"), status=1)
        self.assertIn("too large for SVG", errors)

    def test_labels_beyond_the_model(self):
        """A network with its own number of outputs says so before anything is trained."""
        folder = write_arrays(self.path("set"), [0, 1, 2, 17])
        with open(self.path("ten.txt"), "w", encoding="utf-8") as file:
            file.write("dense 10\n")
        words = "train", "--data", folder, "--model", self.path("ten.txt"), "--out", self.path("out")
        _, errors = run(*words, status=1)
        self.assertIn("18 classes", errors)
        self.assertFalse(os.path.exists(self.path("out")))


if __name__ == "__main__":
    arguments = sys.argv[:]
    if "--kills" in arguments:
        at = arguments.index("--kills")
        KILLS = int(arguments[at + 1])
        del arguments[at : at + 2]
    train_test.PROGRAM = os.path.abspath(arguments.pop(1))
    unittest.main(argv=arguments)
