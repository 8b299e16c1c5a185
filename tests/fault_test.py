# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Faults from outside: input that asks for too much, closed streams, two runs in one folder, kills, full disks, no
memory. The program ends with a sentence or goes on; a checkpoint is the old one or the new one.

    python3 fault_test.py PROGRAM [--kills N] [TEST]...

--kills sets how often runs are killed; 200 take some minutes.
"""
import json
import math
import os
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest
import zlib

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
        self.assertIn("classes with the lowest accuracy, of 20001", told)
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


# ---- streams, folders, options ----


class Streams(Case):
    def words(self, *more):
        return [train_test.PROGRAM, "train", "--data", self.data, "--model", "mlp", "--out", self.path("out"), *more]

    def setUp(self):
        super().setUp()
        self.data = write_set(self.path("set"))

    def test_closed_streams(self):
        """Files took the numbers of closed streams, and progress went into metrics.csv."""
        for closed in ("0<&- >&- 2>&-", ">&-", "2>&-"):
            done = subprocess.run(["sh", "-c", '"$@" ' + closed, "sh", *self.words("--epochs", "2")], check=False)
            self.assertEqual(done.returncode, 0)
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
            subprocess.run(["bash", "-c", command, "bash", train_test.PROGRAM, *words],
                           stdout=subprocess.DEVNULL, check=False)  # fmt: skip
            self.assertEqual(read(self.path("errors")), b"")

    def test_limited_files(self):
        """Also outside of train a file that may not grow is an error, not the end by a signal."""
        done = subprocess.run([train_test.PROGRAM, "graph", "lenet", "--out", self.path("network.svg")],
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
        first = train_test.start(*self.words("--epochs", "100000"))
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
        run(*self.words("--epochs", "2", "--rate", "0.001"))
        self.assertTrue(read(self.checkpoint("again")) == read(self.checkpoint("out")))


# ---- data ----


def png_chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


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


# ---- the end at any moment ----


def leftovers(folder):
    return [name for name in os.listdir(folder) if name.startswith(".retrograde-")] if os.path.isdir(folder) else []


class Kills(Case):
    EPOCHS = 60

    def words(self, out):
        words = ["train", "--data", self.data, "--model", "mlp", "--epochs", str(self.EPOCHS), "--batch", "32",
                 "--out", self.path(out)]  # fmt: skip
        if os.path.exists(self.checkpoint(out)):
            words += ["--resume", self.checkpoint(out)]
        return words

    def setUp(self):
        super().setUp()
        self.data = write_set(self.path("set"))
        began = time.monotonic()
        run(*self.words("whole"))
        self.seconds = time.monotonic() - began
        self.bits = read(self.checkpoint("whole"))

    def end(self, out, how, delay):
        """Starts or resumes a run and ends it; tells its exit status."""
        child = train_test.start(*self.words(out))
        time.sleep(delay)
        child.send_signal(how)
        _, errors = child.communicate()
        allowed = (0, -how) if how == signal.SIGKILL else (0, 130, -how)
        self.assertIn(child.returncode, allowed, errors)
        return child.returncode

    def finish(self, out):
        run(*self.words(out))
        self.assertTrue(read(self.checkpoint(out)) == self.bits, "the bits of a run that was killed differ")
        self.assertEqual(self.epochs(out), list(range(1, self.EPOCHS + 1)))
        self.assertEqual(leftovers(self.path(out)), [])

    def test_kills(self):
        """Runs that are ended over and over, and resumed each time, end with the bits of one that was not."""
        source = random.Random(KILLS)
        signals = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
        runs, begun, left, saved = 0, 0, 0, 0
        for i in range(KILLS):
            out = "out%d" % runs
            ended = self.end(out, signals[i % len(signals)], source.uniform(0, 0.8) * self.seconds)
            begun += os.path.isdir(self.path(out))
            left += len(leftovers(self.path(out)))
            if os.path.exists(self.checkpoint(out)):
                saved += 1
                run("eval", self.checkpoint(out), "--data", self.data)
            if ended == 0 or i % 6 == 5 or i == KILLS - 1:
                self.finish(out)
                runs += 1
        print("%d ends of %d runs: %d with a folder, %d with a checkpoint, %d temporary files left and removed"
              % (KILLS, runs, begun, saved, left), file=sys.stderr)  # fmt: skip


class Disk(Case):
    def setUp(self):
        super().setUp()
        self.data = write_set(self.path("set"))
        self.words = ["train", "--data", self.data, "--model", "mlp"]
        run(*self.words, "--epochs", "3", "--out", self.path("whole"))
        run(*self.words, "--epochs", "3", "--stop", "1", "--out", self.path("good"))
        self.size = os.path.getsize(self.checkpoint("good"))

    def check(self, done, out, old):
        """After a run on a disk that was full: the old checkpoint, or the right new one."""
        self.assertIn(done.returncode, (0, 1), done.stderr)
        kept = read(os.path.join(out, "checkpoint.safetensors"))
        if done.returncode == 1:
            self.assertRegex(done.stderr, "^retrograde: .*(File too large|No space left on device)\n$")
            run("eval", os.path.join(out, "checkpoint.safetensors"), "--data", self.data)
        else:
            self.assertTrue(kept == read(self.checkpoint("whole")))
        self.assertEqual(leftovers(out), [])
        return kept == old

    def test_limit(self):
        for limit in (0, 1, 100, 300, 4096, self.size // 2, 2 * self.size):
            out = self.path("out%d" % limit)
            shutil.copytree(self.path("good"), out)
            done = subprocess.run([train_test.PROGRAM, "train", "--resume", out + "/checkpoint.safetensors", "--out", out],
                                  capture_output=True, text=True, check=False,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))  # fmt: skip
            same = self.check(done, out, read(self.checkpoint("good")))
            self.assertEqual(same, limit < self.size)

    def test_full(self):
        """A file system of few pages, in a name space of its own, where that is permitted."""
        script = """mount -t tmpfs -o size=%dk none "$1" 2>/dev/null || exit 77
