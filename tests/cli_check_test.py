# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""`check` and `bench` from outside. What needs a GPU is skipped, with a word, where `info` finds none.

    python3 cli_check_test.py PROGRAM
"""
import json
import os
import subprocess
import sys
import unittest

import cli_case
from cli_case import NO_GPU, ProgramTest, load


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

    def test_strategy(self):
        """One is forced; cases that it does not accept are counted, names are listed."""
        ask = ("check", "conv_transpose", "--quick", "--dtype", "f32", "--isa", "base", "--json", "--strategy")
        row = json.loads(self.works(*ask, "any").stdout)
        self.assertEqual((row["failures"], row["strategy"], row["skipped"]), (0, "any", 0))
        row = json.loads(self.works(*ask, "depthwise").stdout)
        self.assertTrue(0 < row["skipped"] < row["cases"], row)
        listed = self.works("check", "--strategy", "help").stdout.splitlines()
        self.assertIn("conv", [line.split(":")[0] for line in listed])
        self.refused(2, *ask, "sideways", words=("sideways", "conv_transpose: ", "any"))
        self.refused(2, "check", "softmax", "--strategy", "any", words=("unknown strategy 'any'",))
        self.refused(2, "check", "--networks", "1", "--strategy", "any", words=("--networks",))

    def test_bench_strategy(self):
        """Rows say which strategies ran."""
        ask = ("bench", "conv", "--case", "one-pixel", "--seconds", "0.01", "--dtype", "f32")
        for row in map(json.loads, self.works(*ask, "--json").stdout.splitlines()):
            self.assertEqual(row["strategies"], ["panels"])
        for row in map(json.loads, self.works(*ask, "--json", "--strategy", "any").stdout.splitlines()):
            self.assertEqual(row["strategies"], ["any"])
        self.assertIn("  by panels", self.works(*ask).stdout)
        self.refused(2, *ask, "--strategy", "sideways", words=("sideways", "panels"))

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

    def test_strategies(self):
        """Trials force strategies at random; the text of a trial says which."""
        case = "dtype=f32; x=2,5,5,4 4,3,3,1 4; fields=groups=0; seed=4; strategy=%s; threads=2; forms=gradient,add"
        for name in ("any", "depthwise"):
            self.assertIn("ok", self.works("check", "conv", "--random-case", case % name).stdout)
        self.assertIn("0 failures", self.works("check", "conv", "--trials", "30", "--strategy", "any").stdout)

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
        told = json.loads(subprocess.run([cli_case.PROGRAM, "info", "--json"], stdout=subprocess.PIPE, check=True).stdout)
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
        self.refused(2, "bench", "softmax", "--device", "cuda", "--isa", "base", words=("GPU",))

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

    def test_isa(self):
        isas = json.loads(self.works("info", "--json").stdout)["isas"]
        for isa in isas:
            done = self.works(*self.TINY, "--dtype", "f32", "--json", "--isa", isa)
            self.assertEqual({json.loads(line)["isa"] for line in done.stdout.splitlines()}, {isa})
        self.refused(2, *self.TINY, "--isa", "mmx", words=("mmx", "instruction set"))

    def test_absent_peer(self):
        done = self.works(*self.TINY, "--json", "--against", "torch", RG_PYTHON="/nonexistent/python3")
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("torch", done.stderr)
        self.assertNotIn("torch_ms", done.stdout)

    def fake_torch(self, answers):
        """A script in place of python3 that answers every row in turn; returns it and the file of rows it was sent."""
        script, asked = (os.path.join(self.folder.name, name) for name in ("fake", "asked"))
        with open(script, "w", encoding="utf-8") as file:
            file.write("#!%s\nimport sys\nprint('{\"ready\": \"2\", \"compile\": true, \"cuda\": false}', flush=True)\n"
                       "answers = %r\nfor i, line in enumerate(sys.stdin):\n    open(%r, 'a').write(line)\n"
                       "    print(answers[i %% len(answers)], flush=True)\n" % (sys.executable, answers, asked))
        os.chmod(script, 0o755)
        return script, asked

    def test_peer_mode(self):
        """A peer is timed for 100 calls and for single calls as we are."""
        script, asked = self.fake_torch(['{"ms": 5.0}', '{"ms": 7.0}'])
        done = self.works(*self.TINY, "--json", "--dtype", "f32", "--against", "torch", RG_PYTHON=script)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        with open(asked, encoding="utf-8") as file:
            modes = [(row["calls"], row["commits"]) for row in map(json.loads, file)]
        self.assertEqual(modes, [(100, 1), (1, 100)] * 2)
        self.assertEqual([(row["calls"], row["torch_ms"]) for row in rows], [(100, 5.0), (1, 7.0)] * 2)

    def test_worst(self):
        """The slowest beside a peer first; a row where the peer returns a view does not count."""
        script, _ = self.fake_torch(['{"ms": 1e-9}', '{"ms": 1e-6}', '{"ms": 1e-12, "view": true}', '{"ms": 900}'])
        ask = (*self.TINY, "--dtype", "f32", "--against", "torch", "--worst")
        text = self.works(*ask, "2", RG_PYTHON=script).stdout
        worst = text.split("Furthest behind")[1].splitlines()[1:]
        self.assertEqual([line.split(", ")[-1].split(":")[0] for line in worst], ["100 calls", "1 calls"], text)
        self.assertEqual(sum("0.00xv" in line for line in text.splitlines()), 1, text)
        self.refused(2, *self.TINY, "--worst", "3", words=("--worst", "--against"))
        self.refused(2, *ask, "3", "--json", words=("--worst", "--json"))

    def test_save_and_compare(self):
        saved = os.path.join(self.folder.name, "rows.jsonl")
        ask = (*self.TINY, "--dtype", "f32")
        self.works(*ask, "--save", saved)
        with open(saved, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        self.assertEqual([(row["direction"], row["calls"]) for row in rows],
                         [(d, c) for d in ("forward", "gradient") for c in (100, 1)])
        with open(saved, "w", encoding="utf-8") as file:
            for row in rows[:3]:
                file.write(json.dumps({**row, "ms": 1e6}) + "\n")
        text = self.works(*ask, "--compare", saved).stdout
        self.assertIn("3 rows compared with %s" % saved, text)
        self.assertIn("0 slower and 3 faster", text)
        again = [json.loads(line) for line in self.works(*ask, "--compare", saved, "--json").stdout.splitlines()]
        self.assertEqual([row.get("before_ms") for row in again], [1e6, 1e6, 1e6, None])
        self.assertIn("has none of these rows", self.works(*ask[:-1], "f64", "--compare", saved).stdout)
        self.refused(1, *ask, "--compare", self.path("absent"), words=("absent",))
        with open(saved, "a", encoding="utf-8") as file:
            file.write("no row\n")
        self.refused(1, *ask, "--compare", saved, words=("rows.jsonl, line 4",))
        self.refused(2, *ask, "--save", os.path.join(self.folder.name, "no", "folder"), words=("folder",))

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


if __name__ == "__main__":
    cli_case.main()
