# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Ends one of four ranks at a random moment, again and again: by SIGKILL or SIGSTOP, in turns, with each MPI that
group_test.py finds. All ranks must be gone within 10 seconds, and the checkpoint, if there was time for one, must load
and go on. Prints a line for each trial and the largest times. Takes about ten seconds a trial.

usage: group_faults.py PROGRAM GROUP_TEST [TRIALS [SEED]]"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import group_test
from train_case import write_set


def resumes(words, folder):
    """Whether the checkpoint loads and one more epoch can be trained from it, by one process."""
    path = os.path.join(folder, "checkpoint.safetensors")
    if not os.path.exists(path):
        return "no checkpoint yet"
    done = subprocess.run((words[0], "train", "--resume", path, "--out", folder + "-on", "--stop", "1"),
                          capture_output=True, text=True, check=False, env=group_test.ENVIRONMENT)  # fmt: skip
    return "resumed" if done.returncode == 0 else "NOT RESUMED: " + done.stderr.strip()


def trial(number, launcher, how, random_numbers, folder):
    out = os.path.join(folder, f"out{number}")
    words = (group_test.PROGRAM, "train", "--data", os.path.join(folder, "data"), "--model", "small", "--epochs",
             "100000", "--batch", "32", "--validation", "0.2", "--out", out)  # fmt: skip
    process = group_test.start(launcher, 4, *words)
    until = time.monotonic() + 60
    while len(group_test.ranks_of(out)) < 4 and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(random_numbers.uniform(0, 3))
    ranks = group_test.ranks_of(out)
    victim = random_numbers.randrange(4)
    began = time.monotonic()
    os.kill(ranks[victim], how)
    while group_test.ranks_of(out) and time.monotonic() < began + 60:
        time.sleep(0.01)
    seconds = time.monotonic() - began
    output, _ = process.communicate()
    named = f"rank {victim} on " in output or f"rank {victim} is stopped" in output
    state = resumes(words, out)
    good = seconds < 10 and process.returncode != 0 and "NOT" not in state
    print(f"{number:3} {launcher:8} {how.name} rank {victim}: gone after {seconds:5.2f} s, status {process.returncode}, "
          f"{'named' if named else 'not named'}, {state}{'' if good else '  FAILED'}", flush=True)  # fmt: skip
    return good, how, seconds, named


def main():
    trials = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    numbers = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    launchers = sorted(group_test.LAUNCHERS)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_set(os.path.join(folder, "data"))
        for number in range(trials):
            how = (signal.SIGKILL, signal.SIGSTOP)[number % 2]
            rows.append(trial(number, launchers[number // 2 % len(launchers)], how, numbers, folder))
    for how in (signal.SIGKILL, signal.SIGSTOP):
        times = [row[2] for row in rows if row[1] == how]
        if times:
            print(f"{how.name}: {len(times)} trials, at most {max(times):.2f} s")
    failed = sum(not row[0] for row in rows)
    print(f"{failed} of {len(rows)} failed; the lost rank was named in {sum(row[3] for row in rows)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
