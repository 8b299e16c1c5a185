# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""The program on a terminal: the line of progress fits its width, and says nothing before it knows something.

    python3 terminal_test.py PROGRAM
"""
import fcntl
import os
import pty
import shutil
import struct
import subprocess
import termios
import unicodedata

import train_case
from train_case import Case, run, write_png


def on_terminal(words, columns, **variables):
    """What the program writes to a terminal of this width."""
    variables = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm", **variables}
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    child = subprocess.Popen([train_case.PROGRAM, *words], stdout=slave, stderr=slave, stdin=slave, env=variables)
    os.close(slave)
    written = b""
    while True:
        try:
            piece = os.read(master, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        written += piece
    os.close(master)
    return child.wait(), written.decode()


class Progress(Case):
    def test_width(self):
        for columns in (80, 40):
            words = ("train", "--data", "glyphs", "--model", "small", "--epochs", "2", "--threads", "1",
                     "--out", self.path("out%d" % columns))  # fmt: skip
            status, text = on_terminal(words, columns)
            self.assertEqual(status, 0, text)
            lines = [line for part in text.split("\n") for line in part.split("\r\033[K") if "\u2502" in line]
            self.assertGreater(len(lines), 5, text)
            for line in lines:
                width = sum(not unicodedata.combining(letter) for letter in line.rstrip("\r"))
                self.assertLess(width, columns, line)
                self.assertNotIn("nan", line)
                self.assertNotIn(" 0 images/s", line)
            if columns == 80:
                self.assertTrue(any("images/s" in line and "left" in line for line in lines), lines)


    def test_reading(self):
        """Where many images are read before training, a line tells how many."""
        for name in "ab":
            os.makedirs(self.path("set", name))
        write_png(self.path("large.png"), 2600, 2600, os.urandom(2600) * 2600)  # seconds in all
        for i in range(300):
            os.link(self.path("large.png"), self.path("set", "ab"[i % 2], "%d.png" % i))
        words = ("train", "--data", self.path("set"), "--size", "8", "--model", "mlp", "--epochs", "1", "--workers", "1",
                 "--out", self.path("out"))  # fmt: skip
        status, text = on_terminal(words, 80)
        self.assertEqual(status, 0, text)
        self.assertRegex(text, r"\r\x1b\[Kreading images: \d+ of 300")
        for i in range(3):
            with open(self.path("set", "a", "bad%d.png" % i), "w", encoding="utf-8"):
                pass
        status, text = on_terminal((*words[:-1], self.path("other")), 80)
        self.assertEqual(status, 1, text)
        self.assertNotRegex(text, r"of 303[a-z]")  # sentences have lines of their own
        self.assertEqual(text.count("\n"), 4, text)

    def test_simple_terminals(self):
        words = ("train", "--data", "glyphs", "--model", "small", "--epochs", "1", "--threads", "1")
        _, text = on_terminal(words + ("--out", self.path("plain")), 80, LC_ALL="C")
        self.assertIn("[#", text)
        self.assertTrue(text.split("\n", 1)[1].isascii(), text)
        _, text = on_terminal(words + ("--out", self.path("dumb")), 80, TERM="dumb")
        self.assertNotIn("\033", text)
        self.assertIn("epoch  1/1", text)


class Words(Case):
    def test_short_options(self):
        self.assertEqual(run("-h")[0], run("--help")[0])
        self.assertEqual(run("-V")[0], run("--version")[0])
        self.assertEqual(run("train", "-h")[0], run("help", "train")[0])
        self.assertIn("usage: retrograde train", run("help", "train")[0])

    def test_did_you_mean(self):
        self.refuses("trian", says="did you mean 'train'?", status=2)
        self.refuses("train", "--epoch", "3", says="did you mean 'epochs'?", status=2)
        self.refuses("help", "evl", says="did you mean 'eval'?", status=2)
        self.refuses("op", "sofmax", says="there is no op or operator 'sofmax'; did you mean 'softmax'?\n", status=2)
        self.refuses("train", "--data", "glyphs", "--model", "resnt", "--out", self.path("no"), says="did you mean 'resnet'?")

    def test_drawing_on_standard_output(self):
        self.assertIn("<svg", run("graph", "lenet", "--out", "-")[0])

    def test_manual(self):
        manual = run("help", "--man")[0]
        for section in (".SH FILES", ".SH EXAMPLES"):
            self.assertIn(section, manual)

    def test_zsh(self):
        if shutil.which("zsh") is None:
            self.skipTest("there is no zsh")
        with open(self.path("_retrograde"), "w", encoding="utf-8") as file:
            file.write(run("help", "--zsh")[0])
        subprocess.run(["zsh", "-n", self.path("_retrograde")], check=True)

    def test_fish(self):
        if shutil.which("fish") is None:
            self.skipTest("there is no fish")
        with open(self.path("words.fish"), "w", encoding="utf-8") as file:
            file.write(run("help", "--fish")[0])
        for line, word in (("retrograde tra", "train"), ("retrograde train --mod", "--model"),
                           ("retrograde train --model l", "lenet"), ("retrograde check soft", "softmax")):  # fmt: skip
            done = subprocess.run(["fish", "-c", 'source %s; complete -C "%s"' % (self.path("words.fish"), line)],
                                  capture_output=True, text=True, check=True, env={**os.environ, "HOME": self.folder})  # fmt: skip
            self.assertIn(word, done.stdout)


if __name__ == "__main__":
    train_case.main()
