# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""`retrograde train` from outside: what a run leaves behind, the same bits however it is cut, signals, and input
that is wrong.

    python3 train_test.py PROGRAM
"""
import array
import csv
import gzip
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

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


class Glyphs(Case):
    def test_two_epochs(self):
        words = ("train", "--data", "glyphs", "--model", "small", "--epochs", "2", "--threads", "2")
        output, errors = run(*words, "--json", "--out", self.path("out"))
        lines = [json.loads(line) for line in output.strip().split("\n")]
        self.assertEqual([line.get("epoch") for line in lines], [1, 2, None])
        self.assertGreater(lines[2]["test_accuracy"], 0.95)
        self.assertLess(lines[1]["loss"], lines[0]["loss"])
        self.assertEqual(lines[0]["images"], 12000)
        self.assertTrue(lines[2]["done"])
        self.assertNotIn("nan", errors.lower())
        with open(self.path("out", "metrics.csv"), newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["epoch"] for row in rows], ["1", "2"])
        accuracy = next(float(rows[1][name]) for name in rows[1] if "validation" in name and "accuracy" in name)
        self.assertAlmostEqual(accuracy, lines[1]["validation_accuracy"], places=6)
        report = read(self.path("out", "report.html")).decode()
        self.assertTrue(report.lower().startswith("<!doctype html>") and "</html>" in report)
        self.assertIn("small on glyphs", report)
        events = [name for name in os.listdir(self.path("out")) if name.startswith("events.out.tfevents.")]
        self.assertEqual(len(events), 1)
        self.assertGreater(os.path.getsize(self.path("out", events[0])), 100)
        told, _ = run("eval", self.checkpoint("out"), "--data", "glyphs", "--json")
        told = json.loads(told)
        self.assertAlmostEqual(told["accuracy"], lines[2]["test_accuracy"], places=6)
        self.assertEqual(sum(map(sum, told["confusion"])), 2000)


class SameBits(Case):
    def test_cut_and_resumed(self):
        run(*self.small("--epochs", "2", "--out", self.path("whole")))
        output, _ = run(*self.small("--epochs", "2", "--stop", "1", "--out", self.path("cut")))
        self.assertIn("--resume", output)
        self.assertFalse(os.path.exists(self.path("cut", "report.html")))
        run("train", "--resume", self.checkpoint("cut"), "--out", self.path("cut"))
        self.assertEqual(read(self.checkpoint("whole")), read(self.checkpoint("cut")))
        with open(self.path("cut", "metrics.csv"), encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), 3)  # a head, two epochs
        self.assertTrue(os.path.exists(self.path("cut", "report.html")))

    def test_threads(self):
        for optimizer in ("adam", "sgd", "rmsprop"):
            outs = []
            for threads in ("1", "2"):
                outs.append(optimizer + threads)
                run(*self.small("--threads", threads, "--epochs", "1", "--optimizer", optimizer, "--mirror",
                                "--shift", "1", "--out", self.path(outs[-1])))  # fmt: skip
            self.assertEqual(*(read(self.checkpoint(out)) for out in outs))

    def test_dtypes(self):
        for dtype in ("f64", "bf16", "f16"):
            words = ("--dtype", dtype, "--model", "small")
            run(*self.small(*words, "--epochs", "2", "--out", self.path(dtype)))
            run(*self.small(*words, "--epochs", "2", "--stop", "1", "--out", self.path(dtype + "cut")))
            run("train", "--resume", self.checkpoint(dtype + "cut"), "--out", self.path(dtype + "cut"))
            self.assertEqual(read(self.checkpoint(dtype)), read(self.checkpoint(dtype + "cut")))

    def test_accumulated_batches(self):
        words = ("--accumulate", "3", "--model", "mlp", "--epochs", "2")  # 8 batches: one step is cut by the end
        run(*self.small(*words, "--out", self.path("whole")))
        run(*self.small(*words, "--stop", "1", "--out", self.path("cut")))
        run("train", "--resume", self.checkpoint("cut"), "--out", self.path("cut"))
        self.assertEqual(read(self.checkpoint("whole")), read(self.checkpoint("cut")))


class GoingOn(Case):
    """What is left behind by a run in several parts."""

    def cut(self, *words):
        run(*self.small("--model", "mlp", "--epochs", "3", "--stop", "1", "--out", self.path("out"), *words))
        return ("train", "--resume", self.checkpoint("out"))

    def shown(self, out):
        """Steps that TensorBoard has after reading the files of events in their order, as their times say."""
        folder = self.path(out)
        files = [name for name in os.listdir(folder) if name.startswith("events.out.tfevents.")]
        steps = []
        for name in sorted(files, key=lambda name: os.stat(os.path.join(folder, name)).st_mtime_ns):
            data = read(os.path.join(folder, name))
            while data:
                length = struct.unpack("<Q", data[:8])[0]
                event, data = data[12 : 12 + length], data[16 + length :]
                step = event[10] if event[9] == 0x10 else 0  # small enough for one byte
                if event[-4:] == b"\x3a\x02\x08\x01":  # a start: these and later steps are taken again
                    steps = [old for old in steps if old < step]
                elif event[9] == 0x10:
                    steps.append(step)
        return steps

    def test_killed_before_checkpoint(self):
        """The row of an epoch is there, its checkpoint is not."""
        resume = self.cut()
        with open(self.path("out", "metrics.csv"), "a", encoding="utf-8") as file:
            file.write("2,16,9,9,9,9,9,9,9\r\n")
        run(*resume, "--out", self.path("out"))
        self.assertEqual(self.epochs("out"), [1, 2, 3])
        self.assertNotIn(b"9,9,9", read(self.path("out", "metrics.csv")))
        self.assertEqual(self.reported("out"), [1, 2, 3])

    def test_older_checkpoint(self):
        resume = self.cut()
        shutil.copy(self.checkpoint("out"), self.path("old.safetensors"))
        run(*resume, "--out", self.path("out"))
        run("train", "--resume", self.path("old.safetensors"), "--out", self.path("out"))
        self.assertEqual(self.epochs("out"), [1, 2, 3])
        self.assertEqual(self.reported("out"), [1, 2, 3])

    def test_another_folder(self):
        resume = self.cut()
        before = read(self.path("out", "metrics.csv"))
        run(*resume, "--out", self.path("other"))
        self.assertEqual(self.epochs("other"), [1, 2, 3])
        self.assertEqual(self.reported("other"), [1, 2, 3])
        self.assertEqual(read(self.path("out", "metrics.csv")), before)

    def test_a_used_folder(self):
        """A table of another run is not replaced by one that goes on, nor are somebody's notes by any."""
        resume = self.cut()
        run(*self.small("--model", "mlp", "--epochs", "1", "--seed", "9", "--out", self.path("other")))
        names = ("metrics.csv", "checkpoint.safetensors", "report.html")
        before = [read(self.path("other", name)) for name in names]
        self.refuses(*resume, "--out", self.path("other"), says=("other/metrics.csv", "rows of another run"))
        self.assertEqual(before, [read(self.path("other", name)) for name in names])
        with open(self.path("other", "metrics.csv"), "w", encoding="utf-8") as file:
            file.write("my own notes\n")
        for words in (resume, self.small("--epochs", "1")):
            self.refuses(*words, "--out", self.path("other"), says=("other/metrics.csv", "it is not changed"))
        self.assertEqual(read(self.path("other", "metrics.csv")), b"my own notes\n")

    def test_again_in_another_folder(self):
        """As after a run there that was killed."""
        resume = self.cut()
        words = (*resume, "--out", self.path("other"))
        run(*words, "--stop", "2")
        output, _ = run(*words)
        self.assertIn("other/metrics.csv: rows after epoch 1 are removed", output)
        self.assertEqual(self.epochs("other"), [1, 2, 3])
        self.assertEqual(self.reported("other"), [1, 2, 3])

    def test_empty_table(self):
        """An empty one is as none."""
        resume = self.cut()
        run(*resume, "--out", self.path("out"))
        shutil.copytree(self.path("out"), self.path("other"))
        with open(self.path("out", "metrics.csv"), "w", encoding="utf-8"):
            pass
        run(*resume, "--epochs", "4", "--out", self.path("other"))
        self.assertEqual(self.epochs("other"), [1, 2, 3, 4])
        self.assertEqual(self.reported("other"), [1, 2, 3, 4])

    def test_epoch_0(self):
        """Nobody writes such a row; it is kept as a note, and hides no epoch."""
        resume = self.cut()
        with open(self.path("out", "metrics.csv"), "a", encoding="utf-8", newline="") as file:
            file.write("0,0,,,,,,,\r\n")
        run(*resume, "--out", self.path("out"))
        self.assertEqual(self.epochs("out"), [1, 0, 2, 3])
        self.assertEqual(self.reported("out"), [1, 2, 3])

    def test_events(self):
        """TensorBoard shows each epoch once, whatever was told before."""
        resume = self.cut()
        self.assertEqual(self.shown("out"), [8])
        shutil.copy(self.checkpoint("out"), self.path("old.safetensors"))
        run(*resume, "--out", self.path("out"))
        self.assertEqual(self.shown("out"), [8, 16, 24])
        run("train", "--resume", self.path("old.safetensors"), "--out", self.path("out"))
        self.assertEqual(self.shown("out"), [8, 16, 24])
        run(*resume, "--epochs", "4", "--out", self.path("other"))
        self.assertEqual(self.shown("other"), [8, 16, 24, 32])
        run(*self.small("--model", "mlp", "--epochs", "1", "--out", self.path("out")))  # a new run
        self.assertEqual(self.shown("out"), [8])

    def test_nothing_left(self):
        """A run that is over can be resumed: it tests and reports."""
        resume = self.cut()
        run(*resume, "--out", self.path("out"))
        os.remove(self.path("out", "report.html"))
        run(*resume, "--out", self.path("out"))
        self.assertEqual(self.reported("out"), [1, 2, 3])


