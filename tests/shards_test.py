# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Tar files as other programs make them: links, sparse members, names of any length and any place.

    python3 shards_test.py PROGRAM
"""
import io
import os
import shutil
import subprocess
import tarfile

import train_case
from train_case import Case, read, run, write_png

KINDS = ("png", "cls")


class Shards(Case):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("set"))
        self.samples = []
        for i in range(40):
            write_png(self.path("one.png"), 4, 4, bytes((6 * i,) * 16))
            self.samples.append((read(self.path("one.png")), b"%d" % (i % 2)))

    def pack(self, name=lambda i: "%03d" % i, form=tarfile.PAX_FORMAT, before=(), order=None):
        """`before`: other members, as pairs of type and name."""
        with tarfile.open(self.path("set", "train.tar"), "w", format=form) as tar:
            for kind, other in before:
                info = tarfile.TarInfo(other)
                info.type, info.linkname = kind, "000.png"
                tar.addfile(info)
            for i, end in order or [(i, end) for i in range(40) for end in (0, 1)]:
                info = tarfile.TarInfo("%s.%s" % (name(i), KINDS[end]))
                info.size = len(self.samples[i][end])
                tar.addfile(info, io.BytesIO(self.samples[i][end]))

    def learn(self, status=0):
        shutil.rmtree(self.path("out"), ignore_errors=True)
        return run("train", "--data", self.path("set"), "--model", "mlp", "--epochs", "1", "--out", self.path("out"), status=status)

    def test_names(self):
        """Names are compared, never opened: paths that lead elsewhere are names as others."""
        self.pack()
        self.learn()
        same = read(self.checkpoint("out"))
        for start in ("/etc/passwd", "../../", "./a.b/", "x" * 300, "ä" * 400, b"\xff\xfe".decode("utf-8", "surrogateescape")):
            self.pack(lambda i, start=start: "%s%03d" % (start, i), tarfile.GNU_FORMAT)
            self.learn()
            self.assertEqual(read(self.checkpoint("out")), same, start)
        for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            self.pack(lambda i: "%03d" % i + "x" * 1100, form)
            _, errors = self.learn(1)
            self.assertIn("which is too long", errors)
            self.assertEqual(errors.count("\n"), 1, errors)

    def test_other_members(self):
        """Links are told of where they have names of images or classes; folders and devices are not."""
        self.pack(before=((tarfile.DIRTYPE, "a.jpg"), (tarfile.FIFOTYPE, "p.jpg"), (tarfile.SYMTYPE, "readme.txt")))
        self.assertEqual(self.learn()[1], "")
        self.pack(before=((tarfile.LNKTYPE, "a.png"), (tarfile.LNKTYPE, "a.cls"), (tarfile.SYMTYPE, "b.png")))
        output, errors = self.learn()
        self.assertIn("3 images or classes are links to other members, which are not followed", errors)
        self.assertIn("32 images for training", output)

    def test_sparse(self):
        """GNU tar writes files with holes in three ways, whose data is in pieces."""
        if b"GNU tar" not in subprocess.run(["tar", "--version"], capture_output=True, check=False).stdout:
            self.skipTest("there is no GNU tar")
        os.makedirs(self.path("files"))
        for i in range(40):
            for end in (0, 1):
                with open(self.path("files", "%03d.%s" % (i, KINDS[end])), "wb") as file:
                    file.write(self.samples[i][end])
        for k in range(30):  # more pieces than the header of GNU has room for
            with open(self.path("files", "001.png"), "r+b") as file:
                file.seek((k + 1) << 17)
                file.write(b"x")
        for words in (["--format=gnu"], ["--format=posix"], ["--format=posix", "--sparse-version=0.1"],
                      ["--format=posix", "--sparse-version=0.0"]):  # fmt: skip
            subprocess.run(["tar", "--sparse", "--sort=name", *words, "-cf", self.path("set", "train.tar"), "-C",
                            self.path("files"), "."], check=True)  # fmt: skip
            if os.path.getsize(self.path("set", "train.tar")) > 3 << 20:
                self.skipTest("the file system has no holes")
            _, errors = self.learn(1)
            self.assertIn("is a sparse file, whose data is in pieces; pack it without --sparse", errors)
            self.assertEqual(errors.count("\n"), 1, errors)

    def test_links_with_sizes(self):
        """Some programs write the size of its file into the header of a link, without data."""
        self.pack()
        tar = tarfile.TarInfo("zz.png")
        tar.type, tar.linkname = tarfile.LNKTYPE, "000.png"
        head = bytearray(tar.tobuf(tarfile.USTAR_FORMAT))
        head[124:136] = b"%011o\0" % 700
        head[148:156] = b" " * 8
        head[148:156] = b"%06o\0 " % sum(head)
        packed = read(self.path("set", "train.tar"))
        with open(self.path("set", "train.tar"), "wb") as file:
            file.write(bytes(head) + packed)
        self.assertIn("32 images for training, 4 for validation, 4 for testing", self.learn()[0])

    def test_lost(self):
        """Of two images of a sample, and of two archives in a file, one is used, which is said."""
        self.pack(order=[(i, end) for i in range(40) for end in (0, 0, 1)])
        self.assertIn("40 samples have more than one image; the last one is used", self.learn()[1])
        self.pack()
        packed = read(self.path("set", "train.tar"))
        self.assertEqual(self.learn()[1], "")
        with open(self.path("set", "train.tar"), "ab") as file:
            file.write(packed)
        output, errors = self.learn()
        self.assertIn("32 images for training", output)
        self.assertIn("another archive follows in the same file (1 times) and is not read", errors)

    def test_folders(self):
        """Shards in folders of their parts are those of one folder."""
        for name in ("train", "test", "val"):
            self.pack(order=[(i, end) for i in range(40 if name == "train" else 10) for end in (0, 1)])
            os.makedirs(self.path("parts", name))
            os.rename(self.path("set", "train.tar"), self.path("parts", name, "000.tar"))
        for name in ("train", "test", "val"):
            shutil.copy(self.path("parts", name, "000.tar"), self.path("set", name + "-000.tar"))
        output, _ = self.learn()
        self.assertIn("40 images for training, 10 for validation, 10 for testing", output)
        apart = read(self.checkpoint("out"))
        shutil.rmtree(self.path("set"))
        os.rename(self.path("parts"), self.path("set"))
        self.assertIn("40 images for training, 10 for validation, 10 for testing", self.learn()[0])
        self.assertEqual(list(train_case.numbers(read(self.checkpoint("out")))), list(train_case.numbers(apart)))
        os.rename(self.path("set", "train"), self.path("set", "Training"))
        os.rename(self.path("set", "test"), self.path("set", "Testing"))
        self.assertIn("40 images for training, 10 for validation, 10 for testing", self.learn()[0])
        folders = {"train": "Training", "test": "Testing", "val": "val"}
        for train, test, val in (("Train", "Test", "Val"), ("photos-train", "photos-test", "photos-val"),
                                 ("a_training", "a_testing", "a_validation"), ("crash-train", "val", "crash-Test")):  # fmt: skip
            os.makedirs(self.path("again"))
            for name, part in (("train", train), ("test", test), ("val", val)):
                shutil.copy(self.path("set", folders[name], "000.tar"), self.path("again", part + "-000.tar"))
            output, _ = run("train", "--data", self.path("again"), "--model", "mlp", "--epochs", "1", "--out", self.path("o"))
            self.assertIn("40 images for training, 10 for validation, 10 for testing", output, train)
            shutil.rmtree(self.path("again"))
            shutil.rmtree(self.path("o"))
        os.makedirs(self.path("again"))  # a word alone is no part
        shutil.copy(self.path("set", "Training", "000.tar"), self.path("again", "crash-test-000.tar"))
        output, _ = run("train", "--data", self.path("again"), "--model", "mlp", "--epochs", "1", "--out", self.path("o"))
        self.assertIn("images for training", output)

    def test_parted(self):
        """All images, then all classes: what is missing is said."""
        self.pack(order=[(i, end) for end in (0, 1) for i in range(40)])
        _, errors = self.learn(1)
        self.assertIn("80 samples have no image or no class next to it, and are not used", errors)
        self.assertIn("(name.jpg, name.png or name.webp, and next to it name.cls)", errors)


if __name__ == "__main__":
    train_case.main()
