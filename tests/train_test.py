# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""`retrograde train` from outside: what a run leaves behind, the same bits however it is cut, and signals.

    python3 train_test.py PROGRAM
"""
import csv
import json
import math
import os
import random
import shutil
import signal
import struct
import time

import train_case
from train_case import CLASSES, SIZE, Case, numbers, read, run, start


class Glyphs(Case):
    def test_two_epochs(self):
        words = ("train", "--data", "glyphs", "--model", "small", "--epochs", "2", "--threads", "2")
        output, errors = run(*words, "--json", "--out", self.path("out"))
        lines = [json.loads(line) for line in output.strip().split("\n")]
        self.assertEqual([line.get("epoch") for line in lines], [1, 2, None])
        self.assertGreater(lines[2]["test_accuracy"], 0.95)
        self.assertLess(lines[1]["loss"], lines[0]["loss"])
        self.assertEqual(lines[0]["images"], 10800)
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
        told, _ = run("eval", self.path("out", "best.safetensors"), "--json")
        told = json.loads(told)
        self.assertEqual((told["accuracy"], told["loss"]), (lines[2]["test_accuracy"], lines[2]["test_loss"]))
        self.assertEqual((told["data"], told["part"]), ("glyphs", "test"))
        self.assertEqual(sum(map(sum, told["confusion"])), 2000)


class SameBits(Case):
    def test_cut_and_resumed(self):
        run(*self.small("--epochs", "2", "--out", self.path("whole")))
        output, _ = run(*self.small("--epochs", "2", "--stop", "1", "--out", self.path("cut")))
        self.assertIn("--resume", output)
        self.assertIn("26 for validation", read(self.path("cut", "report.html")).decode())
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
        self.refuses(*resume, "--out", self.path("other"), says=("other/metrics.csv", "it is not changed"))
        self.refuses(*self.small("--epochs", "1"), "--out", self.path("other"), says="results of another run")
        for name in ("checkpoint.safetensors", "best.safetensors", "report.html"):
            os.remove(self.path("other", name))
        self.refuses(*self.small("--epochs", "1"), "--out", self.path("other"),
                     says=("other/metrics.csv", "it is not changed"))  # fmt: skip
        self.assertEqual(read(self.path("other", "metrics.csv")), b"my own notes\n")
        lines = before[0].split(b"\n")  # a run that was killed before its first checkpoint leaves one row
        for rows in (2, 1):
            with open(self.path("other", "metrics.csv"), "wb") as file:
                file.write(b"\n".join(lines[:2] + lines[1:2] * (rows - 1)) + b"\n")
            if rows == 2:
                self.refuses(*self.small("--epochs", "1"), "--out", self.path("other"), says="results of another run")
        run(*self.small("--model", "mlp", "--epochs", "1", "--out", self.path("other")))
        self.assertEqual(self.epochs("other"), [1])

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
        _, errors = run(*self.small("--epochs", "1", "--rate", "1e30", *words[:-1], self.path("new")), status=1)
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
        self.assertIn("65 images for training, 7 for validation, 8 for testing", output)
        tested = output.split("test accuracy ")[1].split(",")[0]
        output, _ = run("eval", self.path("out"))  # the images that were held back
        self.assertTrue(output.startswith(folder + ": 8 test images: accuracy " + tested), output)
        shutil.copytree(folder, self.path("copy"))
        copy = ("--data", self.path("copy"))
        output, _ = run("eval", self.path("out"), *copy)
        self.assertIn(copy[1] + ": 8 test images: accuracy " + tested, output)  # of the images of the run
        shutil.rmtree(self.path("copy"))
        shutil.copytree(self.images(60, ""), self.path("copy"))
        output, _ = run("eval", self.path("out"), *copy)
        self.assertTrue(output.startswith(copy[1] + " has no test part; the training part is evaluated\n"), output)
        output, errors = run("eval", self.checkpoint("out"), *copy, "--json")
        self.assertEqual((json.loads(output)["part"], json.loads(output)["images"]), ("train", 60))
        self.assertIn("the training part is evaluated", errors)

    def test_test_part(self):
        folder = self.images(80, "_train")
        self.images(24, "_test")
        output, _ = run(*self.train())
        self.assertIn("72 images for training, 8 for validation, 24 for testing", output)
        output, errors = run("eval", self.checkpoint("out"), "--data", folder, "--json")
        self.assertEqual((json.loads(output)["part"], json.loads(output)["images"], errors), ("test", 24, ""))

    def test_unsupported_test_part(self):
        """What cannot be read is not the same as what is not there."""
        folder = self.images(80, "_train")
        self.images(24, "_test")
        self.npy("x_test", (24, SIZE, SIZE), bytes(24 * SIZE * SIZE * 8), "<c8")
        self.refuses(*self.train(), says=(folder, "x_test", "c8"))
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

    def test_before_the_first_update(self):
        """A run that stops while gradients are still being accumulated has a report, too."""
        words = ("--model", "mlp", "--epochs", "9", "--patience", "1", "--accumulate", "30")
        output, _ = run(*self.small(*words, "--batch", "60", "--out", self.path("early")))
        self.assertIn("no higher validation accuracy since epoch 1", output)
        self.assertEqual(self.reported("early"), [1, 2])


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


if __name__ == "__main__":
    train_case.main()
