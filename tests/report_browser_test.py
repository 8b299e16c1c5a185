# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""The report in a browser: pages that report_test writes, opened in headless Chromium, light and dark.
What the browser made of them must be there, and its console must stay silent.

    python3 report_browser_test.py REPORT_TEST
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom
import zlib

REPORT_TEST = None
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DARK, LIGHT = 0, 1


def browse(folder, name, *options):
    """What the browser writes, and the lines of its console."""
    profile = os.path.join(folder, "profile")
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
        "--user-data-dir=" + profile, *options, "file://" + os.path.join(folder, name),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError("%s\n%s" % (" ".join(command), done.stderr))
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def pixels(path):
    """Width, height, and the first pixel of a PNG as browsers write it: 8 bits, RGB or RGBA."""
    with open(path, "rb") as file:
        data = file.read()
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    at, packed = 8, b""
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + length]
        at += 12 + length
    row = zlib.decompressobj().decompress(packed, 8)  # the filter, then a pixel without neighbours
    return width, height, tuple(row[1:4])


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name
        subprocess.run([REPORT_TEST, cls.folder], check=True, stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def dom(self, name):
        text, console = browse(self.folder, name, "--dump-dom")
        self.assertEqual(console, [])
        self.assertNotIn("<script", text)
        return text

    def test_report(self):
        text = self.dom("report.html")
        for part in ("curves", "confusion", "worst", "network", "time", "memory", "run"):
            self.assertIn('<section id="%s">' % part, text)
            self.assertIn('href="#%s"' % part, text)
        self.assertEqual(text.count('<figure class="chart">'), 5)
        self.assertEqual(len(re.findall(r'<path class="line c\d( faint)?" d="M', text)), 8)
        self.assertEqual(len(re.findall(r'<td class="v', text)), 100)
        self.assertEqual(len(re.findall(r'<img alt="[^"]+"[^>]* src="data:image/png;base64,', text)), 18)
        network = re.search(r'<svg class="net".*?</svg>', text, re.S).group(0)
        for label in ("conv1", "d conv1", "adam w", "64×14×14×32"):
            self.assertIn(">%s</text>" % label, network)

    def test_targets(self):
        for name, heading, images in (("values", "Predicted and true values", 18), ("labels", "Labels", 18),
                                      ("masks", "Classes of pixels", 54)):  # fmt: skip
            text = self.dom(name + ".html")
            self.assertIn('<section id="targets">\n<h2>%s</h2>' % heading, text)
            self.assertIn('href="#targets"', text)
            self.assertEqual(len(re.findall(r'<img alt="[^"]+"[^>]* src="data:image/png;base64,', text)), images)
            self.assertNotIn('<section id="confusion">', text)
        self.assertEqual(len(re.findall(r'<path class="dots" d="M', self.dom("values.html"))), 2)

    def test_hostile(self):
        text = self.dom("hostile.html")
        self.assertIn("&lt;script&gt;alert(1)&lt;/script&gt;", text)
        self.assertEqual(text.count("<section "), 7)

    def test_other_runs(self):
        self.assertIn("not finite from epoch 7", self.dom("diverged.html"))
        self.assertIn("No epoch was completed", self.dom("empty.html"))
        self.assertIn("conv1", self.dom("network.svg"))

    def test_well_formed(self):
        for name in ("report.html", "hostile.html", "diverged.html", "empty.html", "values.html", "labels.html", "masks.html",
                     "network.svg"):  # fmt: skip
            xml.dom.minidom.parse(os.path.join(self.folder, name))

    def test_colours(self):
        """The background follows the reader's setting."""
        seen = {}
        for scheme in (LIGHT, DARK):
            shot = os.path.join(self.folder, "shot.png")
            browse(self.folder, "report.html", "--screenshot=" + shot, "--window-size=1280,800",
                   "--blink-settings=preferredColorScheme=%d" % scheme)  # fmt: skip
            width, _, seen[scheme] = pixels(shot)
            self.assertEqual(width, 1280)
        self.assertGreater(min(seen[LIGHT]), 200)
        self.assertLess(max(seen[DARK]), 60)

    def test_graphviz(self):
        if shutil.which("dot") is None:
            self.skipTest("there is no dot")
        done = subprocess.run(["dot", "-Tsvg", os.path.join(self.folder, "network.dot")], capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, b""))


if __name__ == "__main__":
    REPORT_TEST = os.path.abspath(sys.argv.pop(1))
    if BROWSER is None:
        print("skipped: there is no Chromium")
        sys.exit(77)
    unittest.main()