class Divergence(Case):
    def test_too_fast(self):
        """Such a run ends with a sentence, and keeps the last checkpoint that is of use."""
        words = ("--model", "mlp", "--optimizer", "sgd", "--schedule", "constant", "--out", self.path("out"))
        run(*self.small("--epochs", "4", "--stop", "1", *words))
        before = read(self.checkpoint("out"))
        for more in ((), ("--json",)):
            resume = ("train", "--resume", self.checkpoint("out"), "--out", self.path("out"), "--rate", "1e30")
            output, errors = run(*resume, *more, status=1)
            self.assertNotIn("-nan", output + errors)
            for word in ("diverged", "epoch 2", "is nan", "--rate", "of this epoch"):
                self.assertIn(word, errors.strip().split("\n")[-1])
            self.assertEqual(read(self.checkpoint("out")), before)
            self.assertEqual(self.epochs("out"), [1])
        _, errors = run(*self.small("--epochs", "1", "--rate", "1e30", *words), status=1)
        self.assertIn("Nothing of this epoch is saved\n", errors)

    def test_spoilt_moments(self):
        """Losses stay finite, the moments of adam do not: their gradients are beyond what has a square."""
        with open(self.path("steep.txt"), "w", encoding="utf-8") as file:
            file.write("dense classes\nneuron kind=linear a=1e25\n")
        words = self.small("--model", self.path("steep.txt"), "--epochs", "2", "--out", self.path("out"))
        self.refuses(*words, says=("diverged", "epoch 1", "contains inf", "Nothing of this epoch is saved"))
        self.assertFalse(os.path.exists(self.checkpoint("out")))
        self.assertEqual(self.epochs("out"), [])

    def test_interrupt(self):
        """The update before Ctrl-C may have spoilt the parameters, and no loss has told so yet."""
        words = ("--model", "mlp", "--optimizer", "sgd", "--schedule", "constant", "--out", self.path("out"))
        run(*self.small("--epochs", "4", "--stop", "1", *words))
        before = read(self.checkpoint("out"))
        resume = ("train", "--resume", self.checkpoint("out"), "--out", self.path("out"), "--rate", "1e38",
                  "--decay", "1000")  # fmt: skip
        told = ""
        for _ in range(40):
            child = start(*resume)
            child.stdout.readline()  # what is trained
            time.sleep(random.uniform(0, 0.005))
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=60)
            if child.returncode == 130:  # before any update
                self.assertTrue(all(map(math.isfinite, numbers(read(self.checkpoint("out"))))))
                with open(self.checkpoint("out"), "wb") as file:
                    file.write(before)
                continue
            self.assertEqual(child.returncode, 1, errors)
            self.assertEqual(read(self.checkpoint("out")), before)
            told = errors
            if "the parameter" in told:
                break
        for word in ("diverged", "epoch 2", "of this epoch", "last good checkpoint is " + self.checkpoint("out")):
            self.assertIn(word, told)

    def test_spoilt_network(self):
        """Of a checkpoint with NaN in it `eval` tells so, without a sign."""
        run(*self.small("--model", "mlp", "--epochs", "1", "--out", self.path("out")))
        data = read(self.checkpoint("out"))
        head = 8 + struct.unpack("<Q", data[:8])[0]
        data = data[:head] + b"\xff" * (len(data) - head)
        with open(self.path("bad.safetensors"), "wb") as file:
            file.write(data)
        output, errors = run("eval", self.path("bad.safetensors"), "--data", self.path("set"), status=1)
        self.assertIn("loss nan", output)
        self.assertIn("bad.safetensors: the network returns NaN", errors)
        output, _ = run("eval", self.path("bad.safetensors"), "--data", self.path("set"), "--json", status=1)
        self.assertIsNone(json.loads(output)["loss"])


