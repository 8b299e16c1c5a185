# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""What the tests of `retrograde train` share: a small data set, runs of the program, and a test case with a folder."""
import array
import csv
import gzip
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

PROGRAM = None
SIZE = 12  # of the small images, square
CLASSES = 4


# ---- data ----


def write_idx(path, dims, values, magic=None):
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "wb") as file:
        file.write(magic or struct.pack(">HBB", 0, 8, len(dims)))
        file.write(b"".join(struct.pack(">I", dim) for dim in dims) + bytes(values))


def draw(source, label):
    """A bar on noise: where it stands, and whether it lies, tells the class."""
    pixels = bytearray(source.randrange(60) for _ in range(SIZE * SIZE))
    line = (2 if label % 2 else 8) + source.randrange(3)
    for i in range(SIZE):
        pixels[line * SIZE + i if label < 2 else i * SIZE + line] = 200 + source.randrange(56)
    return pixels


def write_set(folder, train=256, test=64, labels=None):
    os.makedirs(folder, exist_ok=True)
    source = random.Random(1)
    for part, count in (("train", train), ("t10k", test)):
        kinds = [i % CLASSES for i in range(count)]
        images = b"".join(bytes(draw(source, kind)) for kind in kinds)
        write_idx(os.path.join(folder, part + "-images-idx3-ubyte"), (count, SIZE, SIZE), images)
        kinds = labels if labels is not None and part == "train" else kinds
        write_idx(os.path.join(folder, part + "-labels-idx1-ubyte"), (len(kinds),), kinds)
    return folder


def write_npy(path, kind, shape, data):
    header = "{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }" % (kind, ", ".join(map(str, shape)))
    header = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)


def png_chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def write_png(path, width, height, pixels, channels=1):
    """An image of bytes, grey or RGB."""
    row = width * channels
    rows = b"".join(b"\0" + pixels[i * row : (i + 1) * row] for i in range(height))
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n"
                   + png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0))
                   + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b""))  # fmt: skip


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


def read(path):
    with open(path, "rb") as file:
        return file.read()


def numbers(checkpoint):
    """All f32 numbers in the bytes of a safetensors file."""
    start = 8 + struct.unpack("<Q", checkpoint[:8])[0]
    for name, tensor in json.loads(checkpoint[8:start]).items():
        if name != "__metadata__" and tensor["dtype"] == "F32":
            first, end = (start + offset for offset in tensor["data_offsets"])
            yield from array.array("f", checkpoint[first:end])


# ---- runs ----


def start(*words, **more):
    return subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            **more)  # fmt: skip


def run(*words, status=0, **more):
    """Both streams of the program, whose exit status must be this one."""
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=120, **more)
    if done.returncode != status:
        raise AssertionError(
            "%s: exit status %s, not %s\n%s%s" % (words, done.returncode, status, done.stdout, done.stderr)
        )
    return done.stdout, done.stderr


def leftovers(folder):
    return [name for name in os.listdir(folder) if name.startswith(".retrograde-")] if os.path.isdir(folder) else []


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def checkpoint(self, out):
        return self.path(out, "checkpoint.safetensors")

    def epochs(self, out):
        """Those of the table, row by row."""
        with open(self.path(out, "metrics.csv"), newline="", encoding="utf-8") as file:
            return [int(row["epoch"]) for row in csv.DictReader(file)]

    def reported(self, out):
        """Epochs in the table of the report."""
        page = read(self.path(out, "report.html")).decode()
        table = page[page.index('<table class="epochs">') :]
        table = table[table.index("<tbody>") : table.index("</table>")]
        return [int(number) for number in re.findall(r"<tr[^>]*>\s*<t[hd][^>]*>(\d+)<", table)]

    def refuses(self, *words, says, status=1):
        """One sentence on stderr, with all these words in it, and nothing left half-done."""
        _, errors = run(*words, status=status)
        lines = errors.strip().split("\n")
        self.assertEqual(len(lines), 1, errors)
        self.assertTrue(lines[0].startswith("retrograde: "), errors)
        for word in says if isinstance(says, tuple) else (says,):
            self.assertIn(word, errors)

    def small(self, *words):
        """Words of a run on small images with a network that has dropout in it."""
        if not os.path.exists(self.path("set")):
            write_set(self.path("set"))
        return ("train", "--data", self.path("set"), "--batch", "32") + words


def main():
    """Runs the tests of the script that was started, with the program that is its first argument."""
    global PROGRAM
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
