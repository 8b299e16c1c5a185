# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Hostile use from outside: input that asks for too much, closed streams, two runs in one folder, data that is no
data. The program ends with a sentence or goes on.

    python3 hostile_test.py PROGRAM
"""
import array
import json
import math
import os
import shutil
import resource
import socket
import struct
import subprocess
import zlib

import onnx_made
import train_case
from train_case import Case, png_chunk, read, run, write_arrays, write_npy, write_png, write_set


def spend(*words, wanted=1):
    """What the program says, seconds of processor time and megabytes of memory; its exit status is this one."""
    child = subprocess.Popen([train_case.PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (100, 100)))  # fmt: skip
    error = child.stderr.read().decode()
    child.stderr.close()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != wanted:
        raise AssertionError("%s: exit status %s\n%s" % (words, child.returncode, error))
    return error, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def cost(*words):
    """Seconds and megabytes of the program where it succeeds."""
    return spend(*words, wanted=0)[1:]


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
        self.assertIn("classes with the lowest accuracy, of 20001", told)
        self.assertLess(os.path.getsize(self.path("out", "report.html")), 1 << 20)

    def test_many_layers(self):
        folder = write_arrays(self.path("set"), [0, 1, 2, 3] * 2)
        words = "train", "--data", folder, "--epochs", "1", "--model"
        small, little = cost(*words, self.chain(1000), "--out", self.path("small"))
        large, much = cost(*words, self.chain(4000), "--out", self.path("large"))
        self.assertLess(large, 8 * small + 2)  # it was more than 16 times
        self.assertLess(large, 40)
        self.assertLess(much, 6 * little)

    def test_drawing(self):
        self.assertLess(cost("graph", self.chain(8000), "--out", self.path("network.dot"))[0], 20)
        _, errors = run("graph", self.chain(8000), "--out", self.path("network.svg"), status=1)
        self.assertIn("too large for SVG", errors)

    def test_classes_of_a_model(self):
        """An ONNX model of 200 bytes whose output has 23 million elements: names for all of them took a gigabyte."""
        with open(self.path("wide.onnx"), "wb") as file:
            nodes = [onnx_made.node("Resize", ["x", "", "s"], ["r"], mode="nearest"), onnx_made.node("Flatten", ["r"], ["y"])]
            file.write(onnx_made.model(nodes, [onnx_made.port("x", [1, 3, 28, 28])], [onnx_made.port("y", [])],
                                       [onnx_made.tensor("s", [4], [1.0, 1.0, 100.0, 100.0])]))  # fmt: skip
        write_npy(self.path("x.npy"), "|u1", (28, 28, 3), bytes(28 * 28 * 3))
        for words in (("predict", self.path("wide.onnx"), self.path("x.npy")),
                      ("import", self.path("wide.onnx"), "-o", self.path("wide.safetensors"))):  # fmt: skip
            errors, _, megabytes = spend(*words)
            self.assertIn("has 23520000 classes; at most 65536 are supported", errors)
            self.assertLess(megabytes, 500)

    def test_sizes_of_operators(self):
        """A size that is only declared took as many steps; a step down took a launch for each element."""
        write_npy(self.path("x.npy"), "<f4", (1, 1, 2, 3), bytes(24))
        errors, seconds, _ = spend("op", "Resize", "X=" + self.path("x.npy"), "--axes", "2,3",
                                   "--sizes", "1000000000001,1500000000002",
                                   "--keep_aspect_ratio_policy", "not_larger", "--mode", "nearest", "-o", "Y=" + self.path("y.npy"))  # fmt: skip
        self.assertIn("at most 2147483647 pixels are supported", errors)
        self.assertLess(seconds, 5)
        count = 3 << 20
        values = array.array("f", range(count))
        write_npy(self.path("long.npy"), "<f4", (count,), values.tobytes())
        seconds, megabytes = cost("op", "Slice", "data=" + self.path("long.npy"), "--starts", "-1", "--ends", "-100000000",
                                  "--steps", "-1", "-o", "output=" + self.path("y.npy"))  # fmt: skip
        self.assertLess(megabytes, 500)
        values.reverse()
        self.assertTrue(read(self.path("y.npy"))[-4 * count :] == values.tobytes())

    def test_pixels_of_images(self):
        """A PNG file of 130 kB has a thousand million pixels of one bit."""
        for name in ("a", "b"):
            os.makedirs(self.path("images", name))
            for i in range(4):
                write_png(self.path("images", name, "%d.png" % i), 8, 8, bytes(range(i, i + 64)))
        run("train", "--data", self.path("images"), "--size", "8", "--model", "mlp", "--epochs", "1", "--out", self.path("out"))
        row = bytes(1 + 32768 // 8)
        packer = zlib.compressobj()
        packed = b"".join(packer.compress(row * 64) for _ in range(32768 // 64)) + packer.flush()
        with open(self.path("b.png"), "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 32768, 32768, 1, 0, 0, 0, 0))
                       + png_chunk(b"IDAT", packed) + png_chunk(b"IEND", b""))  # fmt: skip
        errors, _, megabytes = spend("predict", self.path("out"), self.path("b.png"))
        self.assertIn("32768 x 32768 pixels, which is too much for a file of", errors)
        self.assertLess(megabytes, 500)

    def test_strips(self):
        """Of a strip only the rows that are seen take memory when it is resized."""
        if b"__asan_init" in read(train_case.PROGRAM) or b"__tsan_init" in read(train_case.PROGRAM):
            self.skipTest("sanitizers need addresses of their own")
        with open(self.path("mean.txt"), "w", encoding="utf-8") as file:
            file.write("pool kind=average window=512 stride=512\ndense classes\n")
        for name in ("a", "b"):
            os.makedirs(self.path("images", name))
            for i in range(3):
                write_png(self.path("images", name, "%d.png" % i), 1, 900000, bytes(900000))
                write_png(self.path("images", name, "wide%d.png" % i), 900000, 1, bytes(900000))
        run("train", "--data", self.path("images"), "--size", "512", "--model", self.path("mean.txt"), "--epochs", "1",
            "--batch", "2", "--threads", "1", "--out", self.path("out"),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20)))  # fmt: skip

    def test_labels_beyond_the_model(self):
        """A network with its own number of outputs says so before anything is trained."""
        folder = write_arrays(self.path("set"), [0, 1, 2, 17])
        with open(self.path("ten.txt"), "w", encoding="utf-8") as file:
            file.write("dense 10\n")
        words = "train", "--data", folder, "--model", self.path("ten.txt"), "--out", self.path("out")
        _, errors = run(*words, status=1)
        self.assertIn("18 classes", errors)
        self.assertFalse(os.path.exists(self.path("out")))


# ---- streams, folders, options ----


class Streams(Case):
    def words(self, *more):
        return [train_case.PROGRAM, "train", "--data", self.data, "--model", "mlp", "--out", self.path("out"), *more]

    def setUp(self):
        super().setUp()
        self.data = write_set(self.path("set"))

    def test_closed_streams(self):
        """Files took the numbers of closed streams, and progress went into metrics.csv. Output that is lost is a
        failure, after all else is done."""
        for closed in ("0<&- >&- 2>&-", ">&-", "2>&-"):
            shutil.rmtree(self.path("out"), ignore_errors=True)
            done = subprocess.run(["sh", "-c", '"$@" ' + closed, "sh", *self.words("--epochs", "2")],
                                  capture_output=True, text=True, check=False)  # fmt: skip
            self.assertEqual(done.returncode, 0 if closed == "2>&-" else 1)
            self.assertEqual(done.stderr, "retrograde: cannot write to standard output\n" if closed == ">&-" else "")
            self.assertEqual(self.epochs("out"), [1, 2])
            table = read(self.path("out", "metrics.csv")).decode()
            self.assertEqual(table.count("\n"), 3)
            self.assertNotIn("images", table.split("\n", 1)[1])

    def test_reader_has_gone(self):
        """A pipe that nobody reads any more stops training as Ctrl-C does, quietly."""
        command = '"$@" 2>"%s" | head -1; exit ${PIPESTATUS[0]}' % self.path("errors")
        done = subprocess.run(["bash", "-c", command, "bash", *self.words("--epochs", "30")],
                              stdout=subprocess.DEVNULL, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 141)
        self.assertEqual(read(self.path("errors")), b"")
        run("eval", self.checkpoint("out"), "--data", self.data)
        run("train", "--resume", self.checkpoint("out"), "--epochs", "3", "--out", self.path("out"))
        for words in (("check", "neuron", "--quick"), ("help", "--man")):
            command = '"$@" 2>"%s" | head -1' % self.path("errors")
            subprocess.run(["bash", "-c", command, "bash", train_case.PROGRAM, *words],
                           stdout=subprocess.DEVNULL, check=False)  # fmt: skip
            self.assertEqual(read(self.path("errors")), b"")

    def test_lost_output(self):
        """No command succeeds whose output nobody can get, a file that is the output included."""
        run(*self.words("--epochs", "1")[1:])
        image = self.path("x.npy")
        write_npy(image, "<f4", (2, 3), bytes(24))
        for words in (("info",), ("help",), ("--version",), ("check", "gram", "--case", "one"), ("op", "--list"),
                      ("graph", "lenet", "--out", "/dev/stdout"),
                      ("eval", self.checkpoint("out"), "--data", self.data),
                      ("op", "neuron", "x=" + image, "-o", "y=/dev/stdout")):  # fmt: skip
            done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", train_case.PROGRAM, *words],
                                  capture_output=True, text=True, check=False)  # fmt: skip
            self.assertEqual(done.returncode, 1, words)
            self.assertRegex(done.stderr, "cannot write to standard output|cannot be opened for writing")

    def test_small_stack(self):
        """Kernels wrote beyond the stacks of threads where the limit of the process was small."""
        for words in (self.words("--epochs", "1")[1:], ("check", "loss", "--quick", "--dtype", "f64")):
            run(*words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (128 << 10, 128 << 10)))

    def test_links(self):
        """A link stays, and what is written goes where it leads, also where there is nothing yet."""
        os.mkdir(self.path("elsewhere"))
        link, image = self.path("link.svg"), self.path("x.npy")
        write_npy(image, "<f4", (2, 3), bytes(24))
        for target in ("elsewhere/new", "elsewhere/./new", self.path("absolute"), "second"):
            for words in (("op", "neuron", "x=" + image, "-o"), ("graph", "mlp", "--out")):
                os.symlink("third", self.path("second"))
                os.symlink(target, link)
                for _ in range(2):
                    run(*words, ("y=" if words[0] == "op" else "") + link)
                    self.assertTrue(os.path.islink(link) and os.path.islink(self.path("second")))
                    self.assertGreater(os.path.getsize(link), 100)
                os.unlink(os.path.realpath(link))
                os.unlink(link)
                os.unlink(self.path("second"))
        for target, says in (("nowhere/new", "No such file or directory"), ("link.svg", "Too many levels")):
            os.symlink(target, link)
            _, errors = run("graph", "mlp", "--out", link, status=1)
            self.assertIn(says, errors)
            self.assertTrue(os.path.islink(link))
            os.unlink(link)
        os.mkdir(self.path("out"))
        for name in ("checkpoint.safetensors", "report.html", "metrics.csv"):
            os.symlink("../elsewhere/" + name, self.path("out", name))
        run(*self.words("--epochs", "1")[1:])
        self.assertTrue(all(os.path.islink(self.path("out", name)) for name in os.listdir(self.path("elsewhere"))))
        self.assertEqual(len(os.listdir(self.path("elsewhere"))), 3)

    def test_limited_files(self):
        """Also outside of train a file that may not grow is an error, not the end by a signal."""
        done = subprocess.run([train_case.PROGRAM, "graph", "lenet", "--out", self.path("network.svg")],
                              capture_output=True, text=True, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))  # fmt: skip
        self.assertEqual(done.returncode, 1)
        self.assertIn("network.svg: cannot be written: File too large", done.stderr)
        self.assertEqual([name for name in os.listdir(self.folder) if name != "set"], [])


class Folder(Case):
    def setUp(self):
        super().setUp()
        self.data = write_set(self.path("set"))

    def words(self, *more):
        return ["train", "--data", self.data, "--model", "mlp", "--out", self.path("out"), *more]

    def test_two_runs(self):
        """The second run in a folder is refused, also with --resume, and changes nothing."""
        run(*self.words("--epochs", "1"))
        first = train_case.start(*self.words("--epochs", "100000", "--resume", self.checkpoint("out")))
        try:
            first.stdout.readline()
            for more in ((), ("--resume", self.checkpoint("out"), "--epochs", "3")):
                _, errors = run(*self.words(*more), status=1)
                self.assertIn(self.path("out"), errors)
                self.assertIn("process %d is writing to this results folder" % first.pid, errors)
            self.assertIsNone(first.poll())
        finally:
            first.kill()
            first.communicate()
        run(*self.words("--resume", self.checkpoint("out"), "--epochs", "2"))

    def test_leftovers(self):
        """Temporary files of killed runs go with the next run; those of others stay."""
        gone = subprocess.Popen(["true"])
        gone.wait()
        names = {".retrograde-%d-0" % gone.pid: False, ".retrograde-%d-3" % os.getpid(): True,
                 ".retrograde-x-0": True, ".retrograde-%d-0.txt" % gone.pid: True, "mine": True}  # fmt: skip
        os.mkdir(self.path("out"))
        for name in names:
            with open(self.path("out", name), "w", encoding="utf-8"):
                pass
        run(*self.words("--epochs", "1"))
        for name, stays in names.items():
            self.assertEqual(os.path.exists(self.path("out", name)), stays, name)

    def test_what_cannot_be_written(self):
        """Told before anything is trained."""
        os.mkdir(self.path("out"))
        for name, make in (("checkpoint.safetensors", os.mkdir), ("report.html", os.mkfifo)):
            make(self.path("out", name))
            output, errors = run(*self.words(), status=1)
            self.assertIn(self.path("out", name) + ": cannot be replaced", errors)
            self.assertNotIn("epoch", output)
            os.rmdir(self.path("out", name)) if make is os.mkdir else os.unlink(self.path("out", name))
        with open(self.path("file"), "w", encoding="utf-8"):
            pass
        _, errors = run("train", "--data", self.data, "--out", self.path("file"), status=1)
        self.assertIn("this is a file, not a results folder", errors)

    def test_options(self):
        """0 is either meant or refused."""
        for name in ("rate", "epochs", "batch", "accumulate", "stop", "drop-every"):
            _, errors = run(*self.words("--" + name, "0"), status=2)
            self.assertRegex(errors, "--%s must be .*, not 0" % name)
        run(*self.words("--epochs", "1", "--seed", "0", "--threads", "0", "--momentum", "0", "--patience", "0"))
        _, errors = run("eval", self.checkpoint("out"), "--data", self.data, "--threads", "4294967297", status=2)
        self.assertIn("--threads must be between 0 and 1024, not 4294967297", errors)
        drawing = "graph", self.checkpoint("out"), "--out", self.path("network.dot")
        run(*drawing)
        _, errors = run(*drawing, "--height", "5", status=2)  # was ignored
        self.assertIn("a checkpoint has its own images", errors)
        _, errors = run("graph", "mlp", "--classes", "0", status=2)
        self.assertIn("must be between 1 and 1048576", errors)

    def test_default_rate(self):
        """No rate, and the default, are the same; checkpoints of earlier versions say rate=0."""
        run(*self.words("--epochs", "2", "--stop", "1"))
        data = read(self.checkpoint("out"))
        size = struct.unpack("<Q", data[:8])[0]
        header = data[8 : 8 + size].replace(b"rate=0.001", b"rate=0").ljust(size)
        self.assertTrue(header != data[8 : 8 + size])
        with open(self.path("out", "old.safetensors"), "wb") as file:
            file.write(data[:8] + header + data[8 + size :])
        run("train", "--resume", self.path("out", "old.safetensors"), "--out", self.path("again"))
        shutil.rmtree(self.path("out"))
        run(*self.words("--epochs", "2", "--rate", "0.001"))
        self.assertTrue(read(self.checkpoint("again")) == read(self.checkpoint("out")))


# ---- data ----


def png_with_palette(indices, colours, size=4):
    rows = b"".join(b"\0" + bytes(indices[i * size : (i + 1) * size]) for i in range(size))
    return (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 3, 0, 0, 0))
            + png_chunk(b"PLTE", bytes(range(3 * colours))) + png_chunk(b"IDAT", zlib.compress(rows))
            + png_chunk(b"IEND", b""))  # fmt: skip


class Data(Case):
    def refused(self, folder, *says):
        output, errors = run("train", "--data", folder, "--model", "mlp", "--out", self.path("out"), status=1)
        for word in says:
            self.assertIn(word, errors)
        self.assertNotIn("diverged", errors)
        self.assertNotIn("epoch", output)

    def test_pixels_that_are_no_numbers(self):
        """They were told as divergence, after an epoch; in test images, too."""
        for part in ("train", "test"):
            for value in (math.nan, math.inf, -math.inf):
                folder = write_arrays(self.path("set"), [0, 1, 2, 3],
                                      lambda p, i, a=part, v=value: v if p == a and i == 37 else i % 5)  # fmt: skip
                self.refused(folder, "x_%s.npy" % part, "image 2", "row 1, column 1")

    def images(self):
        for part in ("train", "test"):
            for name in ("a", "b"):
                os.makedirs(self.path("set", part, name))
                for i in range(3):
                    with open(self.path("set", part, name, "%d.png" % i), "wb") as file:
                        file.write(png_with_palette([0, 1, 2, 1] * 4, 3))
        return self.path("set")

    def test_files_that_are_no_images(self):
        """They were left out without a word."""
        folder = self.images()
        path = self.path("set", "train", "b", "x.png")
        run("train", "--data", folder, "--model", "mlp", "--epochs", "1", "--out", self.path("good"))
        for make, says in ((os.mkfifo, "a pipe"),
                           (lambda p: os.symlink(self.path("nothing"), p), "No such file"),
                           (lambda p: os.symlink("/dev/null", p), "a device"),
                           (lambda p: os.symlink("x.png", p), "symbolic links")):  # fmt: skip
            make(path)
            self.refused(folder, path, says)
            os.unlink(path)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path)
            self.refused(folder, path, "a socket")
        os.unlink(path)
        os.symlink(self.path("nothing"), self.path("set", "train", "c"))
        self.refused(folder, self.path("set", "train", "c"), "No such file")

    def test_palette(self):
        folder = self.images()
        with open(self.path("set", "train", "a", "1.png"), "wb") as file:
            file.write(png_with_palette([0, 1, 2, 1] * 2 + [0, 3, 0, 0] + [0] * 4, 3))
        self.refused(folder, "1.png", "row 2, column 1", "palette index 3, but the palette has 3 colours")

    def test_layer_without_readers(self):
        with open(self.path("model.txt"), "w", encoding="utf-8") as file:
            file.write("a: dense 8\n   spare: dense 4 from input\nneuron from a\ndense classes\n")
        words = "train", "--data", write_set(self.path("set")), "--model", self.path("model.txt")
        _, errors = run(*words, "--out", self.path("out"), status=1)
        self.assertIn("model.txt:2:11: no layer reads 'spare'", errors)


if __name__ == "__main__":
    train_case.main()
