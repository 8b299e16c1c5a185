# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""docs/mps.md says only what a test shows: every test that a row names exists, every function that the row claims is
called in a test that it names, and every field and constant is used there."""
import collections
import functools
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
problems, rows_seen, tests_seen = [], 0, 0


def text_of(path):
    return path.read_text(encoding="utf-8") if path.is_file() else None


@functools.lru_cache(maxsize=None)
def functions_of(source):
    """The bodies of all functions of a source, by name."""
    pattern = r"^[a-z][^;{}#\n]*?\b(\w+)\([^;{}]*\)\n\{\n(.*?)^\}"
    script = r"^ *def (\w+)\(.*?\):\n(.*?)(?=^ *def |^ *class |^if |\Z)"
    return {name: body for name, body in re.findall(pattern, source, re.M | re.S) or
            re.findall(script, source, re.M | re.S)}


def function_of(source, name):
    return functions_of(source).get(name)


def source_of(file):
    """The text of a test: a program in C, or a script."""
    return text_of(ROOT / "tests" / f"{file}.c") or text_of(ROOT / "tests" / f"{file}.py")


def reached(source, name):
    """The text of a function and of all functions of its file that it reaches."""
    text, names, seen = "", [name], set()
    while names:
        at = names.pop()
        body = function_of(source, at)
        if at in seen or body is None:
            continue
        seen.add(at)
        text += body
        names += re.findall(r"\b([a-z_]\w*)\b", body)
    return text


HELPERS = "".join(text_of(path) for path in sorted((ROOT / "tests").glob("*.[ch]")) if not path.stem.endswith("_test"))


def helpers_used(text):
    """The bodies of functions in files that tests share, as far as `text` calls them."""
    return "".join(function_of(HELPERS, name) or "" for name in set(re.findall(r"\b([a-z]\w+)\(", text)))


@functools.lru_cache(maxsize=None)
def cases_of(op):
    """The text of each case of an op, with the macros of its file written out."""
    test = text_of(ROOT / "src/ops" / op / f"{op}_test.c")
    if test is None:
        return None
    macros = re.findall(r"^#define (\w+)\s((?:.*\\\n)*.*)$", test, re.M)
    starts = list(re.finditer(r'\{\s*(?:\.name = )?"([^"]+)"', test))
    ends = [start.start() for start in starts[1:]] + [len(test)]
    cases = {start.group(1): test[start.start():end] for start, end in zip(starts, ends)}
    for name, text in cases.items():
        cases[name] = text + "".join(body for macro, body in macros if re.search(r"\b%s\b" % macro, text))
    return cases


@functools.lru_cache(maxsize=None)
def tensors_of(op):
    """The names of an op's tensors, all of which each case reads or writes."""
    return set(re.findall(r'"(\w+)"', "".join(re.findall(r"\{[^{}]*, NULL \}", text_of(ROOT / "src/ops" / op / f"{op}.c")))))


def public_fields():
    """The fields of all descriptors."""
    found = set()
    for path in (ROOT / "include/retrograde").glob("*.h"):
        for body in re.findall(r"typedef struct rg_\w+ \{(.*?)\n\}", text_of(path), re.S):
            body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
            found.update(name for line in re.findall(r"^ *[\w ]+ ([^;()]+);", body, re.M) for name in re.findall(r"\w+", line))
    return {name for name in found if len(name) > 1}


FIELDS = public_fields()


def claimed_words(cell):
    """Fields and constants in the code of a cell: `stride`, `edge=clamp`, `RG_POOL_MAX`; `offset.x` is a property of MPS."""
    words = set()
    for code in re.findall(r"`([^`]*)`", cell):
        if not re.search(r"retrograde|MPS", code):
            code = re.sub(r"\brg_(\w|<op>)+(\([^)]*\))?|\w+\.[xyz]\b", "", code)
            words.update(w for w in re.findall(r"\w+", code) if w in FIELDS or w.startswith("RG_"))
    return words


def is_used(word, texts, cases, tensors):
    if word in tensors or re.search(r"\b%s\b" % word, texts + cases):
        return True
    value = re.sub(r"^RG_[A-Z]+_", "", word).lower()  # RG_POOL_MAX: kind=max, or a case of that name
    return word.startswith("RG_") and re.search(r'=%s\b|"%s\b' % (value, value), cases) is not None