class Parts(Case):
    """Data sets without a test part, or with one that does not fit."""

    def npy(self, name, shape, values, descr="|u1"):
        folder = self.path("npy")
        os.makedirs(folder, exist_ok=True)
        head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (descr, shape)
        head += " " * (-(len(head) + 11) % 64) + "\n"
        with open(os.path.join(folder, name + ".npy"), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + bytes(values))
        return folder

    def images(self, count, of, size=SIZE, classes=CLASSES):
        self.npy("x" + of, (count, size, size), (i % 251 for i in range(count * size * size)))
        return self.npy("y" + of, (count,), (i % classes for i in range(count)))

    def train(self, *words):
        return ("train", "--data", self.path("npy"), "--model", "mlp", "--epochs", "1", "--batch", "20",
                "--out", self.path("out")) + words  # fmt: skip

    def test_no_test_part(self):
        folder = self.images(80, "")
        output, _ = run(*self.train())
        self.assertIn("has no test part; 10 % of its images", output)
        self.assertIn("72 images for training, 8 for testing", output)
        output, _ = run("eval", self.checkpoint("out"), "--data", folder)
        self.assertTrue(output.startswith(folder + " has no test part; the training part is evaluated\n"), output)
        output, errors = run("eval", self.checkpoint("out"), "--data", folder, "--json")
        self.assertEqual((json.loads(output)["part"], json.loads(output)["images"]), ("train", 80))
        self.assertIn("the training part is evaluated", errors)

    def test_test_part(self):
        folder = self.images(80, "_train")
        self.images(24, "_test")
        output, _ = run(*self.train())
        self.assertIn("80 images for training, 24 for testing", output)
        output, errors = run("eval", self.checkpoint("out"), "--data", folder, "--json")
        self.assertEqual((json.loads(output)["part"], json.loads(output)["images"], errors), ("test", 24, ""))

    def test_unsupported_test_part(self):
        """What cannot be read is not the same as what is not there."""
        folder = self.images(80, "_train")
        self.images(24, "_test")
        self.npy("x_test", (24, SIZE, SIZE), bytes(24 * SIZE * SIZE * 4), "<i4")
        self.refuses(*self.train(), says=(folder, "x_test", "i32"))
        self.assertFalse(os.path.exists(self.path("out")))

    def test_other_shape(self):
        folder = self.images(80, "_train")
        self.images(24, "_test", SIZE + 1)
        self.refuses(*self.train(), says=(folder, "13x13x1", "12x12x1"))
        self.assertFalse(os.path.exists(self.path("out")))

    def test_other_classes(self):
        folder = self.images(80, "_train")
        self.images(24, "_test")
        run(*self.train())
        self.images(80, "_train", SIZE, 6)
        self.images(24, "_test", SIZE, 6)
        self.refuses("eval", self.checkpoint("out"), "--data", folder, says=(folder, "6 classes", "12x12x1 and 4"))
        self.refuses("train", "--resume", self.checkpoint("out"), "--epochs", "2", "--out", self.path("out"),
                     says=(folder, "6 classes"))  # fmt: skip


