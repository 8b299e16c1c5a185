# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Training on photographs in files beside the same photographs in memory: images per second, memory, threads.

    python3 bench/train_images.py build/retrograde [--source FOLDER]... [--count N] [--copies N] [--images N]
        [--threads N] [--workers LIST] [--only PART]... [--keep FOLDER]

Cuts a set of JPEG files of mixed sizes out of real photographs (--source: folders of JPEG, PNG or WebP images, such as
those of Debian's gnome-backgrounds and plasma-workspace-wallpapers), or where there are none out of drawn pictures with
about as many bytes a pixel, then prints a table of these parts, of which --only chooses some:

- rate: ResNet-18 at 224 on a part of them, --images, in memory and read while training;
- memory: the peak of a small network on all of them, read while training, beside that on a few in memory;
- workers: images per second that --workers threads decode, and a thread of them, with a network that takes little time,
  beside as many programs at once that decode by one thread each, which is what the machine allows;
- serial: the time of an image of 8 x 8 pixels beside that of a photograph, by one thread. What threads do one after the
  other, such as taking the next image, is part of the former, so that this bounds what more threads can gain.

On a machine with 16 cores, `python3 bench/train_images.py build/retrograde --only workers` tells how decoding scales.
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
    """Paths of images that are large enough."""
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


def draw_photograph(number):
    """Soft areas with the noise of a camera: in quality 92 about 2 bits a pixel, as photographs have."""
    source, size = random.Random(number), (2400, 1800)
    channels = []
    for _ in range(3):
        areas = Image.frombytes("L", (30, 23), source.randbytes(30 * 23)).resize(size, Image.BICUBIC)
        channels.append(Image.blend(areas, Image.effect_noise(size, 40), 0.1))
    return Image.merge("RGB", channels)


def open_photograph(photograph):
    """Of a path, or a drawn one of a number."""
    if isinstance(photograph, int):
        return draw_photograph(photograph)
    with Image.open(photograph) as image:
        return image.convert("RGB")


def make_set(folder, photographs, count, copies, source):
    """Parts of random place, size and proportion; the class is the photograph's number. Returns the bytes of all names."""
    total = 0
    for k in range(CLASSES):
        os.makedirs(os.path.join(folder, "class%d" % k))
    for k, photograph in enumerate(photographs):
        image = open_photograph(photograph)
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


def start(options, folder, model, memory, out, *words, size=224):
    words = [options.program, "train", "--data", folder, "--model", model, "--size", str(size), "--epochs", "1", "--validation", "0",
             "--batch", "32", "--memory", str(memory), "--json", "--out", os.path.join(out, "run"), *words]  # fmt: skip
    if options.threads and "--threads" not in words:
        words += ["--threads", str(options.threads)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(child):
    """Images per second and the peak of memory, in MB."""
    output = child.stdout.read()
    errors = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if status != 0:
        sys.exit("%s\n%s" % (" ".join(child.args), errors))
    return json.loads(output.split("\n")[0])["images_per_second"], used.ru_maxrss / 1024


def train(options, folder, model, memory, *words, size=224):
    with tempfile.TemporaryDirectory() as out:
        return finish(start(options, folder, model, memory, out, *words, size=size))


def train_at_once(options, folder, model, programs):
    """Images per second of several programs together, each of which decodes by one thread."""
    with tempfile.TemporaryDirectory() as out:
        children = [start(options, folder, model, 0, os.path.join(out, str(i)), "--workers", "1", "--threads", "1") for i in range(programs)]
        return sum(finish(child)[0] for child in children)


def write_model(folder, name, lines):
    path = os.path.join(folder, name + ".txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    return path


def measure_rate(options, folder, whole):
    part, model = os.path.join(folder, "rate"), write_model(folder, "resnet18", resnet18())
    link_part(whole, part, options.images)
    held, _ = train(options, part, model, 1 << 20)
    print("| ResNet-18 at 224, %d images in memory | %.1f images/s |" % (options.images, held), flush=True)
    read, _ = train(options, part, model, 0)
    print("| read while training | %.1f images/s, %.2f of that |" % (read, read / held), flush=True)


def measure_memory(options, folder, whole):
    few, model = os.path.join(folder, "few"), write_model(folder, "small", SMALL)
    link_part(whole, few, 200)
    _, base = train(options, few, model, 1 << 20)
    _, peak = train(options, whole, model, 0)
    print("| peak of memory: 200 images in memory, %d read while training | %.0f MB, %.0f MB |"
          % (options.count * options.copies, base, peak), flush=True)  # fmt: skip


def measure_workers(options, folder, whole):
    model, one = write_model(folder, "small", SMALL), None
    for workers in map(int, options.workers.split(",")):
        rate, _ = train(options, whole, model, 0, "--workers", str(workers))
        apart = train_at_once(options, whole, model, workers)
        one = one or rate / workers
        print("| decoding by %d threads | %.0f images/s, %.1f a thread, %.2f of the first row's; by as many programs %.0f, %.2f |"
              % (workers, rate, rate / workers, rate / workers / one, apart, apart / workers / one), flush=True)  # fmt: skip


def measure_serial(options, folder, whole):
    """By Amdahl's law: a part s of the time that does not scale allows 1 / (s + (1 - s) / n) times one thread's rate."""
    tiny, model = os.path.join(folder, "tiny"), write_model(folder, "one", ["dense classes"])
    for k in range(CLASSES):
        os.makedirs(os.path.join(tiny, "class%d" % k))
        first = os.path.join(tiny, "class%d" % k, "0.jpg")
        Image.effect_noise((8, 8), 50).convert("RGB").save(first, quality=92)
        for i in range(1, 2000):
            os.link(first, os.path.join(tiny, "class%d" % k, "%d.jpg" % i))
    small, _ = train(options, tiny, model, 0, "--workers", "1", size=8)
    rate, _ = train(options, whole, write_model(folder, "small", SMALL), 0, "--workers", "1")
    part = rate / small
    print("| an image of 8 x 8 pixels, a photograph, by one thread | %.3f ms, %.1f ms; of 8 threads at most %.2f times one, of 16 %.2f |"
          % (1e3 / small, 1e3 / rate, 1 / (part + (1 - part) / 8), 1 / (part + (1 - part) / 16)), flush=True)  # fmt: skip


PARTS = {"rate": measure_rate, "memory": measure_memory, "workers": measure_workers, "serial": measure_serial}


def measure(options, folder):
    photographs = find_photographs(options.source or SOURCES)
    if not photographs and options.source:
        sys.exit("there are no photographs of 1000 x 1000 pixels or more in " + ", ".join(options.source))
    drawn = not photographs
    whole = os.path.join(folder, "whole")
    size = make_set(whole, photographs or range(20), options.count, options.copies, random.Random(1))
    print("%d JPEG files, %.0f MB, cut out of %d %s" % (options.count * options.copies, size / 1e6, len(photographs) or 20,
          "drawn pictures" if drawn else "photographs"), flush=True)  # fmt: skip
    for part in options.only or PARTS:
        PARTS[part](options, folder, whole)


def default_workers():
    cores = len(os.sched_getaffinity(0))
    return ",".join(str(n) for n in (1, 2, 4, 8, 16) if n <= cores)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--source", action="append")
    parser.add_argument("--count", type=int, default=2000, help="files of the set (default 2000)")
    parser.add_argument("--copies", type=int, default=1, help="names of each file (default 1)")
    parser.add_argument("--images", type=int, default=600, help="that ResNet-18 is trained on (default 600)")
    parser.add_argument("--threads", type=int, default=0, help="of kernels (default: all)")
    parser.add_argument("--workers", default=default_workers(),
                        help="numbers of threads that decode (default: powers of two up to the cores, at most 16)")  # fmt: skip
    parser.add_argument("--only", action="append", choices=PARTS, help="a part of the table; may be repeated")
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
