# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Several processes that train one network: the same bits on any number of ranks, refusals, and lost ranks.

usage: group_test.py PROGRAM GROUP_TEST [unittest arguments]

It runs with each MPI that is here: Open MPI and MPICH where the build has a library for them, and the one with the
standard ABI that MPIEXEC_ABI names. Without any of them it is skipped; where CI=true all three must be here."""
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from train_case import read, write_png, write_set

PROGRAM, GROUP_TEST = (os.path.abspath(path) for path in sys.argv[1:3])
BUILD = os.path.dirname(PROGRAM)
# Open MPI refuses to run as root, and as more processes than cores, unless it is told otherwise.
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", RG_THREADS="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_btl_vader_single_copy_mechanism="none")  # fmt: skip

MODEL = """conv 4 window=3 stride=2
batch_norm
neuron
pool
dropout keep=0.7
dense classes
"""


def found_launchers():
    """Commands by the name of their MPI."""
    found = {}
    for name, commands in (("openmpi", ("mpirun.openmpi", "mpirun")), ("mpich", ("mpiexec.mpich", "mpiexec.hydra"))):
        paths = [path for path in map(shutil.which, commands) if path]
        if paths and os.path.exists(os.path.join(BUILD, f"retrograde-{name}.so")):
            found[name] = paths[0]
    if os.environ.get("MPIEXEC_ABI"):
        found["abi"] = os.environ["MPIEXEC_ABI"]
    return found


LAUNCHERS = found_launchers()
HAS_GPU = '"cuda:0"' in subprocess.run([PROGRAM, "info", "--json"], capture_output=True, text=True, check=True).stdout


def start(launcher, ranks, *command, **options):
    environment = dict(ENVIRONMENT, **options.pop("environment", {}))  # None: not set
    environment = {name: text for name, text in environment.items() if text is not None}
    if launcher != "abi":
        environment.setdefault("RG_MPI", os.path.join(BUILD, f"retrograde-{launcher}.so"))
    words = (LAUNCHERS[launcher], "-n", str(ranks)) + command
    return subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, errors="replace", **options)  # fmt: skip


def run(launcher, ranks, *command, **options):
    process = start(launcher, ranks, *command, **options)
    try:
        output, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, output


def ranks_of(out):
    """The processes that train into a folder, by their ranks."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = read(f"/proc/{name}/cmdline").decode(errors="replace").split("\0")
            variables = read(f"/proc/{name}/environ").decode(errors="replace").split("\0")
        except OSError:
            continue  # it has just ended
        if words[0] == PROGRAM and out in words:
            ranks = [text.split("=")[1] for text in variables if re.match("(OMPI_COMM_WORLD|PMI)_RANK=", text)]
            if ranks:  # it has not just ended
                found[int(ranks[0])] = int(name)
    return found


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(self.path("model.txt"), "w", encoding="utf-8") as file:
            file.write(MODEL)
        write_set(self.path("data"))

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def words(self, out, *more):
        return (PROGRAM, "train", "--data", self.path("data"), "--model", self.path("model.txt"), "--epochs", "2", "--batch",
                "60", "--shift", "1", "--validation", "0.2", "--out", self.path(out), *more)  # fmt: skip

    def checkpoint(self, out):
        return self.path(out, "checkpoint.safetensors")

    def succeeds(self, launcher, ranks, *command):
        code, output = run(launcher, ranks, *command)
        self.assertEqual(code, 0, output)
        return output


