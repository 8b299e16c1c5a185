#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Runs the fuzz targets of a build with RG_FUZZ, and tells one line about each.

usage: run_targets.py BUILD [--seconds CPU] [--target NAME]... [--jobs N]

A target gets that much CPU time, the default is 60 seconds. Its corpus begins with the seeds and is
kept in BUILD/corpus/NAME, what it finds in BUILD/findings/NAME. The exit status is 1 where one of
them crashed, leaked, took too long or too much memory; then the line is followed by the command
that repeats it.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

# Bounds of every input: bytes of memory, of one allocation, and seconds. Devices of the targets
# refuse memory beyond 64 MiB by themselves, and gzip makes at most 1032 bytes of one.
LIMITS = ["-rss_limit_mb=1024", "-malloc_limit_mb=300", "-timeout=10"]
LENGTHS = {"kernel": 256, "slice": 256, "fields": 512, "model": 1024, "checkpoint": 12288,
           "graph_json": 12288, "safetensors": 8192, "operator": 1024}
SLICE = 20 # CPU seconds between two looks at the clock, about
LEAST_SHARE = 0.1 # of a processor, for which a slice becomes longer


class Target:
    def __init__(self, build, name, seconds):
        self.program = build / "tests" / "fuzz" / f"fuzz_{name}"
        self.seeds = build / "tests" / "fuzz" / "seeds"
        self.name, self.seconds = name, seconds
        self.corpus = build / "corpus" / name
        self.findings = build / "findings" / name
        self.executions = self.coverage = self.cpu = 0
        self.share = 1 # of a processor that the last slice had
        self.finding = None
        self.corpus.mkdir(parents=True, exist_ok=True)
        self.findings.mkdir(parents=True, exist_ok=True)

    def command(self, seconds):
        options = [f"-max_total_time={max(1, round(seconds))}", "-print_final_stats=1",
                   f"-max_len={LENGTHS.get(self.name, 4096)}", f"-artifact_prefix={self.findings}/"]
        words = self.seeds / f"{self.name}.dict"
        if words.exists():
            options.append(f"-dict={words}")
        folders = [self.corpus] + [self.seeds / self.name] * (self.seeds / self.name).is_dir()
        return [str(part) for part in [self.program, *LIMITS, *options, *folders]]

    def run_slice(self, folder, log):
        """Runs for a while; true where the target may go on."""
        environment = dict(os.environ, TMPDIR=folder, UBSAN_OPTIONS="print_stacktrace=1")
        started = time.monotonic()
        process = subprocess.Popen(self.command(min(SLICE, self.seconds - self.cpu) / self.share), stderr=log,
                                   stdout=subprocess.DEVNULL, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        used = usage.ru_utime + usage.ru_stime
        self.share = min(1, max(LEAST_SHARE, used / (time.monotonic() - started)))
        self.cpu += used
        return process.returncode == 0

    def run(self):
        log_path = self.findings / "log"
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        while self.finding is None and self.cpu < 0.95 * self.seconds:
            with tempfile.TemporaryDirectory(dir=memory) as folder, open(log_path, "w") as log:
                good = self.run_slice(folder, log)
            text = log_path.read_text(errors="replace")
            self.executions += sum(map(int, re.findall(r"number_of_executed_units: (\d+)", text)))
            self.coverage = max([self.coverage, *map(int, re.findall(r" cov: (\d+) ", text))])
            if not good:
                written = re.search(r"Test unit written to (\S+)", text)
                self.finding = written.group(1) if written else str(log_path)
        return self

    def report(self):
        line = (f"{self.name:12} {self.executions:10} executions  {self.coverage:6} edges  "
                f"{self.cpu:6.0f} s  {'ok' if self.finding is None else 'FINDING'}")
        if self.finding is not None:
            log = (self.findings / "log").read_text(errors="replace")
            reasons = re.findall(r"^.*(?:ERROR: |runtime error: |does not hold).*$", log, re.MULTILINE)
            line += f"\n    {reasons[0] if reasons else 'see ' + str(self.findings / 'log')}"
            line += f"\n    again: {shlex.quote(str(self.program))} {shlex.quote(self.finding)}"
        return line


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--target", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    asked = parser.parse_args()
    build = asked.build.resolve()
    known = sorted(path.name[5:] for path in (build / "tests" / "fuzz").glob("fuzz_*")
                   if path.is_file() and os.access(path, os.X_OK))
    names = asked.target or known
    if not known or not set(names) <= set(known):
        sys.exit(f"{build}: there is no target {' '.join(sorted(set(names) - set(known)))}; "
                 f"there are: {' '.join(known)}")
    targets = [Target(build, name, asked.seconds) for name in names]
    with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
        for target in pool.map(Target.run, targets):
            print(target.report(), flush=True)
    sys.exit(any(target.finding for target in targets))


main()
