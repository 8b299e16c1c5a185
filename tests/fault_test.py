# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Faults from outside: kills, full disks, no memory. The program ends with a sentence or goes on; a checkpoint is the
old one or the new one.

    python3 fault_test.py PROGRAM [--kills N] [TEST]...

--kills sets how often runs are killed; 200 take some minutes.
"""
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

import train_case
from train_case import Case, leftovers, read, run, write_arrays, write_npy, write_set

KILLS = 8


# ---- the end at any moment ----


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
        child = train_case.start(*self.words(out))
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
            done = subprocess.run([train_case.PROGRAM, "train", "--resume", out + "/checkpoint.safetensors", "--out", out],
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
                                   train_case.PROGRAM, out], capture_output=True, text=True, check=False)  # fmt: skip
            if done.returncode not in (0, 1):
                self.skipTest("no file system may be mounted here")
            self.check(done, out, read(self.checkpoint("good")))
        self.assertEqual(done.returncode, 0)

    def test_device(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([train_case.PROGRAM, "info"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write to standard output", done.stderr)


# ---- no memory ----


class Memory(Case):
    """Each allocation fails in turn, alone or with all behind it: a sentence, or the same result all the same."""

    MOST = 40  # runs of a command, twice

    def setUp(self):
        super().setUp()
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None or b"__asan_init" in read(train_case.PROGRAM) or b"__tsan_init" in read(train_case.PROGRAM):
            self.skipTest("no compiler, or a program with an allocator of its own")
        self.shim = self.path("failing_malloc.so")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "failing_malloc.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", source, "-o", self.shim], check=True)
        self.data = write_arrays(self.path("set"), [0, 1, 2, 3] * 2)

    def call(self, words, **more):
        return subprocess.run([train_case.PROGRAM, *words], capture_output=True, text=True, check=False, timeout=60,
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
        words = [train_case.PROGRAM, "train", "--data", self.data, "--epochs", "1", "--out", self.path("out")]
        told = 0
        for megabytes in list(range(16, 64, 4)) + [128, 256, 512]:
            shutil.rmtree(self.path("out"), ignore_errors=True)
            limit = megabytes << 20

            def limited(*words):
                return subprocess.run(words, capture_output=True, text=True, check=False,
                                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))  # fmt: skip

            # What runs before main() has no memory: the loader, or CUDA's runtime, which then crashes.
            if limited(train_case.PROGRAM, "--version").returncode != 0:
                continue
            done = limited(*words)
            self.assertIn(done.returncode, (0, 1), done.stderr)
            told += done.returncode
            if done.returncode == 1:
                self.assertRegex(done.stderr, "^retrograde: ")
        self.assertEqual(done.returncode, 0)
        print("address space: %d limits were too low" % told, file=sys.stderr)


if __name__ == "__main__":
    if "--kills" in sys.argv:
        at = sys.argv.index("--kills")
        KILLS = int(sys.argv[at + 1])
        del sys.argv[at : at + 2]
    train_case.main()
