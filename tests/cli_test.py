# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""The program from outside: `op`, `info`, help, and exit statuses.

    python3 cli_test.py PROGRAM
"""
import json
import math
import os
import re
import shutil
import subprocess

import cli_case
from cli_case import NO_GPU, ProgramTest, by_rows, gradient, log_gradient, softmax


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
        for word in ("dY=FILE X=FILE -o dX=FILE", "--axis", "default 1", "com.microsoft"):
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
        self.assertEqual(self.works("help", "check").stdout, self.works("check", "--help").stdout)

    def test_completions(self):
        if shutil.which("bash") is None:
            self.skipTest("there is no bash")
        script = self.works("help", "--bash").stdout
        for line, wanted in (("retrograde ch", ["check"]), ("retrograde bench --thr", ["--threads"]), ("retrograde check soft", ["softmax"])):
            words = line.split(" ")
            ask = "COMP_WORDS=(%s) COMP_CWORD=%d; _retrograde; echo ${COMPREPLY[@]}" % (line, len(words) - 1)
            done = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True)
            self.assertEqual((done.stdout.split(), done.stderr), (wanted, ""))
        with open(os.path.join(self.folder.name, "my model.txt"), "w", encoding="utf-8"):
            pass
        for line, last, wanted in (("retrograde train", "my", "my model.txt"), ("retrograde train", "len", "lenet"),
                                   ("retrograde train --loss", "hub", "huber"), ("retrograde train --mpi", "mpi", "mpich"),
                                   ("retrograde train --normalize", "ima", "imagenet")):  # fmt: skip
            words = line.split(" ") + [last]
            if "train" not in script:
                continue  # the program cannot train
            ask = "COMP_WORDS=(%s) COMP_CWORD=%d; _retrograde; echo \"${#COMPREPLY[@]} $COMPREPLY\"" % (" ".join(words), len(words) - 1)
            done = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True, cwd=self.folder.name)
            self.assertEqual((done.stdout, done.stderr), ("1 %s\n" % wanted, ""))

    def test_statuses(self):
        self.assertEqual(self.run_program().returncode, 2)
        self.assertEqual(self.run_program("nonsense").returncode, 2)
        if os.path.exists("/dev/full"):
            with open("/dev/full", "w") as full:
                done = subprocess.run([cli_case.PROGRAM, "info"], stdout=full, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    cli_case.main()