class Groups(Case):
    def test_messages(self):
        """Sums, broadcasts and refusals, by the public header."""
        for launcher in LAUNCHERS:
            for ranks in (1, 2, 4):
                output = self.succeeds(launcher, ranks, GROUP_TEST)
                self.assertEqual(output.count(" 0 failed"), ranks, output)
                self.assertIn(f"{ranks} ranks", output)

    def test_leaving(self):
        """A rank that leaves while others are in a sum."""
        for launcher in LAUNCHERS:
            for ranks, leaver in ((2, 1), (4, 0), (4, 3)):
                began = time.monotonic()
                _, output = run(launcher, ranks, GROUP_TEST, "leave", str(leaver))
                self.assertLess(time.monotonic() - began, 20, output)
                self.assertNotIn("a sum without all ranks", output)
                self.assertRegex(output, f"told: .*rank {leaver} on [^ ]+ has left the group, while rank [0-3] waits")

    def test_failing(self):
        """A rank whose part of a sum fails, and sums of two sizes: the others neither wait for ever nor take other data."""
        for launcher in LAUNCHERS:
            for ranks, who in ((2, 1), (2, 0), (4, 2)):
                began = time.monotonic()
                _, output = run(launcher, ranks, GROUP_TEST, "fail", str(who))
                self.assertIn(f"rank {who} on ", output)
                self.assertIn("has failed: out of memory", output)
                _, output = run(launcher, ranks, GROUP_TEST, "differ", str(who))
                self.assertNotIn("a sum of two sizes", output)
                self.assertIn("told: ", output)
                self.assertLess(time.monotonic() - began, 20, output)

    def test_end(self):
        """A rank that hangs while MPI ends, when there are no heartbeats any more."""
        for launcher in LAUNCHERS:
            if launcher == "abi":
                continue  # its functions are found by the library, not by their names
            process = start(launcher, 2, GROUP_TEST, "stall", "1")
            try:
                output, _ = process.communicate(timeout=120)
            except subprocess.TimeoutExpired:  # Open MPI's launcher may hang or crash when both ranks fail at the same time
                process.kill()
                output, _ = process.communicate(timeout=30)
            self.assertNotEqual(process.returncode, 0)
            # the thread of rank 1 hangs, so that the rest of it waits, too, and may be the first to speak
            self.assertRegex(output, "told: rank [01] has waited for the end of MPI for [0-9]+ seconds: another rank hangs")
            gone = re.findall("told: the group is gone after ([0-9]+) seconds", output)
            self.assertTrue(gone, output)
            self.assertLess(max(map(int, gone)), 20, output)

    def test_late(self):
        """A rank that comes after 10 seconds, for which the others wait as long as they are told, and on a busy machine,
        also where a look at all processes takes seconds; the time of day does not matter."""
        cases = ("late", "busy", "slow", "clock")
        processes = [start(next(iter(LAUNCHERS)), 2, GROUP_TEST, case, "1") for case in cases]
        for case, process in zip(cases, processes):
            output, _ = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, case + output)
            self.assertEqual(output.count(" 0 failed"), 2, case + output)

    def test_stopped_at_start(self):
        """A rank that is stopped before it has joined: the others do not wait longer for it on a busy machine."""
        script = '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] && kill -STOP $$; exec "$@"'
        for launcher in LAUNCHERS:
            code, output = run(launcher, 2, "sh", "-c", script, "sh", GROUP_TEST, "busy", "9")
            self.assertNotEqual(code, 0, output)
            self.assertIn("rank 0 of 2 waited 7 seconds for the others: rank 1 is stopped", output)

    def test_ipv6(self):
        """A machine that has no address of IPv4, in a name space of its own; Open MPI itself needs one."""
        enter = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
        script = 'ip link set lo up && ip addr del 127.0.0.1/8 dev lo || exit 77; exec "$@"'
        for launcher in LAUNCHERS:
            if launcher == "openmpi" or not shutil.which("unshare") or not shutil.which("ip"):
                continue
            library = {} if launcher == "abi" else {"RG_MPI": os.path.join(BUILD, f"retrograde-{launcher}.so")}
            done = subprocess.run([*enter, "sh", "-c", script, "sh", LAUNCHERS[launcher], "-n", "2", GROUP_TEST],
                                  env=dict(ENVIRONMENT, **library), capture_output=True, text=True, check=False, timeout=60)  # fmt: skip
            if done.returncode == 77 or "unshare" in done.stderr:
                self.skipTest("no name space may be made here")
            self.assertEqual(done.stdout.count(" 0 failed"), 2, done.stdout + done.stderr)

    def test_three_ranks(self):
        launcher = next(iter(LAUNCHERS))
        code, output = run(launcher, 3, *self.words("three"))
        self.assertNotEqual(code, 0)
        self.assertIn("the number of ranks must be a power of two, not 3", output)


