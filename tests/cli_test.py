# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""The program from outside: its commands, their files, sentences and exit statuses. What needs a GPU is
skipped, with a word, where `info` finds none.

    python3 cli_test.py PROGRAM
"""
import ast
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = None
FORMATS = {"<f4": "f", "<f8": "d", "<f2": "e", "<i8": "q"}
NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}  # as on a machine without one


# ---- NPY and the definition, by hand ----


def save(path, shape, values, descr="<f4"):
    text = "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }" % (
        descr,
        "".join("%d, " % dim for dim in shape),
    )
    text += " " * (-(len(text) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode())
        file.write(struct.pack("<%d%s" % (len(values), FORMATS[descr]), *values))


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    assert data[:6] == b"\x93NUMPY"
    length = struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10 : 10 + length].decode())
    body = data[10 + length :]
    kind = FORMATS[header["descr"]]
    count = len(body) // struct.calcsize(kind)
    return header["shape"], list(struct.unpack("<%d%s" % (count, kind), body)), header["descr"]


def softmax(row):
    top = max(row)
    powers = [math.exp(value - top) for value in row]
    return [power / sum(powers) for power in powers]


def gradient(dy, y):
    dot = sum(a * b for a, b in zip(dy, y))
    return [b * (a - dot) for a, b in zip(dy, y)]


def log_gradient(dy, y):
    return [a - math.exp(b) * sum(dy) for a, b in zip(dy, y)]


def by_rows(function, length, *arrays):
    result = []
    for start in range(0, len(arrays[0]), length):
        result += function(*(array[start : start + length] for array in arrays))
    return result


# ---- the tests ----


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        draw = random.Random(1)
        self.x = [draw.uniform(-2, 2) for _ in range(24)]
        self.dy = [draw.uniform(-2, 2) for _ in range(24)]
        self.y = by_rows(softmax, 4, self.x)
        self.save("x", (2, 3, 4), self.x)
        self.save("dy", (2, 3, 4), self.dy)
        self.save("y", (2, 3, 4), self.y)

    def path(self, name):
        return os.path.join(self.folder.name, name + ".npy")

    def save(self, name, shape, values, descr="<f4"):
        save(self.path(name), shape, values, descr)

    def run_program(self, *arguments, **environment):
        return subprocess.run(
            [PROGRAM, *arguments],
            cwd=self.folder.name,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            timeout=300,
        )

    def works(self, *arguments, **environment):
        done = self.run_program(*arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, status, *arguments, words=(), **environment):
        """One sentence on stderr with these words, nothing on stdout, no file."""
        before = sorted(os.listdir(self.folder.name))
        done = self.run_program(*arguments, **environment)
        self.assertEqual(done.returncode, status, (arguments, done.stderr))
        self.assertEqual(done.stdout, "")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(sorted(os.listdir(self.folder.name)), before)

    def close(self, name, want, shape=(2, 3, 4), descr="<f4", within=1e-5):
        got_shape, got, got_descr = load(self.path(name))
        self.assertEqual((got_shape, got_descr), (shape, descr))
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertLessEqual(abs(a - b), within)


class OpTest(ProgramTest):
    def test_forward_and_gradient(self):
        self.works("op", "softmax", "--axis", "2", "x=x.npy", "-o", "y=out.npy")
        self.close("out", self.y)
        self.works("op", "softmax", "--gradient", "--axis=-1", "dy=dy.npy", "y=y.npy", "-o", "dx=dx.npy")
        self.close("dx", by_rows(gradient, 4, self.dy, self.y))

    def test_gradient_computes_y(self):
        self.works("op", "softmax", "--gradient", "dy=dy.npy", "x=x.npy", "-o", "dx=a.npy", "-o", "y=b.npy")
        self.close("a", by_rows(gradient, 4, self.dy, self.y))
        self.close("b", self.y)

    def test_fields(self):
        self.works("op", "softmax", "--flatten", "--axis", "1", "x=x.npy", "-o", "y=a.npy")
        self.works("op", "softmax", "--axis", "1", "--flatten", "true", "x=x.npy", "-o", "y=b.npy")
        self.close("a", by_rows(softmax, 12, self.x))
        self.close("b", by_rows(softmax, 12, self.x))
        self.works("op", "softmax", "--flatten", "false", "--kind", "log", "x=x.npy", "-o", "y=c.npy")
        self.close("c", [math.log(value) for value in self.y])

    def test_names(self):
        log_y = [math.log(value) for value in self.y]
        self.save("log", (2, 3, 4), log_y)
        plain, flat = (by_rows(gradient, n, self.dy, self.y) for n in (4, 12))
        log, log_flat = (by_rows(log_gradient, n, self.dy, log_y) for n in (4, 12))
        for name, dy, y, dx, file, want in (
            ("SoftmaxGrad", "dY", "Y", "dX", "y", flat),
            ("SoftmaxGrad_13", "dY", "Y", "dX", "y", plain),
            ("LogSoftmaxGrad", "dY", "X", "dX", "log", log_flat),
            ("LogSoftmaxGrad_13", "dY", "X", "dX", "log", log),
            ("SoftmaxGrad_13", "dy", "y", "dx", "y", plain),
            ("MPSMatrixSoftMaxGradient", "gradientMatrix", "forwardOutputMatrix", "resultMatrix", "y", plain),
            ("MPSMatrixLogSoftMaxGradient", "gradientMatrix", "forwardOutputMatrix", "resultMatrix", "log", log),
            ("MPSCNNSoftMaxGradient", "sourceGradient", "sourceImage", "destinationGradient", "y", plain),
            ("MPSCNNLogSoftMaxGradient", "sourceGradient", "sourceImage", "destinationGradient", "log", log),
        ):
            self.works("op", name, dy + "=dy.npy", "%s=%s.npy" % (y, file), "-o", dx + "=out.npy")
            self.close("out", want)
        for name, x, y, want in (
            ("MPSMatrixSoftMax", "inputMatrix", "resultMatrix", self.y),
            ("MPSMatrixLogSoftMax", "inputMatrix", "resultMatrix", log_y),
            ("MPSCNNSoftMax", "sourceImage", "destinationImage", self.y),
            ("MPSCNNLogSoftMax", "sourceImage", "destinationImage", log_y),
        ):
            self.works("op", name, x + "=x.npy", "-o", y + "=out.npy")
            self.close("out", want)

    def test_names_have_ranks_and_directions(self):
        self.save("vector", (4,), self.x[:4])
        self.save("scalar", (), self.x[:1])
        self.refused(
            1, "op", "MPSMatrixSoftMax", "inputMatrix=vector.npy", "-o", "resultMatrix=out.npy",
            words=("MPSMatrixSoftMax", "inputMatrix", "rank 1"),
        )
        self.refused(1, "op", "SoftmaxGrad", "dY=vector.npy", "Y=vector.npy", "-o", "dX=out.npy", words=("axis",))
        self.refused(
            1, "op", "SoftmaxGrad_13", "dY=scalar.npy", "Y=scalar.npy", "-o", "dX=out.npy", words=("rank 0",)
        )
        self.refused(2, "op", "MPSMatrixSoftMax", "--gradient", "x=x.npy", "-o", "y=out.npy", words=("--gradient",))

    def test_slices(self):
        for text, keep in (
            ("[0:1]", lambda i, j, k: i == 0),
            ("[1,-2]", lambda i, j, k: i == 1 and j == 1),
            ("[:,1:]", lambda i, j, k: j >= 1),
            ("[:,:,1:3]", lambda i, j, k: 1 <= k < 3),
            ("[:,::2,-99:99]", lambda i, j, k: j != 1),
        ):
            kept = [(i, j, k) for i in range(2) for j in range(3) for k in range(4) if keep(i, j, k)]
            shape = tuple(len({index[d] for index in kept}) for d in range(3))
            want = by_rows(softmax, shape[2], [self.x[12 * i + 4 * j + k] for i, j, k in kept])
            self.works("op", "softmax", "x=x.npy" + text, "-o", "y=out.npy")
            self.close("out", want, shape)
        self.works("op", "softmax", "x=x.npy[2:]", "-o", "y=out.npy")
        self.close("out", [], (0, 3, 4))

    def test_bad_slices(self):
        for text in ("[]", "[a]", "[::0]", "[::-1]", "[0:1", "[0:1:1:1]", "[0,]", "[99999999999999999999]"):
            status = 2 if text.endswith("]") else 1  # without its end it is the name of a file
            self.refused(status, "op", "softmax", "x=x.npy" + text, "-o", "y=out.npy", words=(text,))
        self.refused(1, "op", "softmax", "x=x.npy[2]", "-o", "y=out.npy", words=("x.npy", "index 2"))
        self.refused(1, "op", "softmax", "x=x.npy[:,:,:,:]", "-o", "y=out.npy", words=("x.npy", "rank 3"))

    def test_dtypes(self):
        for dtype, descr, within in (
            ("f32", "<f4", 1e-6), ("f64", "<f8", 1e-6), ("f16", "<f2", 2e-3), ("bf16", "<f4", 1e-2),
        ):
            self.works("op", "softmax", "--dtype", dtype, "x=x.npy", "-o", "y=out.npy")
            self.close("out", self.y, descr=descr, within=within)
        self.save("whole", (2, 2), [1, 2, 3, 4], "<i8")
        self.refused(1, "op", "softmax", "x=whole.npy", "-o", "y=out.npy", words=("i64",))
        self.works("op", "softmax", "--dtype", "f64", "x=whole.npy", "-o", "y=out.npy")
        self.close("out", by_rows(softmax, 2, [1, 2, 3, 4]), (2, 2), "<f8", 1e-12)
        self.refused(2, "op", "softmax", "--dtype", "i32", "x=x.npy", "-o", "y=out.npy", words=("i32",))

    def test_options(self):
        self.works("op", "softmax", "--isa", "base", "--threads", "1", "--device", "cpu", "x=x.npy", "-o", "y=out.npy")
        self.close("out", self.y)
        self.refused(2, "op", "softmax", "--isa", "avx1024", "x=x.npy", "-o", "y=out.npy", words=("avx1024",))
        self.refused(2, "op", "softmax", "--threads", "9999", "x=x.npy", "-o", "y=out.npy", words=("threads",))
        self.refused(2, "op", "softmax", "--device", "tpu", "x=x.npy", "-o", "y=out.npy", words=("tpu",))
        self.refused(1, "op", "softmax", "--device", "cuda:77", "x=x.npy", "-o", "y=out.npy", words=("cuda:77",))

    def test_wrong_arguments(self):
        good = ("x=x.npy", "-o", "y=out.npy")
        self.refused(2, "op", words=("name of an op",))
        self.refused(2, "op", "softmix", *good, words=("softmix",))
        self.refused(2, "op", "softmax", "--axes", "1", *good, words=("axes",))
        self.refused(2, "op", "softmax", "--axis", "one", *good, words=("axis", "one"))
        self.refused(2, "op", "softmax", *good, "--axis", words=("axis",))
        self.refused(2, "op", "softmax", "--kind", "cubic", *good, words=("kind", "cubic"))
        self.refused(2, "op", "softmax", "z=x.npy", "-o", "y=out.npy", words=("'z'",))
        self.refused(2, "op", "softmax", "x=x.npy", "y=out.npy", words=("y",))
        self.refused(2, "op", "softmax", "x.npy", "-o", "y=out.npy", words=("x.npy",))
        self.refused(2, "op", "softmax", "x=x.npy", "-o", words=("-o",))
        self.refused(2, "op", "softmax", "x=x.npy", words=("-o y=FILE",))
        self.refused(2, "op", "softmax", "-o", "y=out.npy", words=("x",))
        self.refused(2, "op", "softmax", "x=x.npy", "x=x.npy", "-o", "y=out.npy", words=("twice",))
        self.refused(2, "op", "softmax", "x=x.npy", "-o", "state.mask=out.npy", words=("mask",))
        self.refused(2, "op", "softmax", "--gradient", "y=y.npy", "-o", "dx=out.npy", words=("dy",))
        self.refused(2, "op", "softmax", "--gradient", "dy=dy.npy", "-o", "dx=out.npy", words=("y",))
        self.refused(2, "op", "softmax", "--gradient", "dy=dy.npy", "y=y.npy", "dx=out.npy", words=("dx",))
        self.refused(
            2, "op", "softmax", "--gradient", "dy=dy.npy", "x=x.npy", "-o", "dx=out.npy", "-o", "y=out.npy",
            words=("same file",),
        )

    def test_failures(self):
        self.save("other", (2, 3, 5), [0.5] * 30)
        with open(self.path("text"), "w") as file:
            file.write("not a tensor\n")
        self.refused(1, "op", "softmax", "--axis", "3", "x=x.npy", "-o", "y=out.npy", words=("axis",))
        self.refused(1, "op", "softmax", "x=none.npy", "-o", "y=out.npy", words=("none.npy",))
        self.refused(1, "op", "softmax", "x=text.npy", "-o", "y=out.npy", words=("text.npy",))
        self.refused(
            1, "op", "softmax", "--gradient", "dy=other.npy", "y=y.npy", "-o", "dx=out.npy", words=("dy", "y")
        )
        self.refused(1, "op", "softmax", "x=x.npy", "-o", "y=no/out.npy", words=("no/out.npy",))
        both = ("op", "softmax", "--gradient", "dy=dy.npy", "x=x.npy", "-o", "dx=out.npy", "-o")
        self.refused(1, *both, "y=no/out.npy", words=("no/out.npy",))
        if os.path.exists("/dev/full"):
            self.refused(1, "op", "softmax", "x=x.npy", "-o", "y=/dev/full", words=("/dev/full",))
            self.refused(1, *both, "y=/dev/full", words=("/dev/full",))

    def test_list_and_help(self):
        listed = self.works("op", "--list").stdout
        for name in ("softmax:", "SoftmaxGrad_13", "MPSCNNLogSoftMaxGradient"):
            self.assertIn(name, listed)
        text = self.works("op", "softmax", "--help").stdout
        for word in ("--kind plain|log", "--axis", "--flatten", "default -1", "dy=FILE", "SoftmaxGrad", "--dtype"):
            self.assertIn(word, text)
        text = self.works("op", "LogSoftmaxGrad", "--help").stdout
        for word in ("dY=FILE X=FILE -o dX=FILE", "default log", "default 1", "default true"):
            self.assertIn(word, text)


class InfoTest(ProgramTest):
    def test_info(self):
        text = self.works("info").stdout
        for word in ("retrograde", "cpu", "cuda", "base", "threads", "compiler"):
            self.assertIn(word, text)
        told = json.loads(self.works("info", "--json", RG_THREADS="3", RG_CPU="base").stdout)
        self.assertEqual((told["threads"], told["isa"], told["devices"][0]), (3, "base", "cpu"))
        self.assertIn("type", told["build"])
        self.assertIn("cuda", told["build"])
        peers = told["build"]["peers"].split()
        self.assertLessEqual({"openblas", "torch", "compile"}, set(peers))
        self.refused(2, "bench", "--against", "wibble", words=("wibble", *peers))
        for peer in peers:
            self.assertIn("  %s " % peer, self.works("bench", "--help").stdout)
        self.assertEqual([about["name"] for about in told["about"]], told["devices"])
        self.assertEqual(told["about"][0]["text"], "3 threads, base")
        self.refused(2, "info", "more", words=("more",))
        self.refused(2, "info", "--more", words=("more",))


    def test_no_gpu(self):
        text = self.works("info", **NO_GPU).stdout
        self.assertIn("the device 'cuda' is not available", text)
        self.assertNotIn("cuda:0", text)
        told = json.loads(self.works("info", "--json", **NO_GPU).stdout)
        self.assertEqual((told["devices"], told["cuda"]), (["cpu"], False))


class CheckTest(ProgramTest):
    ONE = ("check", "softmax", "--case", "64x128", "--dtype", "f32")

    def count(self, *arguments):
        """Comparisons of one case, all instruction sets together."""
        rows = [json.loads(line) for line in self.works(*self.ONE, "--json", *arguments).stdout.splitlines()]
        for row in rows:
            self.assertEqual((row["failures"], row["cases"], row["device"]), (0, 1, "cpu"))
        return sum(row["comparisons"] for row in rows)

    def test_runs(self):
        self.assertEqual(self.count("--runs", "2"), 2 * self.count())
        self.refused(2, *self.ONE, "--runs", "0", words=("--runs",))
        self.refused(2, *self.ONE, "--runs", "two", words=("two",))

    def test_long(self):
        """Cases of long sums run by --long or by name alone, and take one number of threads."""
        long = ("check", "grad_norm", "--dtype", "f32", "--isa", "base", "--json")
        self.assertIn("--long", self.works("check", "--help").stdout)
        row = json.loads(self.works(*long, "--long").stdout)
        self.assertEqual((row["failures"], row["cases"], row["threads"]), (0, 2, "2"))
        row = json.loads(self.works(*long, "--case", "long-67m", "--threads", "1").stdout)
        self.assertEqual((row["failures"], row["cases"], row["threads"]), (0, 1, "1"))
        self.refused(2, *long, "--long", "--quick", words=("--quick", "--long"))
        self.refused(2, "check", "slice", "--long", words=("no case matches the arguments",))

    def test_fingerprints(self):
        """One line for each case with hashes of its bits, the same in every run."""
        ask = ("check", "reshape", "--quick", "--dtype", "f32", "--isa", "base", "--fingerprints")
        self.works(*ask, "one.txt")
        self.works(*ask, "two.txt")
        files = [open(os.path.join(self.folder.name, name)) for name in ("one.txt", "two.txt")]
        lines, again = [file.read().splitlines() for file in files]
        for file in files:
            file.close()
        self.assertEqual(lines, again)
        self.assertRegex(lines[0], r"^reshape \S+ f32 cpu base( [0-9a-f]{16}){3}$")
        self.assertGreater(len({line.split()[5] for line in lines}), 1)
        self.refused(1, *ask, "no/such/folder", words=("no/such/folder",))

    def test_renamed_option(self):
        """--rung was the name of --isa in 0.1."""
        done = self.works("check", "reshape", "--quick", "--dtype", "f32", "--rung", "base")
        self.assertIn("cpu    base", done.stdout)
        self.assertIn("--rung is deprecated, use --isa", done.stderr)

    def test_networks(self):
        run = ("check", "--networks", "1", "--seed", "7", "--isa", "base")
        self.assertIn("0 failures", self.works(*run).stdout)
        self.assertIn("0 failures", self.works(*run, "--only", "0,1").stdout)
        self.refused(2, "check", "softmax", *run[1:], words=("--networks", "no op"))
        self.refused(2, *run, "--dtype", "f32", words=("--networks", "--dtype"))
        for items in ("1,", "0;1", "-1", "9999", "x"):
            self.refused(2, *run, "--only", items, words=("--only",))

    def test_no_gpu(self):
        for device in ("cuda", "cuda:0"):
            self.refused(1, *self.ONE, "--device", device, words=("'%s'" % device,), **NO_GPU)
            self.refused(
                1, "op", "softmax", "--device", device, "x=x.npy", "-o", "y=out.npy",
                words=("'%s'" % device,), **NO_GPU,
            )

    def test_wrong_arguments(self):
        self.refused(2, "check", "softmix", words=("softmix",))
        self.refused(2, *self.ONE, "--device", "tpu", words=("tpu",))
        self.refused(1, *self.ONE, "--device", "cuda:77", words=("cuda:77",))
        self.refused(2, *self.ONE, "--dtype", "i64", words=("i64",))
        self.refused(2, *self.ONE, "--isa", "avx1024", words=("avx1024",))


class RandomTest(ProgramTest):
    CASE = "dtype=f16; x=3,5; fields=axis=0; seed=4; views=7:15; threads=2; forms=gradient,alias,batch"

    def test_trials(self):
        ask = ("check", "softmax", "reshape", "--trials", "12", "--seed", "3")
        first = self.works(*ask).stdout
        self.assertIn("seed 3: 12 trials (softmax 6, reshape 6)", first)
        self.assertTrue(first.endswith(" 0 failures\n"), first)
        self.assertEqual(first, self.works(*ask).stdout)
        row = json.loads(self.works(*ask, "--json").stdout)
        self.assertEqual((row["trials"], row["of"]["reshape"], row["failures"]), (12, 6, 0))
        self.works("check", "grad_norm", "--random", "0.2", "--dtype", "f64", "--threads", "2")

    def test_one_case(self):
        self.assertIn("ok", self.works("check", "softmax", "--random-case", self.CASE).stdout)

    def test_wrong_arguments(self):
        self.refused(2, "check", "--random-case", self.CASE, words=("one op",))
        for text, word in (("x", "name=value"), ("dtype=f32", "x="), ("x=3; seat=4", "seat"),
                           ("x=3; fields=axis=5", "axis"), ("x=3; forms=sideways", "sideways")):
            self.refused(2, "check", "softmax", "--random-case", text, words=(word,))


class GpuTest(ProgramTest):
    """On the first GPU, where there is one."""

    @classmethod
    def setUpClass(cls):
        told = json.loads(subprocess.run([PROGRAM, "info", "--json"], stdout=subprocess.PIPE, check=True).stdout)
        if "cuda:0" not in told["devices"]:
            print("skipped: no GPU")
            raise unittest.SkipTest("no GPU")
        cls.about = {about["name"]: about["text"] for about in told["about"]}

    def test_info(self):
        text = self.works("info").stdout
        self.assertIn(self.about["cuda:0"], text)
        self.assertIn("sm_", self.about["cuda:0"])
        self.assertNotIn("is not available", text)

    def test_check(self):
        done = self.works("check", "--quick", "--device", "cuda", "--json")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual({row["dtype"] for row in rows}, {"f32", "f64", "f16", "bf16"})
        for row in rows:
            self.assertEqual((row["device"], row["isa"][:3], row["failures"]), ("cuda:0", "sm_", 0))
            self.assertGreater(row["cases"], 0)
        self.works("check", "--quick", "--device", "cuda:0", "--dtype", "f32", "--runs", "3")

    def test_wrong_arguments(self):
        for choice in (("--isa", "base"), ("--threads", "1")):
            self.refused(2, "check", "softmax", "--device", "cuda", *choice, words=("GPU", choice[0]))
            self.refused(
                2, "op", "softmax", "--device", "cuda", *choice, "x=x.npy", "-o", "y=out.npy", words=("GPU",)
            )

    def test_op(self):
        """The same as the CPU: directions, slices, conversion, several results, an empty batch."""
        for arguments, within in (
            (("softmax", "x=x.npy", "-o", "y=%s.npy"), 1e-6),
            (("softmax", "--axis", "0", "x=x.npy[:,::2,1:]", "-o", "y=%s.npy"), 1e-6),
            (("softmax", "x=x.npy[2:]", "-o", "y=%s.npy"), 0),
            (("softmax", "--gradient", "dy=dy.npy", "y=y.npy", "-o", "dx=%s.npy"), 1e-6),
            (("softmax", "--gradient", "dy=dy.npy", "x=x.npy", "-o", "dx=%s.npy", "-o", "y=%s-y.npy"), 1e-6),
            (("softmax", "--dtype", "f64", "x=x.npy", "-o", "y=%s.npy"), 1e-12),
            (("softmax", "--dtype", "f16", "x=x.npy", "-o", "y=%s.npy"), 2e-3),
            (("softmax", "--dtype", "bf16", "x=x.npy", "-o", "y=%s.npy"), 1e-2),
            (("neuron", "x=x.npy", "-o", "y=%s.npy"), 1e-6),
        ):
            for device in ("cpu", "cuda"):
                rest = (text.replace("%s", device) for text in arguments[1:])
                self.works("op", arguments[0], "--device", device, *rest)
            shape, want, descr = load(self.path("cpu"))
            self.close("cuda", want, shape, descr, within)


class BenchTest(ProgramTest):
    KEYS = ("op", "case", "direction", "dtype", "device", "threads", "ms", "gb_s", "limit_gb_s",
            "share", "share_q1", "share_q3")
    TINY = ("bench", "softmax", "--case", "64x128", "--seconds", "0.001")

    def test_json(self):
        rows = [json.loads(line) for line in self.works(*self.TINY, "--json").stdout.splitlines()]
        kinds = {(row["direction"], row["dtype"], row["calls"]) for row in rows}
        self.assertEqual(
            kinds, {(d, t, c) for d in ("forward", "gradient") for t in ("f32", "bf16") for c in (1, 100)}
        )
        for row in rows:
            for key in self.KEYS:
                self.assertIn(key, row)
            self.assertTrue(row["share_q1"] <= row["share"] <= row["share_q3"])
            self.assertGreater(row["ms"], 0)

    def test_table(self):
        text = self.works(*self.TINY, "--dtype", "f64", "--threads", "2").stdout
        self.assertIn("2 threads", text)
        self.assertEqual(sum(line.startswith("softmax") for line in text.splitlines()), 4)

    def test_absent_peer(self):
        done = self.works(*self.TINY, "--json", "--against", "torch", RG_PYTHON="/nonexistent/python3")
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("torch", done.stderr)
        self.assertNotIn("torch_ms", done.stdout)

    def test_peer_that_dies(self):
        done = self.works(*self.TINY, "--json", "--against", "torch", RG_PYTHON="true")
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_wrong_arguments(self):
        self.refused(2, "bench", "softmix", words=("softmix",))
        self.refused(2, "bench", "--case", "no-such-case", words=("no-such-case",))
        self.refused(2, *self.TINY, "--against", "abacus", words=("abacus",))
        self.refused(2, *self.TINY, "--dtype", "i64", words=("i64",))
        self.refused(2, *self.TINY, "--seconds", "soon", words=("soon",))
        self.refused(2, *self.TINY, "--device", "tpu", words=("tpu",))
        self.refused(2, *self.TINY, "--threads", "5000", words=("threads",))


class MainTest(ProgramTest):
    def test_help_of_everything(self):
        for arguments in (("--help",), ("help",), ("--version",), ("op", "--help"), ("check", "--help"),
                          ("bench", "--help"), ("info", "--help")):
            self.assertIn("retrograde", self.works(*arguments).stdout)

    def test_manual(self):
        """The manual and the completions have every option of every command."""
        manual = self.works("help", "--man").stdout
        script = self.works("help", "--bash").stdout
        commands = re.findall(r"^  (\w+) ", self.works("help").stdout, re.M)
        self.assertTrue({"op", "check", "bench", "info", "help"} <= set(commands))
        for command in commands:
            section = manual.split("\n.SH %s\n" % command)[1].split("\n.SH ")[0]
            words = re.search(r"^ *%s\) options='(.*)' ;;$" % command, script, re.M).group(1).split()
            options = re.findall(r"^  --([\w-]+)", self.works(command, "--help").stdout, re.M)
            self.assertIn("help", options)
            for option in options:
                self.assertRegex(section, r"(?m)^\.B \\-\\-%s( |$)" % re.escape(option.replace("-", "\\-")))
                self.assertIn("--" + option, words)
            self.assertEqual(len(words), len(options))
        self.refused(2, "help", "train", words=("train --help",))

    def test_completions(self):
        if shutil.which("bash") is None:
            self.skipTest("there is no bash")
        script = self.works("help", "--bash").stdout
        for line, wanted in (("retrograde ch", ["check"]), ("retrograde bench --thr", ["--threads"])):
            words = line.split(" ")
            ask = "COMP_WORDS=(%s) COMP_CWORD=%d; _retrograde; echo ${COMPREPLY[@]}" % (line, len(words) - 1)
            done = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True)
            self.assertEqual((done.stdout.split(), done.stderr), (wanted, ""))

    def test_statuses(self):
        self.assertEqual(self.run_program().returncode, 2)
        self.assertEqual(self.run_program("nonsense").returncode, 2)
        if os.path.exists("/dev/full"):
            with open("/dev/full", "w") as full:
                done = subprocess.run([PROGRAM, "info"], stdout=full, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
