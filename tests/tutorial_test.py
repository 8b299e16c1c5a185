# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Runs the commands of docs/tutorial.md in a scratch folder and compares what they print, numbers aside. In the
page, … stands for anything.

    python3 tutorial_test.py SOURCE PROGRAM CLASSIFY_IMAGES
"""
import os
import re
import subprocess
import sys
import tempfile


def sessions(page):
    """Commands of all blocks marked `console`, with what they print."""
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.M | re.S):
        for command in re.split(r"^\$ ", block, flags=re.M)[1:]:
            lines = command.split("\n")
            last = 1
            here = re.search(r"<<'(\w+)'", lines[0])
            if here:
                last = lines.index(here.group(1)) + 1
            yield "\n".join(lines[:last]), "\n".join(lines[last:])


def pattern(text):
    """What a text may look like: any numbers in the place of numbers, any spaces in that of spaces."""
    parts = []
    for word in re.findall(r"…|\d+|\s+|[^\d\s…]+", text.strip()):
        if word == "…":
            parts.append(".*")
        elif word.isdigit():
            parts.append(r"\d+")
        else:
            parts.append(r"\s+" if word.isspace() else re.escape(word))
    return "".join(parts)


def main(source, program, classify):
    with open(os.path.join(source, "docs", "tutorial.md"), encoding="utf-8") as file:
        page = file.read()
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "bin"))
        os.symlink(os.path.abspath(program), os.path.join(folder, "bin", "retrograde"))
        os.symlink(os.path.abspath(classify), os.path.join(folder, "bin", "classify_images"))
        paths = {"PATH": os.path.join(folder, "bin") + ":" + os.environ["PATH"]}
        for command, wanted in sessions(page):
            done = subprocess.run(["sh", "-c", command], cwd=folder, env={**os.environ, **paths}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)  # fmt: skip
            count += 1
            if done.returncode != (1 if wanted.startswith("retrograde: ") else 0):
                sys.exit("%s\n%s\nexit status %d" % (command, done.stdout, done.returncode))
            if not re.fullmatch(pattern(wanted), done.stdout.strip()):
                sys.exit("%s\nprints\n%s\nand the page says\n%s" % (command, done.stdout, wanted))
    if count < 8:
        sys.exit("the page has %d commands: something is wrong with its blocks" % count)
    print("%d commands" % count)


main(*sys.argv[1:])
