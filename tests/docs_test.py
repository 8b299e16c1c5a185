# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""What the pages claim: code shown in them stands in the examples, links lead somewhere, all node classes of MPS are
named, tests that are named exist, the chart and the tables of performance.md show the figures of the CSV files.

    python3 docs_test.py SOURCE
"""
import glob
import os
import re
import subprocess
import sys
import unittest

SOURCE = None


def read(*names):
    with open(os.path.join(SOURCE, *names), encoding="utf-8") as file:
        return file.read()


def pages():
    for path in sorted(glob.glob(os.path.join(SOURCE, "docs", "*.md"))) + [os.path.join(SOURCE, "README.md")]:
        yield path, read(path)


class Docs(unittest.TestCase):
    def test_code(self):
        examples = "".join(read(path) for path in glob.glob(os.path.join(SOURCE, "examples", "*.[ch]")))
        for name in ("from-mps.md", "tutorial.md"):
            blocks = re.findall(r"^```c\n(.*?)^```$", read("docs", name), re.M | re.S)
            self.assertTrue(blocks, name)
            for block in blocks:
                self.assertIn(block, examples, name)

    def test_links(self):
        for path, text in pages():
            for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)|(?:src|srcset)=\"([^\"]+)\"", text):
                link = link[0] or link[1]
                if not re.match(r"[a-z]+:", link):
                    target = os.path.join(os.path.dirname(path), link)
                    self.assertTrue(os.path.exists(target), "%s: there is no %s" % (path, link))

    def test_nodes(self):
        """The 112 node classes of MPS, in the first column of the section's tables, each once."""
        text = read("docs", "mps.md")
        self.assertIn("\n## Graph nodes\n", text)
        section = re.split(r"^## ", text.split("\n## Graph nodes\n")[1], flags=re.M)[0]
        names = []
        for row in re.findall(r"^\| (`?MPS[^|]*)\|", section, re.M):
            names += re.findall(r"MPS\w+", row)
        classes = [name for name in names if name.endswith("Node")]
        self.assertEqual(len(classes), len(set(classes)), [name for name in classes if classes.count(name) > 1])
        self.assertEqual(len(classes), 112)
        tests = set(os.path.basename(path).rsplit(".", 1)[0] for path in glob.glob(os.path.join(SOURCE, "tests", "*")))
        for name in re.findall(r"`(\w+_test)`", section):
            self.assertIn(name, tests)

    def test_chart(self):
        drawn = subprocess.run([sys.executable, os.path.join(SOURCE, "tools", "draw-speed"), "--print"],
                               capture_output=True, text=True, check=True)  # fmt: skip
        self.assertEqual(drawn.stdout, read("docs", "speed.svg"), "tools/draw-speed makes another docs/speed.svg")

    def test_figures(self):
        """The tables of ops are what the CSV files give."""
        printed = subprocess.run([sys.executable, os.path.join(SOURCE, "tools", "speed-tables")],
                                 capture_output=True, text=True, check=True).stdout  # fmt: skip
        tables = re.findall(r"(?:^\|.*\n)+", printed, re.M)
        self.assertEqual(len(tables), 2)
        page = read("docs", "performance.md")
        for table in tables:
            self.assertGreater(table.count("\n"), 10)
            self.assertIn("\n\n" + table + "\n", page, "tools/speed-tables prints another table")

    def test_tests(self):
        """Functions named as `function` (file) stand in that file."""
        count = 0
        for functions, name in re.findall(r"((?:`\w+`, )*`\w+`) \((\w+_test)\)", read("docs", "mps.md")):
            script = os.path.exists(os.path.join(SOURCE, "tests", name + ".py"))
            text = read("tests", name + (".py" if script else ".c"))
            for function in re.findall(r"\w+", functions):
                count += 1
                self.assertIn(function, text, name)
        self.assertGreater(count, 200)


if __name__ == "__main__":
    SOURCE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