class Patience(Case):
    def test_over_a_resume(self):
        """An early stop comes when it would have come without the break."""
        words = ("--model", "mlp", "--epochs", "30", "--patience", "2", "--optimizer", "sgd", "--rate", "1e-30")
        output, _ = run(*self.small(*words, "--out", self.path("whole")))
        self.assertIn("no higher validation accuracy since epoch 1", output)
        self.assertEqual(self.epochs("whole"), [1, 2, 3])
        run(*self.small(*words, "--stop", "2", "--out", self.path("cut")))
        output, _ = run("train", "--resume", self.checkpoint("cut"), "--out", self.path("cut"))
        self.assertIn("no higher validation accuracy since epoch 1", output)
        self.assertEqual(self.epochs("cut"), [1, 2, 3])
        self.assertEqual(read(self.checkpoint("whole")), read(self.checkpoint("cut")))
        run("train", "--resume", self.checkpoint("cut"), "--out", self.path("cut"))  # it is over
        self.assertEqual(self.epochs("cut"), [1, 2, 3])
        self.assertEqual(self.reported("cut"), [1, 2, 3])


class Signals(Case):
    EPOCHS = "30"

    def interrupt(self, number, out):
        """Sends the signal in the third epoch or soon after it; whether it came before the end."""
        child = start(*self.small("--epochs", self.EPOCHS, "--out", out))
        seen = "".join(child.stdout.readline() for _ in range(3))  # what is trained, two epochs
        time.sleep(random.uniform(0, 0.1))
        child.send_signal(number)
        output, errors = child.communicate(timeout=60)
        if child.returncode == 0:
            return False
        self.assertEqual(child.returncode, 130, seen + output + errors)
        self.assertIn("--resume " + out, output)
        return True

    def test_interrupt(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            out = self.path("cut%d" % number)
            self.assertTrue(any(self.interrupt(number, out) for _ in range(5)))  # a busy machine may be late
            run("train", "--resume", os.path.join(out, "checkpoint.safetensors"), "--out", out)
        run(*self.small("--epochs", self.EPOCHS, "--out", self.path("whole")))
        for number in (signal.SIGINT, signal.SIGTERM):
            self.assertEqual(read(self.checkpoint("whole")), read(self.checkpoint("cut%d" % number)))

    def test_kill(self):
        words = self.small("--model", "small", "--epochs", "100000", "--schedule", "constant", "--out",
                           self.path("out"))  # fmt: skip
        epochs = 0
        for i in range(10):
            child = start(*words)
            for _ in range(3):
                child.stdout.readline()
            time.sleep(random.uniform(0, 0.05))
            child.kill()
            child.communicate()
            self.assertEqual(child.returncode, -signal.SIGKILL)
            told, _ = run("eval", self.checkpoint("out"), "--data", self.path("set"), "--json")
            self.assertEqual(sum(map(sum, json.loads(told)["confusion"])), 64)
            words = ("train", "--resume", self.checkpoint("out"), "--out", self.path("out"))
            told = self.epochs("out")  # the last row may be ahead of the checkpoint
            self.assertEqual(told, list(range(1, len(told) + 1)))
            self.assertGreaterEqual(len(told), epochs + 1)
            epochs = len(told) - 1


class Disk(Case):
    def test_unwritable(self):
        with open(self.path("file"), "w", encoding="utf-8"):
            pass
        self.refuses(*self.small("--out", self.path("file")), says=self.path("file"))
        self.refuses(*self.small("--out", self.path("no", "folder")), says=("no/folder", "No such file"))
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
        self.assertIn("checkpoint.safetensors", errors)
        self.assertEqual(read(self.checkpoint("out")), before)
        self.assertEqual(sorted(name for name in os.listdir(out) if "safetensors" in name),
                         ["checkpoint.safetensors"])  # fmt: skip
        run(*words)

    def test_full_output(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([PROGRAM, *self.small("--epochs", "1", "--out", self.path("out"))], stdout=full,
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
            process = subprocess.Popen([PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
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
        for key in texts:
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
            ("position", "257", "257", "256"),
            ("epoch", "-1", "epoch"),
            ("epoch", "99999999999999999999", "epoch"),
            ("steps", "9", "9 steps", "8 batches"),
            ("right", "5", "5 correct images of 0"),
            ("images", "5", "position 0"),
            ("best_epoch", "2", "the best epoch is 2, but the last complete epoch is 1"),
            ("best_accuracy", "nan", "best_accuracy"),
            ("loss", "inf", "loss"),
            ("dtype", "f16", "dtype"),
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


class Predictions(Case):
    def test_json(self):
        """The name of a file may be any bytes."""
        run(*self.small("--model", "mlp", "--epochs", "1", "--out", self.path("out")))
        image = os.fsencode(self.path('a "b"\\\n')) + b"\xff.npy"
        head = "{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d), }" % (SIZE, SIZE)
        head += " " * (-(len(head) + 11) % 64) + "\n"
        with open(image, "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + bytes(SIZE * SIZE))
        output, _ = run("predict", self.checkpoint("out"), image, "--json", "--top", "9")
        told = json.loads(output)
        self.assertTrue(told["image"].endswith('a "b"\\\n\ufffd.npy'))
        self.assertEqual(len(told["classes"]), CLASSES)
        self.assertAlmostEqual(sum(kind["probability"] for kind in told["classes"]), 1, places=4)


class BadWords(Case):
    def test_statuses(self):
        for words, says in (
            (("--epochs", "0"), "epochs"),
            (("--epochs", "x"), "epochs"),
            (("--epochs",), "epochs"),
            (("--epochs", "-1"), "epochs"),
            (("--batch", "0"), "batch"),
            (("--batch", "99999999999999999999"), "batch"),
            (("--rate", "inf"), "rate"),
            (("--rate", "nan"), "rate"),
            (("--momentum", "1"), "momentum"),
            (("--validation", "1"), "validation"),
            (("--optimizer", "adamm"), "adamm"),
            (("--schedule", "cos"), "cos"),
            (("--dtype", "i32"), "i32"),
            (("--threads", "5000"), "threads"),
            (("--wibble",), "wibble"),
            (("wibble",), "wibble"),
        ):
            self.refuses(*self.small("--out", self.path("out")), *words, says=says, status=2)
        self.refuses(*self.small("--device", "tpu", "--out", self.path("out")), says="tpu")
        self.assertFalse(os.path.exists(self.path("out")))
        output, _ = run("train", "--help")
        self.assertIn("--resume", output)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
