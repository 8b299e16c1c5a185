# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Training on photographs in files beside the same photographs in memory: images per second, memory, threads.

    python3 bench/train_images.py build/retrograde [--source FOLDER]... [--count N] [--copies N] [--images N]
        [--threads N] [--workers LIST] [--keep FOLDER]

Cuts a set of JPEG files of mixed sizes out of real photographs (--source: folders of JPEG, PNG or WebP images, such as
those of Debian's gnome-backgrounds and plasma-workspace-wallpapers), then prints a table of

- ResNet-18 at 224 on a part of them, --images, in memory and read while training;
- memory: the peak of a small network on all of them, read while training, beside that on a few in memory;
- images per second that --workers threads decode, with a network that takes no time.

Needs Pillow (Debian: python3-pil).
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    from PIL import Image
except ImportError:
    SYSTEM_PYTHON = "/usr/bin/python3"  # the one that Debian's python3-pil belongs to
    if not os.path.exists(SYSTEM_PYTHON) or os.path.realpath(sys.executable) == os.path.realpath(SYSTEM_PYTHON):
        sys.exit("there is no Pillow (Debian: python3-pil)")
    os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])

SOURCES = ("/usr/share/backgrounds", "/usr/share/wallpapers")
CLASSES = 10
SMALL = ["pool window=32 stride=32", "dense classes"]


def resnet18():
    lines = ["conv 64 window=7 stride=2 padding.policy=same bias=false", "batch_norm epsilon=1e-5", "neuron",
             "s0: pool window=3 stride=2 padding.policy=same"]  # fmt: skip
    for k, (channels, stride) in enumerate([(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)]):
        lines += [f"conv {channels} window=3 stride={stride} padding.policy=same bias=false from s{k}", "batch_norm epsilon=1e-5",
                  "neuron", f"conv {channels} window=3 padding.policy=same bias=false", f"b{k}: batch_norm epsilon=1e-5"]  # fmt: skip
        if stride == 2:
            lines += [f"conv {channels} window=1 stride=2 bias=false from s{k}", f"d{k}: batch_norm epsilon=1e-5"]
        lines += [f"arithmetic from b{k}, {'d' if stride == 2 else 's'}{k}", f"s{k + 1}: neuron"]
    return lines + ["reduce kind=mean dims=1,2", "dense classes"]


def find_photographs(folders):
    found = []
    for folder in folders:
        for root, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                path = os.path.join(root, name)
                if not name.lower().endswith((".jpg", ".jpeg", ".png", ".webp")) or os.path.islink(path):
                    continue
                with Image.open(path) as image:
                    if min(image.size) >= 1000:
                        found.append(path)
    return found


def make_set(folder, photographs, count, copies, source):
    """Parts of random place, size and proportion; the class is the photograph's number. Returns the bytes of all names."""
    total = 0
    for k in range(CLASSES):
        os.makedirs(os.path.join(folder, "class%d" % k))
    for k, path in enumerate(photographs):
        with Image.open(path) as image:
            image = image.convert("RGB")
        for i in range(k, count, len(photographs)):
            width = source.randint(400, min(2400, image.width))
            height = source.randint(min(400, image.height), min(image.height, 2 * width))
            left, top = source.randint(0, image.width - width), source.randint(0, image.height - height)
            name = os.path.join(folder, "class%d" % (k % CLASSES), "%06d.jpg" % i)
            image.crop((left, top, left + width, top + height)).save(name, quality=92)
            total += copies * os.path.getsize(name)
            for copy in range(1, copies):
                os.link(name, "%s-%d.jpg" % (name[:-4], copy))
    return total


def link_part(folder, part, count):
    """The same number of images of each class."""
    for name in sorted(os.listdir(folder)):
        os.makedirs(os.path.join(part, name))
        for image in sorted(os.listdir(os.path.join(folder, name)))[: count // CLASSES]:
            os.link(os.path.join(folder, name, image), os.path.join(part, name, image))


def train(program, folder, model, memory, *words):
    """Images per second and the peak of memory, in MB."""
    with tempfile.TemporaryDirectory() as out:
        words = [program, "train", "--data", folder, "--model", model, "--size", "224", "--epochs", "1", "--validation", "0",
                 "--memory", str(memory), "--json", "--out", os.path.join(out, "run"), *words]  # fmt: skip
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        output = child.stdout.read()
        errors = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if status != 0:
        sys.exit("%s\n%s" % (" ".join(words), errors))
    return json.loads(output.split("\n")[0])["images_per_second"], used.ru_maxrss / 1024


def write_model(folder, name, lines):
    path = os.path.join(folder, name + ".txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def measure(options, folder):
    photographs = find_photographs(options.source or SOURCES)
    if not photographs:
        sys.exit("there are no photographs; name folders with --source")
    whole, part = os.path.join(folder, "whole"), os.path.join(folder, "part")
    size = make_set(whole, photographs, options.count, options.copies, random.Random(1))
    link_part(whole, part, options.images)
    count = options.count * options.copies
    print("%d JPEG files, %.0f MB, cut out of %d photographs" % (count, size / 1e6, len(photographs)), flush=True)
    threads = ("--threads", str(options.threads)) if options.threads else ()

    model = write_model(folder, "resnet18", resnet18())
    held, _ = train(options.program, part, model, 1 << 20, "--batch", "32", *threads)
    print("| ResNet-18 at 224, %d images in memory | %.1f images/s |" % (options.images, held), flush=True)
    read, _ = train(options.program, part, model, 0, "--batch", "32", *threads)
    print("| read while training | %.1f images/s, %.2f of that |" % (read, read / held), flush=True)

    small = write_model(folder, "small", SMALL)
    few = os.path.join(folder, "few")
    link_part(whole, few, 200)
    _, base = train(options.program, few, small, 1 << 20, "--batch", "32", *threads)
    _, peak = train(options.program, whole, small, 0, "--batch", "32", *threads)
    print("| peak of memory: 200 images in memory, %d read while training | %.0f MB, %.0f MB |" % (count, base, peak), flush=True)
    for workers in options.workers.split(","):
        rate, _ = train(options.program, part, small, 0, "--batch", "32", "--workers", workers, *threads)
        print("| decoding by %s threads | %.0f images/s |" % (workers, rate), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--source", action="append")
    parser.add_argument("--count", type=int, default=2000, help="files of the set (default 2000)")
    parser.add_argument("--copies", type=int, default=1, help="names of each file (default 1)")
    parser.add_argument("--images", type=int, default=600, help="that ResNet-18 is trained on (default 600)")
    parser.add_argument("--threads", type=int, default=0, help="of kernels (default: all)")
    parser.add_argument("--workers", default="1,2", help="numbers of threads that decode (default 1,2)")
    parser.add_argument("--keep", help="a folder for the set, which stays")
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    if options.keep:
        os.makedirs(options.keep)
        measure(options, options.keep)
    else:
        with tempfile.TemporaryDirectory() as folder:
            measure(options, folder)


main()
