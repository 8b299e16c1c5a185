# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""What `retrograde train` must not lose: other runs, the best epoch, the report of a run that is stopped; and what
`eval` says of it.

    python3 train_keep_test.py PROGRAM
"""
import json
import os
import shutil
import signal
import struct

import train_case
from train_case import Case, read, run, start, write_png


class Folders(Case):
    def test_default(self):
        words = self.small("--model", "mlp", "--epochs", "1")
        for name in ("run", "run-2", "run-3"):
            output, _ = run(*words, cwd=self.folder)
            self.assertIn("network  %s/best.safetensors" % name, output)
        before = read(self.path("run", "best.safetensors"))
        self.refuses(*words, "--out", self.path("run"), says=("another run", "--resume"))
        self.assertEqual(read(self.path("run", "best.safetensors")), before)

    def test_two_at_once(self):
        """A run that has nothing to show yet is one, too."""
        words = self.small("--epochs", "10000")
        first = start(*words, cwd=self.folder)
        first.stdout.readline()
        output, _ = run(*words, "--epochs", "1", cwd=self.folder)
        self.assertIn("network  run-2/best.safetensors", output)
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=60)

    def test_deep(self):
        run(*self.small("--model", "mlp", "--epochs", "1", "--out", self.path("a", "b", "c")))
        self.assertTrue(os.path.exists(self.path("a", "b", "c", "report.html")))

    def test_resume_goes_on_in_its_folder(self):
        words = self.small("--model", "mlp", "--epochs", "2", "--stop", "1", "--out", self.path("out"))
        run(*words)
        run("train", "--resume", "out", cwd=self.folder)  # the folder, or its checkpoint
        self.assertEqual(self.epochs("out"), [1, 2])
        self.assertFalse(os.path.exists(self.path("run")))


    def test_nothing_left(self):
        """A run that continues elsewhere without an epoch to train is whole there, too."""
        for words in (["--validation", "0"], []):
            shutil.rmtree(self.path("out"), ignore_errors=True)
            run(*self.small("--model", "mlp", "--epochs", "2", "--stop", "1", "--out", self.path("out")), *words)
            for i, more in enumerate((["--stop", "1"], ["--epochs", "1"])):
                output, _ = run("train", "--resume", self.path("out"), *more, "--out", self.path("more"))
                named = output.split("--resume " if i == 0 else "network  ")[1].split()[0]
                self.assertTrue(os.path.exists(named), output)
                run("train", "--resume", self.path("more"), "--epochs", "2")
                shutil.rmtree(self.path("more"))

    def test_loss_stays(self):
        """What a run has learned by one loss is not continued by another without a word."""
        train_case.write_npy(self.path("x.npy"), "<f4", (40, 2), bytes(320))
        train_case.write_npy(self.path("y.npy"), "<f4", (40,), struct.pack("<40f", *(i / 7 for i in range(40))))
        run("train", "--data", self.folder, "--model", "mlp", "--epochs", "2", "--stop", "1", "--out", self.path("out"))
        resume = ("train", "--resume", self.path("out"), "--out", self.path("more"))
        for loss in ("huber", "softmax_cross_entropy"):
            self.refuses(*resume, "--loss", loss, says="loss cannot change where training goes on")
        run(*resume, "--loss", "mean_squared")

    def test_size_of_glyphs(self):
        self.refuses("train", "--data", "glyphs", "--size", "20", "--out", self.path("out"), says="28 x 28 pixels")


class Best(Case):
    def test_best_weights(self):
        """The rate makes later epochs worse: the first one is kept, tested and repeated by eval."""
        words = self.small("--model", "mlp", "--optimizer", "sgd", "--schedule", "step", "--drop", "40",
                           "--drop-every", "1", "--rate", "0.02", "--epochs", "3", "--patience", "1")  # fmt: skip
        output, _ = run(*words, "--json", "--out", self.path("out"))
        lines = [json.loads(line) for line in output.strip().split("\n")]
        accuracies = [line["validation_accuracy"] for line in lines[:-1]]
        self.assertGreater(accuracies[0], accuracies[-1])
        for name, same in (("out", True), ("out/best.safetensors", True), ("out/checkpoint.safetensors", False)):
            told = json.loads(run("eval", self.path(name), "--json")[0])
            self.assertEqual((told["loss"], told["accuracy"]) == (lines[-1]["test_loss"], lines[-1]["test_accuracy"]),
                             same, name)  # fmt: skip
        self.assertIn("test images, epoch 1", read(self.path("out", "report.html")).decode())

    def test_no_validation(self):
        output, _ = run(*self.small("--model", "mlp", "--epochs", "1", "--validation", "0", "--out", self.path("out")))
        self.assertIn("256 images for training, 64 for testing", output)
        self.assertFalse(os.path.exists(self.path("out", "best.safetensors")))
        self.assertNotIn("validation", output)
        self.refuses(*self.small("--validation", "0", "--patience", "2"), says="--patience", status=2)

    def test_interrupt_writes_a_report(self):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and the program leaves it so
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            out = self.path("out%d" % number)
            child = start(*self.small("--epochs", "10000", "--out", out))
            for _ in range(2):
                child.stdout.readline()
            child.send_signal(number)
            child.communicate(timeout=60)
            self.assertEqual(child.returncode, 130)
            page = read(os.path.join(out, "report.html")).decode()
            self.assertTrue("validation images" in page and "test images" not in page and "</html>" in page)

    def test_loss_of_16_bits(self):
        for dtype in ("bf16", "f16"):
            output, _ = run(*self.small("--model", "mlp", "--epochs", "1", "--dtype", dtype, "--json", "--out",
                                        self.path(dtype)))  # fmt: skip
            loss = json.loads(output.split("\n")[-2])["test_loss"]
            self.assertNotEqual(loss * 2048 % 1, 0, "the loss has the few bits of the network's dtype")


class Eval(Case):
    def test_top5(self):
        """Told where there are more than five classes, and the same by train and eval."""
        words = ("train", "--data", "glyphs", "--model", "mlp", "--epochs", "1", "--json", "--out", self.path("out"))
        lines = [json.loads(line) for line in run(*words)[0].strip().split("\n")]
        self.assertTrue(lines[-1]["test_accuracy"] < lines[-1]["test_top5"] <= 1)
        self.assertIn("validation_top5", lines[0])
        output, _ = run("eval", self.path("out"))
        self.assertEqual(json.loads(run("eval", self.path("out"), "--json")[0])["top5"], lines[-1]["test_top5"])
        self.assertIn(", top-5 %.2f %%" % (100 * lines[-1]["test_top5"]), output)
        run(*self.small("--model", "mlp", "--epochs", "1", "--out", self.path("few")))  # of four classes
        self.assertNotIn("top-5", run("eval", self.path("few"))[0])

    def test_other_classes(self):
        for folder, names in (("one", "ab"), ("two", "ac")):
            for part in ("train", "test"):
                for name in names:
                    os.makedirs(self.path(folder, part, name))
                    for i in range(12):
                        write_png(self.path(folder, part, name, "%d.png" % i), 4, 4, bytes([100 * (name == "a") + i] * 16))
        run("train", "--data", self.path("one"), "--model", "mlp", "--epochs", "1", "--out", self.path("out"))
        run("eval", self.path("out"))
        self.refuses("eval", self.path("out"), "--data", self.path("two"), says=("class 1", "'c'", "'b'"))
        os.rename(self.path("one"), self.path("gone"))
        self.refuses("eval", self.path("out"), says=(self.path("one"), "was trained with this data"))


    def test_moved(self):
        """Images of the training that are elsewhere now: no figure is of images that were learned."""
        for name in "ab":
            os.makedirs(self.path("one", name))
            for i in range(60):
                write_png(self.path("one", name, "%d.png" % i), 4, 4, bytes([100 * (name == "a") + i] * 16))
        run("train", "--data", "one", "--model", "mlp", "--epochs", "1", "--out", "out", cwd=self.folder)
        own = json.loads(run("eval", "out", "--json", cwd=self.folder)[0])
        os.rename(self.path("one"), self.path("two"))
        output, errors = run("eval", "out", "--data", "two", "--json", cwd=self.folder)
        self.assertIn("two has the images of the training; those that were held back", errors)
        self.assertEqual({**json.loads(output), "data": "one"}, own)
        os.remove(self.path("two", "a", "3.png"))
        output, _ = run("eval", "out", "--data", "two", cwd=self.folder)
        self.assertIn("two: 119 train images", output)


class Softmax(Case):
    def test_refused(self):
        with open(self.path("twice.txt"), "w", encoding="utf-8") as file:
            file.write("dense classes\nsoftmax\n")
        self.refuses(*self.small("--model", self.path("twice.txt"), "--out", self.path("out")),
                     says=("twice.txt:2:1", "softmax itself"))  # fmt: skip
        with open(self.path("log.txt"), "w", encoding="utf-8") as file:
            file.write("dense classes\nsoftmax kind=log\n")  # the loss of it is the same
        run(*self.small("--model", self.path("log.txt"), "--epochs", "1", "--out", self.path("out")))


if __name__ == "__main__":
    train_case.main()