class SameBits(Case):
    def test_ranks(self):
        """One process, and 1, 2, 4 ranks; batches of 60 out of 205 images, in parts of 8."""
        subprocess.run(self.words("alone", "--micro-batches", "8"), check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
        for launcher in LAUNCHERS:
            for ranks in (1, 2, 4, 8):
                out = f"{launcher}{ranks}"
                output = self.succeeds(launcher, ranks, *self.words(out))
                self.assertEqual(read(self.checkpoint("alone")), read(self.checkpoint(out)), out)
                self.assertEqual(output.count("test accuracy"), 1, output)

    def test_many(self):
        """More ranks than parts by default: each has one."""
        words = ("--epochs", "1", "--batch", "64")
        subprocess.run(self.words("alone", *words, "--micro-batches", "16"), check=True, stdout=subprocess.DEVNULL,
                       env=ENVIRONMENT)  # fmt: skip
        self.succeeds(next(iter(LAUNCHERS)), 16, *self.words("ranks", *words))
        self.assertEqual(read(self.checkpoint("alone")), read(self.checkpoint("ranks")))

    def test_synchronised(self):
        """Batch norm by the statistics of the whole batch: the same bits on any number of ranks, also of empty parts."""
        words = ("--sync-batch-norm", "--micro-batches", "16", "--batch", "67")
        subprocess.run(self.words("alone", *words), check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
        for launcher in LAUNCHERS:
            for ranks in (1, 2, 4):
                out = f"{launcher}{ranks}"
                self.succeeds(launcher, ranks, *self.words(out, *words))
                self.assertEqual(read(self.checkpoint("alone")), read(self.checkpoint(out)), out)
        self.succeeds(launcher, 2, *self.words("other", *words[1:]))
        self.assertNotEqual(read(self.checkpoint("alone")), read(self.checkpoint("other")))

    def test_fast(self):
        """Sums in the order of MPI: no equal bits are promised, and the checkpoint says so, also when it is continued."""
        for launcher in LAUNCHERS:
            self.succeeds(launcher, 4, *self.words(launcher, "--fast", "--stop", "1"))
            self.assertIn(b"fast=1", read(self.checkpoint(launcher)))
            self.succeeds(launcher, 2, PROGRAM, "train", "--resume", self.checkpoint(launcher))
            self.assertIn(b"fast=1", read(self.checkpoint(launcher)))
        self.succeeds(launcher, 2, *self.words("plain"))
        self.assertIn(b"fast=0", read(self.checkpoint("plain")))

    def test_small_batch(self):
        """A batch of 6 images has 4 parts by default."""
        subprocess.run(self.words("alone", "--batch", "6", "--micro-batches", "4"), check=True, stdout=subprocess.DEVNULL,
                       env=ENVIRONMENT)  # fmt: skip
        self.succeeds(next(iter(LAUNCHERS)), 2, *self.words("ranks", "--batch", "6"))
        self.assertEqual(read(self.checkpoint("alone")), read(self.checkpoint("ranks")))

    def test_resume(self):
        """2 ranks, then 4, accumulated over batches, in 16 bits."""
        words = ("--accumulate", "3", "--dtype", "bf16", "--micro-batches", "4", "--optimizer", "sgd")
        subprocess.run(self.words("alone", *words), check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
        for launcher in LAUNCHERS:
            self.succeeds(launcher, 2, *self.words(launcher, *words, "--stop", "1"))
            self.succeeds(launcher, 4, PROGRAM, "train", "--resume", self.checkpoint(launcher))
            self.assertEqual(read(self.checkpoint("alone")), read(self.checkpoint(launcher)), launcher)


@unittest.skipUnless(HAS_GPU, "no GPU")
class OneGPU(Case):
    def test_staged(self):
        """Two ranks on one GPU, which sum in memory of the host; nobody names threads, which a GPU refuses."""
        words = ("--device", "cuda", "--micro-batches", "4")
        subprocess.run(self.words("alone", *words), check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
        for launcher in LAUNCHERS:
            code, output = run(launcher, 2, *self.words(launcher, *words), environment={"RG_THREADS": None})
            self.assertEqual(code, 0, output)
            self.assertEqual(read(self.checkpoint("alone")), read(self.checkpoint(launcher)), launcher)

    def test_no_nccl(self):
        """Sums in any order need NCCL on a GPU."""
        launcher = next(iter(LAUNCHERS))
        code, output = run(launcher, 2, *self.words("none", "--device", "cuda", "--fast"),
                           environment={"RG_THREADS": None, "RG_NCCL": "/no/such/libnccl.so"})  # fmt: skip
        self.assertNotEqual(code, 0, output)
        self.assertIn("NCCL, which sums over GPUs, cannot be opened: /no/such/libnccl.so", output)


class Refused(Case):
    def refused(self, sentence, script, *more, **options):
        launcher = next(iter(LAUNCHERS))
        code, output = run(launcher, 2, "sh", "-c", script, "sh", *self.words("refused", *more), **options)
        self.assertNotEqual(code, 0, output)
        self.assertIn(sentence, output)
        self.assertFalse(os.path.exists(self.checkpoint("refused")))

    def other(self, words):
        """Rank 1 is started with other words."""
        return f'if [ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 1 ]; then exec "$@" {words}; else exec "$@"; fi'

    def test_others(self):
        with open(self.path("other.txt"), "w", encoding="utf-8") as file:
            file.write(MODEL.replace("conv 4", "conv 5"))
        for words, what in ((f"--model {self.path('other.txt')}", "has a model that differs from that of rank 0"),
                            ("--rate 0.5", "has a set of options that differs from that of rank 0"),
                            ("--fast", "has a set of options that differs from that of rank 0"),
                            ("--stop 1", "has an end of training (--epochs, --stop or --patience) that differs from that of rank 0"),
                            ("--validation 0.3", "has training data that differs from that of rank 0"),
                            ("--data /no/such/data", "rank 1")):  # fmt: skip
            with self.subTest(words):
                self.refused(what, self.other(words))

    def test_other_data(self):
        """Images in another order, and images for validation that differ: those of training alone look the same."""
        source = random.Random(1)
        for part, count in (("train", 24), ("val", 8), ("test", 4)):
            for kind in ("a", "b"):
                os.makedirs(self.path("photos", part, kind))
                for i in range(count):
                    path = self.path("photos", part, kind, f"{i}.png")
                    write_png(path, 8, 8, bytes(source.randrange(128) + 100 * (kind == "b") for _ in range(64)))
        words = ("--data", self.path("photos"), "--epochs", "1", "--batch", "8")
        differs = f"rank 1 on {socket.gethostname()} has training data that differs from that of rank 0"
        shutil.copytree(self.path("photos"), self.path("edited"))
        for name in ("photos", "edited"):  # the same colours in another order: no mean tells them apart
            pixels = bytes((0, 99) * 32) if name == "photos" else bytes(source.sample((0, 99) * 32, 64))
            write_png(self.path(name, "train", "a", "7.png"), 8, 8, pixels)
        for memory in ("0", "100"):
            self.refused(differs, self.other(f"--data '{self.path('edited')}'"), *words, "--memory", memory)
        for change, what in (("mv train/a/3.png train/a/x.png", "training data"), ("mv val/a/3.png val/b/x.png", "validation data"),
                             ("rm val/b/5.png", "validation data")):  # fmt: skip
            with self.subTest(change):
                other = self.path(change.replace("/", "-"))
                shutil.copytree(self.path("photos"), other)
                subprocess.run(change.split(), cwd=other, check=True)
                script = self.other(f"--data '{other}'")
                self.refused(f"rank 1 on {socket.gethostname()} has {what} that differs from that of rank 0", script, *words)

    def test_version(self):
        """A rank of another version is told before it says anything else."""
        version = subprocess.run([PROGRAM, "--version"], capture_output=True, check=True).stdout.split()[-1]
        program, other = read(PROGRAM), version[:-1] + (b"1" if version[-1:] == b"0" else b"0")
        if b"\0" + version + b"\0" not in program:
            self.skipTest("the version is in a shared library")
        with open(self.path("other"), "wb") as file:
            file.write(program.replace(b"\0" + version + b"\0", b"\0" + other + b"\0"))
        os.chmod(self.path("other"), 0o755)
        script = f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 0 ] && exec "$@"; shift; exec {self.path("other")} "$@"'
        self.refused(f"rank 1 has version {other.decode()} of retrograde, rank 0 version {version.decode()}", script)

    def test_weights(self):
        """First weights that one rank does not have, or that differ."""
        for out, seed in (("first", "1"), ("second", "2")):
            subprocess.run(self.words(out, "--epochs", "1", "--seed", seed), check=True, stdout=subprocess.DEVNULL,
                           env=ENVIRONMENT)  # fmt: skip
        first, second = f"--weights {self.checkpoint('first')}", f"--weights {self.checkpoint('second')}"
        self.refused("has a choice of first weights (--weights) that differs from that of rank 0", self.other(first))
        self.refused("has a set of first weights that differs from that of rank 0", self.other(second), *first.split())

    def test_masks(self):
        """Masks that are decoded while training: one that differs on one rank."""
        for folder in ("roads", "other"):
            for part, count in (("train", 12), ("val", 4)):
                for kind in ("images", "masks"):
                    os.makedirs(self.path(folder, part, kind))
                for i in range(count):
                    write_png(self.path(folder, part, "images", f"{i}.png"), 8, 8, bytes(range(64)))
                    classes = bytes((k + (folder == "other" and i == 3)) % 3 for k in range(64))
                    write_png(self.path(folder, part, "masks", f"{i}.png"), 8, 8, classes)
        with open(self.path("pixels.txt"), "w", encoding="utf-8") as file:
            file.write("conv classes window=1\n")
        words = ("--data", self.path("roads"), "--model", self.path("pixels.txt"), "--epochs", "1", "--batch", "4", "--shift",
                 "0", "--memory", "0")  # fmt: skip
        output = self.succeeds(next(iter(LAUNCHERS)), 2, *self.words("masks", *words))
        self.assertEqual(output.count("12 images are read while training"), 1, output)  # rank 0 alone says so
        self.refused("has training data that differs from that of rank 0", self.other(f"--data {self.path('other')}"), *words)

    def test_too_few_parts(self):
        launcher = next(iter(LAUNCHERS))
        for words, name, number in ((("--micro-batches", "2"), "micro-batches", 2), (("--batch", "3"), "batch", 3)):
            code, output = run(launcher, 4, *self.words("parts", *words))
            self.assertNotEqual(code, 0)
            self.assertIn(f": --{name} must be at least the number of ranks, 4, not {number}", output)

    def test_srun_without_pmi(self):
        """As srun starts tasks that cannot find each other."""
        environment = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_ID": "0"}
        done = subprocess.run(self.words("srun"), env=dict(ENVIRONMENT, **environment), capture_output=True, text=True,
                              check=False)  # fmt: skip
        self.assertEqual(done.returncode, 1)
        self.assertIn("srun has started 4 processes without PMI", done.stderr)


class Stopped(Case):
    def test_one_asked(self):
        """SIGTERM to one rank: all stop after the same batch, with a checkpoint, and say so by their status."""
        launcher = next(iter(LAUNCHERS))
        process = start(launcher, 2, *self.words("asked", "--epochs", "100000"))
        while len(ranks_of(self.path("asked"))) < 2 or not os.path.exists(self.checkpoint("asked")):
            time.sleep(0.05)
        os.kill(ranks_of(self.path("asked"))[1], signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, output)
        self.assertIn("stopped; continue with --resume", output)

    def stop(self, process, ranks, out):
        """Sends SIGTERM to the last rank once an epoch has been trained, which is most likely within the next one."""
        until, before = time.monotonic() + 60, time.time()
        path = self.checkpoint(out)
        while not os.path.exists(path) or os.path.getmtime(path) < before or len(ranks_of(self.path(out))) < ranks:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        os.kill(ranks_of(self.path(out))[ranks - 1], signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, output)

    def test_other_ranks(self):
        """Stopped within an epoch and continued, by 2, 4 and 1 ranks: the bits of one process that is not stopped."""
        words = ("--batch", "8", "--epochs", "150")
        subprocess.run(self.words("alone", *words, "--micro-batches", "8"), check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
        for launcher in LAUNCHERS:
            self.stop(start(launcher, 2, *self.words(launcher, *words)), 2, launcher)
            resumed = (PROGRAM, "train", "--resume", self.checkpoint(launcher), "--out", self.path(launcher))
            self.stop(start(launcher, 4, *resumed), 4, launcher)
            self.succeeds(launcher, 1, *resumed)
            self.assertEqual(read(self.checkpoint("alone")), read(self.checkpoint(launcher)), launcher)


class Lost(Case):
    def lost(self, launcher, victim, how):
        """Ends one of 4 ranks; the others must end within 10 seconds, and the checkpoint must be whole."""
        out = f"{launcher}-{how.name}"
        process = start(launcher, 4, *self.words(out, "--epochs", "100000"))
        try:
            until = time.monotonic() + 60
            while not os.path.exists(self.checkpoint(out)) and time.monotonic() < until:
                time.sleep(0.05)
            ranks = ranks_of(self.path(out))
            self.assertEqual(len(ranks), 4)
            began = time.monotonic()
            os.kill(ranks[victim], how)
            output, _ = process.communicate(timeout=30)
            seconds = time.monotonic() - began
        finally:
            process.kill()
        self.assertNotEqual(process.returncode, 0, output)
        self.assertLess(seconds, 10, output)
        self.assertEqual(ranks_of(self.path(out)), {})
        why = "has ended or was killed" if how == signal.SIGKILL else "has given no sign of life for"
        told = re.search(rf"retrograde: rank \d ends: rank {victim} on \S+ {why}", output)
        # mpiexec of MPICH kills the others as soon as one is killed, perhaps before they have said a word
        self.assertTrue(told or (how == signal.SIGKILL and "BAD TERMINATION" in output), output)
        done = subprocess.run((PROGRAM, "eval", self.checkpoint(out)), capture_output=True,
                              text=True, check=False, env=ENVIRONMENT)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_killed(self):
        for launcher in LAUNCHERS:
            self.lost(launcher, 2, signal.SIGKILL)

    def test_stopped(self):
        for launcher in LAUNCHERS:
            self.lost(launcher, 0, signal.SIGSTOP)


if __name__ == "__main__":
    MISSING = {"openmpi", "mpich", "abi"} - set(LAUNCHERS)
    if os.environ.get("CI") == "true" and MISSING:
        print(f"there is no {', '.join(sorted(MISSING))}: tools/setup ci installs them")
        sys.exit(1)
    if not LAUNCHERS:
        print("skipped: there is no MPI")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