def check_row(header, number, cells):
    """Tests are `function` (file), or cases of `check op`."""
    global tests_seen
    last, texts, cases, tensors, seen_before = cells[-1], "", "", set(), tests_seen
    for names, file in re.findall(r"((?:`\w+`(?:, )?)+) \((\w+_test)\)", last):
        source = source_of(file)
        if source is None:
            problems.append(f"{number}: there is no tests/{file}.c or .py")
            continue
        for name in re.findall(r"`(\w+)`", names):
            tests_seen += 1
            if function_of(source, name) is None:
                problems.append(f"{number}: tests/{file} has no function {name}")
            texts += reached(source, name)
    for op, names in re.findall(r"`check (\w+)` \(([^)]*)\)", last):
        known = cases_of(op)
        for name in re.split(r",\s*", names):
            tests_seen += 1
            if known is None or name not in known:
                problems.append(f"{number}: check {op} has no case {name}")
            cases += (known or {}).get(name, "")
        tensors |= tensors_of(op)
    if len(re.findall(r"\bcheck \w+", last)) != len(re.findall(r"`check \w+` \([^)]+\)", last)):
        problems.append(f"{number}: cases of check are not written `check op` (case, case)")
    here = cells[1] if len(cells) > 1 else ""
    if header[-1] not in ("test", "checked by"):
        return
    if not here.startswith("–") and not seen_before < tests_seen:
        problems.append(f"{number}: the row names no test")
    if re.search(r"(?<![(\w])\w+_test\b", re.sub(r"\([^)]*\)", "", last)):
        problems.append(f"{number}: a test is named without its function")
    if here.startswith("–"):
        return
    texts += helpers_used(texts)
    claims = re.findall(r"\brg_(?:\w|<op>)+", " ".join(re.findall(r"`[^`]*`", cells[-2])))
    for name in sorted(set(claims)):
        if not re.search(r"\b%s\b" % name.replace("<op>", r"\w+?"), texts):
            problems.append(f"{number}: no test of the row calls {name}")
    for word in sorted(claimed_words(cells[-2])):
        if not is_used(word, texts, cases, tensors):
            problems.append(f"{number}: no test of the row uses {word}")


def on_devices():
    """The functions that tests/any_device.h runs on every device, and those of tests of the GPU alone, by file."""
    found = {}
    for path in (ROOT / "tests").glob("*_test.c"):
        run = re.search(r"RUN_ON_DEVICES\((.*?)\)", text_of(path), re.S)
        found[path.stem] = set(re.findall(r"\w+", run.group(1))) if run else set()
        if path.stem.startswith("cuda_"):
            found[path.stem] = set(functions_of(text_of(path)))
    return found


# Members of MPS: in all, with a counterpart, tested on a CPU, tested on a GPU by a function, or by one or a case.
members = collections.Counter()
ANY_DEVICE = on_devices()


def count_member(cells):
    here, last = cells[1], cells[-1]
    if cells[0] == "–":  # what MPS does not have
        return
    members["all"] += 1
    if here.startswith("–"):
        return
    functions = re.findall(r"((?:`\w+`(?:, )?)+) \((\w+_test)\)", last)
    cases = bool(re.search(r"`check (\w+)`", last))
    members["exist"] += 1
    members["cpu"] += bool(functions or cases)
    any_device = any(n in ANY_DEVICE.get(file, ()) for names, file in functions for n in re.findall(r"`(\w+)`", names))
    members["function"] += any_device
    members["cuda"] += any_device or cases


header = None
for number, line in enumerate((ROOT / "docs/mps.md").read_text(encoding="utf-8").split("\n"), 1):
    cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
    if not line.startswith("|"):
        header = None
    elif header is None:
        header = cells
    elif not line.startswith("|-") and len(cells) >= 2:
        rows_seen += 1
        check_row(header, number, cells)
        if header[-1] in ("test", "checked by"):
            count_member(cells)

for source in (ROOT / "src/ops").glob("*/*.c"):  # all names that `retrograde op` knows are in the tables
    for name in re.findall(r'"(MPS\w+)"', text_of(source)):
        if not re.search(r"\b%s\b" % name, text_of(ROOT / "docs/mps.md")):
            problems.append(f": {name} of {source.name} is in no table")

PAGE = text_of(ROOT / "docs/mps.md")
for name, file in re.findall(r"\(`(\w+)`, (\w+_test)\)", PAGE):  # tests that sentences name
    if function_of(source_of(file) or "", name) is None:
        problems.append(f": tests/{file} has no function {name}")
ALL_TESTS = "".join(text_of(path) for path in sorted((ROOT / "tests").glob("*_test.*")))
for name in sorted(set(re.findall(r"`(test_\w+)`", PAGE))):
    if not re.search(r"\b%s\(" % name, ALL_TESTS):
        problems.append(f": there is no test {name}")

SENTENCE = ("%d members, %d of them with a counterpart, each with a test on CPUs. Tests of %d run on GPUs, too: functions "
            "of %d,\nand for the others cases of `check`, which any device can be given.")
said = SENTENCE % (members["all"], members["exist"], members["cuda"], members["function"])
if members["cpu"] != members["exist"]:
    problems.append(f": {members['exist'] - members['cpu']} members have a counterpart, but no test")
if said not in PAGE:
    problems.append(": the counts of members are not these: " + said)

for problem in problems:
    print("docs/mps.md:" + problem)
print(f"{rows_seen} rows, {tests_seen} tests, {len(problems)} problems")
sys.exit(1 if problems else 0)
