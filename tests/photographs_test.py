# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Photographs as large as cameras make them: their memory while several threads decode, and what folders hold beside them.

    python3 photographs_test.py PROGRAM
"""
import os
import struct
import zlib

import train_case
from train_case import Case, png_chunk, read, run, start, write_png


def segment(marker, data):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data


def flat_jpeg(height, width, orientation=1, scans=1):
    """A grey photograph in RGB, whose blocks take two bits each; in several scans libjpeg keeps all of it."""
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01" + struct.pack(">H", orientation) + bytes(6)
    code = bytes([1]) + bytes(15) + b"\0"  # one code, of one bit: 0
    frame = struct.pack(">BHHB", 8, height, width, 3) + b"".join(bytes([k, 0x11, 0]) for k in (1, 2, 3))
    made = b"\xff\xd8" + segment(0xE1, exif) + segment(0xDB, b"\0" + b"\1" * 64) + segment(0xC0, frame)
    made += segment(0xC4, b"\0" + code + b"\x10" + code)
    for scan in ((1, 2, 3),) if scans == 1 else ((1,), (2,), (3,)):
        head = bytes([len(scan)]) + b"".join(bytes([k, 0]) for k in scan) + b"\0\x3f\0"
        made += segment(0xDA, head) + bytes(-(-(-(-height // 8) * -(-width // 8) * 2 * len(scan)) // 8))
    return made + b"\xff\xd9"


def large_png(height, width):
    """Of as many bytes as pixels have."""
    row = b"\0" + bytes(i % 251 for i in range(3 * width))
    return (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + png_chunk(b"IDAT", zlib.compress(row * height, 0)) + png_chunk(b"IEND", b""))  # fmt: skip


class Large(Case):
    def setUp(self):
        super().setUp()
        self.data = self.path("photos")
        for name in "ab":
            os.makedirs(os.path.join(self.data, name))

    def write(self, name, data, copies=1):
        path = os.path.join(self.data, name)
        with open(path, "wb") as file:
            file.write(data)
        for i in range(1, copies):
            os.link(path, "%s-%d%s" % (path[:-4], i, path[-4:]))

    def peak(self, *words):
        """Memory in MB of training that reads images while it trains."""
        if b"__asan_init" in read(train_case.PROGRAM) or b"__tsan_init" in read(train_case.PROGRAM):
            self.skipTest("sanitizers need memory of their own")
        child = start("train", "--data", self.data, "--size", "16", "--model", "mlp", "--batch", "4", "--epochs", "2",
                      "--memory", "0", "--threads", "1", "--out", self.path("out"), *words)  # fmt: skip
        child.stdout.read()
        errors = child.stderr.read()
        child.stdout.close()
        child.stderr.close()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(status, 0, errors)
        return used.ru_maxrss / 1024

    def test_rows(self):
        """JPEG images are resized row by row, however they are turned: threads need not wait for memory."""
        self.needs("jpeg")
        self.write("a/1.jpg", flat_jpeg(4000, 6000), 6)
        self.write("b/1.jpg", flat_jpeg(4000, 6000, 6), 6)
        self.assertLess(self.peak("--workers", "4"), 140)

    def test_scans(self):
        """Images in several scans are kept whole, in 2 bytes a sample, and wait for each other; no thread keeps freed memory."""
        self.needs("jpeg")
        self.write("a/1.jpg", flat_jpeg(2400, 3200, 1, 3), 4)
        self.write("b/1.jpg", flat_jpeg(2400, 3200, 8, 3), 4)
        self.assertLess(self.peak("--workers", "8"), 300)

    def test_files(self):
        """The bytes of large files count, too."""
        self.write("a/1.png", large_png(2600, 2600), 8)
        self.write("b/1.png", large_png(2600, 2600), 8)
        self.assertLess(self.peak("--workers", "8"), 300)

    def needs(self, library):
        if library not in run("info")[0].lower():
            self.skipTest("the program has no lib" + library)


class Folders(Case):
    def photos(self, folder, pixel):
        os.makedirs(folder)
        for i in range(12):
            write_png(os.path.join(folder, "%d.png" % i), 4, 4, bytes((pixel + i,) * 16))

    def learn(self, status=0):
        return run("train", "--data", self.path("set"), "--model", "mlp", "--epochs", "1", "--out", self.path("out"),
                   status=status)  # fmt: skip

    def test_links(self):
        """Links to folders below a class are not followed, which is said."""
        self.photos(self.path("set", "a"), 0)
        self.photos(self.path("set", "b"), 100)
        self.photos(self.path("more"), 50)
        for i in range(2):
            os.symlink(self.path("more"), self.path("set", "b", "more%d" % i))
        output, errors = self.learn()
        self.assertIn("20 images for training", output)
        self.assertIn("2 links to folders are below a class, not followed: images there are not used", errors)

    def test_names_of_files(self):
        """Names that programs give to JPEG files."""
        if "jpeg" not in run("info")[0].lower():
            self.skipTest("the program has no libjpeg")
        for name in ("a", "b"):
            os.makedirs(self.path("set", name))
            for i, end in enumerate(("jpg", "JPEG", "jfif", "jpe", "JFIF", "jpeg") * 2):
                with open(self.path("set", name, "%d.%s" % (i, end)), "wb") as file:
                    file.write(flat_jpeg(4, 4))
        output, errors = self.learn()
        self.assertIn("20 images for training", output)
        self.assertEqual(errors, "")

    def test_class_names(self):
        self.photos(self.path("set", "a"), 0)
        self.photos(self.path("set", "b\nc"), 100)
        self.assertIn("b?c: the class name has a control character", self.learn(1)[1])


if __name__ == "__main__":
    train_case.main()
