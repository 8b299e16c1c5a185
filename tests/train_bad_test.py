# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""`retrograde train` with input that is wrong: disks, data, models, checkpoints, words. Each gets a sentence.

    python3 train_bad_test.py PROGRAM
"""
import gzip
import json
import os
import resource
import struct
import subprocess

import train_case
from train_case import SIZE, Case, read, run, start, write_idx, write_set


class Disk(Case):
    def test_unwritable(self):
        with open(self.path("file"), "w", encoding="utf-8"):
            pass
        self.refuses(*self.small("--out", self.path("file")), says=self.path("file"))
        self.refuses(*self.small("--out", self.path("file", "folder")), says=("file/folder", "not a results folder"))
        self.refuses(*self.small("--out", "/proc/retrograde"), says="/proc/retrograde")

    def test_full(self):
        """A checkpoint that does not fit leaves the one before it as it was."""
        out = self.path("out")
        run(*self.small("--epochs", "2", "--stop", "1", "--out", out))
        before = read(self.checkpoint("out"))
        limit = len(before) // 2
        words = ("train", "--resume", self.checkpoint("out"), "--out", out)
        _, errors = run(*words, status=1,
                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))  # fmt: skip
        self.assertIn(".safetensors", errors)
        self.assertEqual(read(self.checkpoint("out")), before)
        self.assertEqual(sorted(name for name in os.listdir(out) if "safetensors" in name),
                         ["best.safetensors", "checkpoint.safetensors"])  # fmt: skip
        run(*words)

    def test_full_output(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([train_case.PROGRAM, *self.small("--epochs", "1", "--out", self.path("out"))], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=60)  # fmt: skip
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("standard output", done.stderr)
        self.assertTrue(os.path.exists(self.checkpoint("out")))


class BadData(Case):
    def setUp(self):
        super().setUp()
        self.out = ("--out", self.path("out"))

    def refused(self, folder, *says):
        self.refuses("train", "--data", folder, *self.out, says=says)
        self.assertFalse(os.path.exists(self.path("out")))

    def images(self, folder):
        return os.path.join(folder, "train-images-idx3-ubyte")

    def test_missing(self):
        self.refused(self.path("nowhere"), "nowhere", "No such file")
        os.mkdir(self.path("empty"))
        self.refused(self.path("empty"), "empty")
        folder = write_set(self.path("set"))
        os.remove(os.path.join(folder, "train-labels-idx1-ubyte"))
        self.refused(folder, "train-labels-idx1-ubyte")

    def test_truncated(self):
        folder = write_set(self.path("set"))
        data = read(self.images(folder))
        for size in (0, 3, 15, 16, len(data) - 1):
            with open(self.images(folder), "wb") as file:
                file.write(data[:size])
            self.refused(folder, "train-images-idx3-ubyte")

    def test_wrong_magic(self):
        folder = write_set(self.path("set"))
        for magic in (b"\1\0\x08\3", b"\0\0\x0d\3", b"\0\0\x08\7", b"\x89PNG"):
            write_idx(self.images(folder), (256, SIZE, SIZE), [0], magic)
            self.refused(folder, "train-images-idx3-ubyte")

    def test_claims(self):
        folder = write_set(self.path("set"))
        for dims in ((0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), (1 << 20, 1 << 10, 1 << 10), (0, SIZE, SIZE), (3, 0, 5)):
            write_idx(self.images(folder), dims, bytes(100))
            self.refused(folder, "train-images-idx3-ubyte")

    def test_gzip(self):
        folder = write_set(self.path("set"))
        os.remove(self.images(folder))
        packed = self.images(folder) + ".gz"
        with gzip.open(packed, "wb", 9) as file:  # 256 MB of zeros behind a head that claims 9 images
            file.write(struct.pack(">HBBIII", 0, 8, 3, 9, SIZE, SIZE))
            for _ in range(256):
                file.write(bytes(1 << 20))
        began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        self.refused(folder, "train-images-idx3-ubyte.gz")
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, began + (192 << 10))
        data = read(packed)
        with open(packed, "wb") as file:
            file.write(data[: len(data) // 2])
        self.refused(folder, "train-images-idx3-ubyte.gz")
        with open(packed, "wb") as file:
            file.write(b"no gzip file")
        self.refused(folder, "train-images-idx3-ubyte.gz")

    def test_labels(self):
        self.refused(write_set(self.path("few"), labels=[0] * 255), "256", "255")
        self.refused(write_set(self.path("many"), labels=[0] * 257), "256", "257")
        folder = self.path("npy")  # a label below 0, and one above all
        for label in (-1, 70000):
            os.makedirs(folder, exist_ok=True)
            for name, shape, descr, body in (
                ("x", "(2, 4, 4)", "|u1", bytes(32)),
                ("y", "(2,)", "<i4", struct.pack("<ii", 0, label)),
            ):
                text = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
                text += " " * (-(len(text) + 11) % 64) + "\n"
                with open(os.path.join(folder, name + ".npy"), "wb") as file:
                    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + body)
            self.refused(folder, "y.npy", str(label))


class BadModels(Case):
    def model(self, text):
        with open(self.path("model.txt"), "w", encoding="utf-8") as file:
            file.write(text)
        return self.small("--model", self.path("model.txt"), "--out", self.path("out"), "--epochs", "1")

    def test_mistakes(self):
        for text, place in (
            ("dense 8\n  wibble 4\ndense classes\n", "2:3: "),
            ("conv 8 window=3\nneuron kind=wobble\ndense classes\n", "2:8: "),
            ("conv\n", "1:1: "),
            ("dense 8 colour=1\n", "1:9: "),
            ("a: dense 8\nneuron from b\n", "2:13: "),
            ("adam\n", "1:1: "),
            ("a: dense 8\na: neuron\n", "2:1: "),
            ("dense 99999999999999999999\n", "1:7: "),
        ):
            self.refuses(*self.model(text), says="model.txt:" + place)
        self.refuses(*self.model(""), says="no layer")
        self.refuses(*self.model("conv 4 window=40\ndense classes\n"), says="conv")
        self.refuses(*self.small("--model", "lenett", "--out", self.path("out")), says="lenett")

    def test_own_model(self):
        run(*self.model("# one layer\nall: dense classes\n"))
        told, _ = run("eval", self.checkpoint("out"), "--data", self.path("set"), "--json")
        self.assertEqual(sum(map(sum, json.loads(told)["confusion"])), 64)


class BadCheckpoints(Case):
    def setUp(self):
        super().setUp()
        run(*self.small("--model", "mlp", "--epochs", "2", "--stop", "1", "--out", self.path("out")))
        self.data = read(self.checkpoint("out"))

    def other(self, data):
        with open(self.path("other.safetensors"), "wb") as file:
            file.write(data)
        return self.path("other.safetensors")

    def test_damaged(self):
        length = struct.unpack("<Q", self.data[:8])[0]
        for data in (b"", self.data[:7], self.data[: length // 2], self.data[: 8 + length], self.data[:-1],
                     self.data + b"\0", b"\xff" * 8 + self.data[8:]):  # fmt: skip
            path = self.other(data)
            self.refuses("train", "--resume", path, "--out", self.path("out"), says="other.safetensors")
            self.refuses("eval", path, "--data", self.path("set"), says="other.safetensors")
            self.refuses("predict", path, "image.png", says="other.safetensors")
        self.refuses("train", "--resume", self.path("none"), says="none")

    def test_texts(self):
        """Texts of the same length, so that the head stays right."""
        for old, new in (
            (b"retrograde checkpoint 1", b"retrograde checkpoint 9"),
            (b'"classes":"4"', b'"classes":"0"'),
            (b'"classes":"4"', b'"classes":"5"'),
            (b'"dtype":"f32"', b'"dtype":"f99"'),
            (b'"dtype":"f32"', b'"dtype":"f64"'),
            (b"dense 256", b"dense 255"),
            (b"dense 256", b"danse 256"),
            (b"epochs=2", b"epochs=x"),
            (b"momentum=", b"momentun="),
            (b'"epoch":"1"', b'"epoch":"-"'),
        ):
            spaced = old.replace(b'":"', b'": "')
            found = old if old in self.data else spaced
            self.assertIn(found, self.data)
            path = self.other(self.data.replace(found, new if found is old else new.replace(b'":"', b'": "'), 1))
            _, errors = run("train", "--resume", path, "--out", self.path("out"), status=1)
            self.assertTrue(errors.startswith("retrograde: ") and errors.count("\n") == 1, errors)
        self.assertEqual(read(self.checkpoint("out")), self.data)

    def changed(self, **texts):
        """The checkpoint with other texts; None takes one away."""
        length = struct.unpack("<Q", self.data[:8])[0]
        head = json.loads(self.data[8 : 8 + length])
        for key, text in texts.items():
            self.assertIn(key, head["__metadata__"])
            head["__metadata__"][key] = text
            if text is None:
                del head["__metadata__"][key]
        packed = json.dumps(head).encode()
        packed += b" " * (-len(packed) % 8)
        return self.other(struct.pack("<Q", len(packed)) + packed + self.data[8 + length :])

    def test_claims(self):
        """A model that asks for more than the file holds: refused before memory is taken for it. A file of 1 MB took
        several GB, and `--resume` filled them."""
        path = self.changed(model="dense 4000000\nneuron\ndense 128\nneuron\ndense classes\n")
        for words in (("eval", path, "--data", self.path("set")), ("train", "--resume", path, "--out", self.path("out"))):
            process = subprocess.Popen([train_case.PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            told = process.stderr.read()
            process.stderr.close()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(process.returncode, 1)
            self.assertIn("is f32[256, 12, 12, 1], but the model needs f32[4000000, 12, 12, 1]", told)
            self.assertLess(usage.ru_maxrss, 1 << 20)  # KiB

    def test_every_text(self):
        """Each of them missing, empty and wrong has a sentence that names the file and the text."""
        length = struct.unpack("<Q", self.data[:8])[0]
        texts = json.loads(self.data[8 : 8 + length])["__metadata__"]
        folder = os.listdir(self.path("out"))
        before = {name: read(self.path("out", name)) for name in folder}
        out = ("--out", self.path("out"))
        optional = {"pixels", "resize", "score", "weight", "target", "targets", "loss_kind"}  # which earlier versions have not written
        old = self.changed(set_images=None, set_hash=None)  # nor these two, of which one alone is wrong
        run("train", "--resume", old, "--out", self.path("old"), "--seed", "9", "--stop", "1")
        for key in set(texts) - optional:
            self.refuses("train", "--resume", self.changed(**{key: None}), *out, says=("other.safetensors", key))
        for key, text, *says in (
            ("model", "", "no layer"),
            ("model", "wibble 3\n", "wibble"),
            ("model", "dense 7\ndense classes\n", "dense1.w"),
            ("width", "0", "width"),
            ("channels", "3", "mean"),
            ("classes", "x", "classes"),
            ("class_names", "a\nb\n", "4 classes", "2 class names"),
            ("mean", "0.5,", "mean"),
            ("mean", "nan", "mean"),
            ("deviation", "0", "deviation"),
            ("deviation", "-1", "deviation"),
            ("position", "257", "257", "230"),
            ("epoch", "-1", "epoch"),
            ("epoch", "99999999999999999999", "epoch"),
            ("steps", "9", "9 steps", "8 batches"),
            ("right", "5", "5 correct images of 0"),
            ("weight", "5", "a weight of 5 for 0 images"),
            ("weight", "-1", "a weight of -1"),
            ("images", "5", "position 0"),
            ("best_epoch", "2", "the best epoch is 2, but the last complete epoch is 1"),
            ("best_accuracy", "nan", "best_accuracy"),
            ("loss", "inf", "loss"),
            ("dtype", "f16", "dtype"),
            ("resize", "2", "resize"),
            ("pixels", "5", "pixels"),
            ("target", "9", "target"),
            ("targets", "-1", "targets"),
            ("loss_kind", "x", "loss_kind"),
            ("score", "nan", "score"),
            ("options", "epochs", "epochs"),
        ):
            if key == "position":
                path = self.changed(position=text, images=text, right="0")
            else:
                path = self.changed(**{key: text})
            with self.subTest(key=key, text=text):
                self.refuses("train", "--resume", path, *out, says=("other.safetensors", *says))
        self.refuses("train", "--resume", self.changed(height="13"), *out, says=("12x12x1", "13x12x1"))
        for old, new in (("epochs=2", "epochs=0"), ("batch=32", "batch=0"), ("rate=0", "rate=nan"),
                         ("momentum=0.9", "momentum=2"), ("dtype=f32", "dtype=f64"), ("optimizer=adam", "optimizer=x"),
                         ("schedule=cosine", "schedule=x"), ("seed=1", "seed=-1")):  # fmt: skip
            self.assertIn(old, texts["options"])
            path = self.changed(options=texts["options"].replace(old, new))
            self.refuses("train", "--resume", path, *out, says=("other.safetensors", old.split("=")[0]))
        self.assertEqual(before, {name: read(self.path("out", name)) for name in os.listdir(self.path("out"))})

    def test_tensors(self):
        """Missing, of another shape, or full of what is no number."""
        length = struct.unpack("<Q", self.data[:8])[0]
        head = json.loads(self.data[8 : 8 + length])
        name = next(name for name in head if name.endswith("w"))
        out = ("--out", self.path("out"))

        def packed(head):
            text = json.dumps(head).encode()
            text += b" " * (-len(text) % 8)
            return self.other(struct.pack("<Q", len(text)) + text + self.data[8 + length :])

        renamed = {("other" if key == name else key): value for key, value in head.items()}
        self.refuses("train", "--resume", packed(renamed), *out, says=("other.safetensors", name, "missing"))
        reversed_shape = dict(head)
        reversed_shape[name] = dict(head[name], shape=head[name]["shape"][::-1])
        self.refuses("train", "--resume", packed(reversed_shape), *out, says=("other.safetensors", name))
        start = 8 + length + head[name]["data_offsets"][0]
        path = self.other(self.data[:start] + b"\0\0\xc0\x7f" + self.data[start + 4 :])
        self.refuses("train", "--resume", path, *out, says=("other.safetensors", name, "contains nan", "training cannot continue from it"))
        self.refuses("train", "--resume", self.folder, *out, says=self.folder)

    def test_another(self):
        """A checkpoint of other data, or of another optimizer."""
        out = ("--out", self.path("out"))
        resume = ("train", "--resume", self.checkpoint("out")) + out
        self.refuses(*resume, "--data", "glyphs", says=("12x12x1", "28x28x1"))
        self.refuses(*resume, "--optimizer", "rmsprop", says=("rmsprop", "adam"), status=2)
        self.refuses("eval", self.checkpoint("out"), "--data", "glyphs", says=("12x12x1", "28x28x1"))
        self.refuses(*resume, "--model", "small", says=("small", "mlp"), status=2)
        self.refuses(*resume, "--dtype", "f16", says=("f16", "f32"), status=2)
        plain = self.path("x.safetensors")
        head = b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  '
        with open(plain, "wb") as file:
            file.write(struct.pack("<Q", len(head)) + head + bytes(4))
        self.refuses("train", "--resume", plain, *out, says="this is not a checkpoint")


class BadWords(Case):
    def test_statuses(self):
        for words, says in (
            (("--epochs", "0"), "epochs"),
            (("--epochs", "x"), "epochs"),
            (("--epochs",), "epochs"),
            (("--epochs", "-1"), "epochs"),
            (("--batch", "0"), "batch"),
            (("--batch", "99999999999999999999"), "--batch must be a whole number of at most 9223372036854775807"),
            (("--rate", "inf"), "rate"),
            (("--rate", "nan"), "rate"),
            (("--momentum", "1"), "momentum"),
            (("--validation", "1"), "validation"),
            (("--optimizer", "adamm"), "adamm"),
            (("--schedule", "cos"), "cos"),
            (("--dtype", "i32"), "i32"),
            (("--threads", "5000"), "threads"),
            (("--wibble",), "wibble"),
            (("wibble", "wobble"), "unexpected argument"),
            (("--device", "tpu"), "tpu"),
            (("--device", "cuda:99999999999999999999"), "a number from 0 to 4096 must follow"),
            (("--warmup", "9223372036854775807"), "between 0 and 4611686018427387904"),
            (("--validation", "0.9999"), "--validation 0.9999 leaves no images"),
            (("--accumulate", "99999"), "--accumulate is 99999; it can be at most"),
        ):
            self.refuses(*self.small("--out", self.path("out")), *words, says=says, status=2)
        # One word is the file of a model.
        self.refuses(*self.small("--out", self.path("out")), "wibble", says="wibble: cannot be opened")
        self.assertFalse(os.path.exists(self.path("out")))
        output, _ = run("train", "--help")
        self.assertIn("--resume", output)


if __name__ == "__main__":
    train_case.main()