cp "$2"/* "$1" || exit 78
"$3" train --resume "$1/checkpoint.safetensors" --out "$1"; status=$?
mkdir "$4"; cp -a "$1/." "$4"; exit $status"""
        os.mkdir(self.path("disk"))
        pages = [self.size // 1024 + 12 + extra for extra in (4, 16, 40, self.size // 1024 + 16, 4 * self.size // 1024)]
        for number, size in enumerate(pages):
            out = self.path("copy%d" % number)
            how = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
            done = subprocess.run([*how, "sh", "-c", script % size, "sh", self.path("disk"), self.path("good"),
                                   train_test.PROGRAM, out], capture_output=True, text=True, check=False)  # fmt: skip
            if done.returncode not in (0, 1):
                self.skipTest("no file system may be mounted here")
            self.check(done, out, read(self.checkpoint("good")))
        self.assertEqual(done.returncode, 0)

    def test_device(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([train_test.PROGRAM, "info"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write to standard output", done.stderr)


# ---- no memory ----


class Memory(Case):
    """Each allocation fails in turn, alone or with all behind it: a sentence, or the same result all the same."""

    MOST = 40  # runs of a command, twice

    def setUp(self):
        super().setUp()
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None or b"__asan_init" in read(train_test.PROGRAM) or b"__tsan_init" in read(train_test.PROGRAM):
            self.skipTest("no compiler, or a program with an allocator of its own")
        self.shim = self.path("failing_malloc.so")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "failing_malloc.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", source, "-o", self.shim], check=True)
        self.data = write_arrays(self.path("set"), [0, 1, 2, 3] * 2)

    def call(self, words, **more):
        return subprocess.run([train_test.PROGRAM, *words], capture_output=True, text=True, check=False, timeout=60,
                              env=dict(os.environ, LD_PRELOAD=self.shim, **more))  # fmt: skip

    def each(self, *words, out=None, before=None):
        """Runs the command with every n-th allocation failing; `out` is what it writes."""
        if before is not None:
            before()
        done = self.call(words, FAIL_COUNT=self.path("count"))
        self.assertEqual(done.returncode, 0, done.stderr)
        good, total = read(out) if out else b"", int(read(self.path("count")))
        step = 1 if KILLS >= 100 else total // self.MOST + 1
        failed = 0
        for on in ({}, {"FAIL_ON": "1"}):
            for n in range(1, total + 1, step):
                if before is not None:
                    before()
                done = self.call(words, FAIL_AT=str(n), **on)
                where = "%s, allocation %d of %d%s: %s" % (words[0], n, total, " and on" if on else "", done.stderr)
                self.assertIn(done.returncode, (0, 1), where)
                failed += done.returncode
                if done.returncode == 1:
                    self.assertRegex(done.stderr, "^retrograde: .*memory", where)
                elif out is not None:
                    self.assertTrue(read(out) == good, where)
                if out is not None and os.path.exists(out) and out.endswith(".safetensors"):
                    run("eval", out, "--data", self.data)
        print("%s: %d allocations, every %d: %d failures told" % (words[0], total, step, failed), file=sys.stderr)

    def test_train(self):
        out = self.path("out")
        self.each("train", "--data", self.data, "--model", "mlp", "--epochs", "1", "--threads", "2", "--out", out,
                  out=self.checkpoint("out"), before=lambda: shutil.rmtree(out, ignore_errors=True))  # fmt: skip

    def test_resume(self):
        words = "train", "--data", self.data, "--model", "small", "--threads", "1"
        run(*words, "--epochs", "2", "--stop", "1", "--out", self.path("old"))
        old, out = self.checkpoint("old"), self.path("out")

        def before():
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(self.path("old"), out)

        self.each("train", "--resume", self.checkpoint("out"), "--out", out, "--threads", "1",
                  out=self.checkpoint("out"), before=before)  # fmt: skip
        self.assertTrue(os.path.exists(old))

    def test_others(self):
        run("train", "--data", self.data, "--epochs", "1", "--out", self.path("out"))
        image = self.path("image.npy")
        write_npy(image, "|u1", (4, 4, 1), bytes(range(16)))
        self.each("eval", self.checkpoint("out"), "--data", self.data)
        self.each("predict", self.checkpoint("out"), image, "--json")
        self.each("graph", "resnet", "--out", self.path("network.svg"), out=self.path("network.svg"))
        self.each("op", "softmax", "x=" + image, "--dtype", "f32", "-o", "y=" + self.path("y.npy"), out=self.path("y.npy"))

    def test_address_space(self):
        words = [train_test.PROGRAM, "train", "--data", self.data, "--epochs", "1", "--out", self.path("out")]
        told = 0
        for megabytes in list(range(16, 64, 4)) + [128, 256, 512]:
            limit = megabytes << 20
            done = subprocess.run(words, capture_output=True, text=True, check=False,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))  # fmt: skip
            if done.returncode in (126, 127):  # the loader has found no room for the libraries
                continue
            self.assertIn(done.returncode, (0, 1), done.stderr)
            told += done.returncode
            if done.returncode == 1:
                self.assertRegex(done.stderr, "^retrograde: ")
        self.assertEqual(done.returncode, 0)
        print("address space: %d limits were too low" % told, file=sys.stderr)


if __name__ == "__main__":
    arguments = sys.argv[:]
    if "--kills" in arguments:
        at = arguments.index("--kills")
        KILLS = int(arguments[at + 1])
        del arguments[at : at + 2]
    train_test.PROGRAM = os.path.abspath(arguments.pop(1))
    unittest.main(argv=arguments)
