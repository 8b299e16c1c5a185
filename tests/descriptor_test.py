# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Every member of every public descriptor has a row in the field table of its op. A member without one would be copied
unchecked, and lost in JSON, in comparisons and on the command line.

    python3 descriptor_test.py PROGRAM SOURCE
"""
import glob
import os
import re
import subprocess
import sys
import unittest

PROGRAM, SOURCE = sys.argv[1:3]


def structs():
    """The members of each struct of the public headers: (type, name) by the name of the struct."""
    found = {}
    for path in glob.glob(os.path.join(SOURCE, "include", "retrograde", "*.h")):
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, re.S):
            found[name] = []
            for member in filter(None, (part.strip() for part in body.split(";"))):
                kind, names = (member.split(maxsplit=1) + [""])[:2]
                found[name] += [(kind, re.sub(r"\[.*", "", one).strip()) for one in names.split(",")]
    return found


STRUCTS = structs()


def expected(struct):
    """The names of the fields that a struct must have, groups opened."""
    members = [name for _, name in STRUCTS[struct]]
    for kind, name in STRUCTS[struct]:
        presence = name.startswith("has_") and name[4:] in members
        length = name.endswith("_count") and name[:-6] in members
        if name == "size" or presence or length:
            continue
        if kind in STRUCTS:
            yield from (name + "." + inner for inner in expected(kind))
        else:
            yield name


def fields(op):
    text = subprocess.run([PROGRAM, "op", op, "--help"], check=True, capture_output=True, text=True).stdout
    return re.findall(r"^  --([\w.]+)", text.split("\nfields:\n")[1].split("\n\n")[0], re.M)


class Descriptors(unittest.TestCase):
    def test_every_member(self):
        with open(os.path.join(SOURCE, "src", "ops", "ops.def"), encoding="utf-8") as file:
            ops = re.findall(r"^RG_OP\((\w+)\)", file.read(), re.M)
        self.assertGreater(len(ops), 20)
        for op in ops:
            with self.subTest(op):
                self.assertEqual(sorted(fields(op)), sorted(expected("rg_%s_desc" % op)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
