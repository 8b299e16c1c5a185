# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Images as people have them: JPEG and PNG of any size in folders and tar files, in memory or read while training.

    python3 images_test.py PROGRAM [--interrupts N]
"""
import base64
import io
import os
import random
import shutil
import signal
import struct
import sys
import tarfile
import time
import zlib

import train_case
from train_case import Case, read, run, start, write_png

INTERRUPTS = 3
# 12 x 20 pixels of one colour
GREY_JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNSMj5aYVpQ"
    "YEpRUk//wAALCAAMABQBAREA/8QAFQABAQAAAAAAAAAAAAAAAAAAAAb/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/9oACAEBAAA/AIkAH//Z"
)
RGB_JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNSMj5aYVpQ"
    "YEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT0//wAARCAAMABQD"
    "ASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAX/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/8QAFgEBAQEAAAAAAAAAAAAAAAAAAAUG/8QA"
    "FBEBAAAAAAAAAAAAAAAAAAAAAP/aAAwDAQACEQMRAD8AjANImAAP/9k="
)
# the same size: one colour; the colours of webp_pixels(); half transparent; two frames
LOSSY_WEBP = base64.b64decode(
    "UklGRkYAAABXRUJQVlA4IDoAAAAwAwCdASoUAAwAPm0skkWkIqGYBABABsSgC7LoB+AACEUAAP7sJl/+LORiOzzf/q0PlofLQ/bvKAAA"
)
LOSSLESS_WEBP = base64.b64decode("UklGRiwAAABXRUJQVlA4TB8AAAAvE8ACALmM6H/sohTR/4CQgDDC/72aOgzDGBMAVOoaAA==")
HALF_WEBP = base64.b64decode("UklGRh4AAABXRUJQVlA4TBEAAAAvE8ACEAdQniLXo4CBiOh/AAA=")
MOVING_WEBP = base64.b64decode(
    "UklGRmQBAABXRUJQVlA4WAoAAAACAAAAEwAACwAAQU5JTQYAAAAAAAAAAABBTk1GVgAAAAAAAAAAABMAAAsAAAAAAAJWUDggPgAAADADAJ0BKhQA"
    "DAA+bSySRaQioZgEAEAGxKALUWgH4AAIXwAA/uwmX/4s5GI7PN/+rQ+Wh8tD9z7/QOSvdwAAQU5NRtoAAAAAAAAAAAATAAALAAAAAAAAVlA4IMIA"
    "AACUBACdASoUAAwAPm0skkWDAIAAANiWwfAB4AAVxvicB/IADiaLwTs6SNCkk2gA/vwD68a2RBDKY5LkICYH05bJf+sBx+UH9IZxd34talKkLf7Z"
    "T/61KQdv8LAd3z4md8gm3ep0Ppqz1KRa5N4X5prhcTSAvyjcvG/yXn69foLFxDT+RLOZLlHwdow4UUSURoQXFWU1F4dK3ZDW4mjgFMrLfsf+Qsw/"
    "/VqHr9U/5s2v9y0qsPbu8FV99ety1nvAcQAAAA=="
)


def webp_pixels():
    return b"".join(bytes((i % 20 * 12, i // 20 * 20, i * 7 % 256)) for i in range(240))


def chunk(name, data):
    """Of a WebP file."""
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def photograph_webp(tiff, between):
    """20 x 12 pixels, then `between` bytes that nobody knows, then EXIF data."""
    size = struct.pack("<IHBHB", 8, 19, 0, 11, 0)  # flags: has EXIF; width and height less 1
    parts = chunk(b"VP8X", size) + LOSSLESS_WEBP[12:] + chunk(b"MORE", bytes(between)) + chunk(b"EXIF", b"Exif\0\0" + tiff)
    return b"RIFF" + struct.pack("<I", len(parts) + 4) + b"WEBP" + parts


def photograph_png(tiff):
    """20 x 12 pixels; profiles that come before the EXIF data may be long."""
    rows = zlib.compress(bytes(12 * 61))
    parts = ((b"IHDR", struct.pack(">IIBBBBB", 20, 12, 8, 2, 0, 0, 0)), (b"iCCP", bytes(70000)), (b"eXIf", tiff),
             (b"IDAT", rows), (b"IEND", b""))  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts)  # fmt: skip


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def has_jpeg():
    """Whether the program was built with libjpeg."""
    return "jpeg" in run("info")[0].lower()


class Mixed(Case):
    """A folder of PNG and JPEG files of many sizes."""

    def setUp(self):
        super().setUp()
        if not has_jpeg():
            self.skipTest("the program has no libjpeg")
        self.data = self.path("photos")
        self.draw(self.data)

    def draw(self, folder, count=40):
        source = random.Random(3)
        for label, name in enumerate(("bird", "car", "tree")):
            os.makedirs(os.path.join(folder, name))
            for i in range(count):
                height, width = source.randint(5, 40), source.randint(5, 40)
                pixels = bytearray(source.randrange(60) + 70 * label for _ in range(3 * height * width))
                write_png(os.path.join(folder, name, "%02d.png" % i), width, height, bytes(pixels), 3)
        for i in range(4):
            write(os.path.join(folder, "tree", "x%d.%s" % (i, ("jpg", "JPEG", "jpeg", "JPG")[i])), RGB_JPEG)
        write(os.path.join(folder, "car", "y.jpg"), GREY_JPEG)

    def train(self, *words, out="out", data=None):
        return ("train", "--data", data or self.data, "--size", "16", "--model", "small", "--batch", "16", "--epochs",
                "2", "--out", self.path(out)) + words  # fmt: skip

    def test_one_command_each(self):
        output, errors = run(*self.train())
        self.assertIn("for testing, 3 classes", output)
        self.assertEqual(errors, "")
        tested = output.split("test accuracy ")[1].split(",")[0]
        output, _ = run("eval", self.path("out"))
        self.assertIn("accuracy " + tested, output)
        write(self.path("one.jpg"), RGB_JPEG)
        shutil.copy(os.path.join(self.data, "bird", "00.png"), self.path("two.png"))
        output, _ = run("predict", self.path("out"), self.path("one.jpg"), self.path("two.png"))
        self.assertEqual(output.count(" %"), 2)

    def test_sizes_differ(self):
        _, errors = run("train", "--data", self.data, "--out", self.path("no"), status=1)
        self.assertIn("images cannot be used", errors)
        self.assertEqual(errors.count("\n"), 1)  # not one for each of them
        self.assertIn("--size", errors)
        write(os.path.join(self.data, "car", "05.png"), b"hello")
        lines = run("train", "--data", self.data, "--out", self.path("no"), status=1)[1].strip().split("\n")
        self.assertEqual(len(lines), 3)
        self.assertIn("car/05.png", lines[0])
        self.assertIn("images have another size than the first one", lines[1])
        for wrong in ("0", "x", "4x", "3x-1", "99999"):
            self.refuses(*self.train("--size", wrong), says="--size must be", status=2)

    def test_all_bad_files(self):
        """Each is named, then one sentence ends the program."""
        bad = {"bird/03.png": b"", "car/05.png": b"hello", "tree/x1.JPEG": RGB_JPEG[:200], "tree/07.png": b"\xff\xd8\xff"}
        for name, data in bad.items():
            write(os.path.join(self.data, name), data)
        bad["tree/a?[31m?b.png"] = b"hello"  # names cannot command a terminal
        write(os.path.join(self.data, "tree/a\x1b[31m\nb.png"), b"hello")
        for memory in ("256", "0"):
            _, errors = run(*self.train("--memory", memory), status=1)
            lines = errors.strip().split("\n")
            for name in bad:
                self.assertEqual(sum(name in line for line in lines[:-1]), 1, errors)
            self.assertIn("bird/03.png: the file is empty", lines[0])
            self.assertIn("car/05.png: this is neither a PNG, a JPEG nor a WebP image", lines[1])
            self.assertIn("of 126 images cannot be used; the first is", lines[-1])
            self.assertFalse(os.path.exists(self.path("out")))

    def test_cut_off(self):
        """Files that end too early are all named when the set is opened, whether it fits in memory or not."""
        photo = os.path.join(self.data, "tree", "x2.jpeg")
        cut = {"tree/x1.JPEG": RGB_JPEG[:-12], "tree/07.png": read(os.path.join(self.data, "tree", "07.png"))[:-8],
               "bird/04.png": read(os.path.join(self.data, "bird", "04.png"))[:-14]}  # fmt: skip
        if "webp" in run("info")[0].lower():
            cut["bird/50.webp"] = LOSSY_WEBP[:-4]
        for name, data in cut.items():
            write(os.path.join(self.data, name), data)
        write(photo, read(photo) + b"\0" * 70000)  # what follows an image does not matter
        for memory in ("256", "0"):
            _, errors = run(*self.train("--memory", memory), status=1)
            lines = errors.strip().split("\n")
            self.assertEqual(len(lines), len(cut) + 1, errors)
            for name in cut:
                self.assertEqual(sum(name + ": " in line for line in lines[:-1]), 1, errors)
            self.assertFalse(os.path.exists(self.path("out")))
        write(photo, RGB_JPEG[:-2] + b"\0" * 70000)
        self.assertIn("x2.jpeg: cannot read the JPEG image: the file ends", run(*self.train("--memory", "0"), status=1)[1])

    def test_damaged_while_training(self):
        """Damage that is found late costs no epoch: what was trained before is saved, and goes on."""
        words = ("--memory", "0", "--validation", "0", "--epochs", "4")
        whole, damaged = os.path.join(self.data, "tree", "11.png"), self.path("whole.png")
        run(*self.train(*words, "--stop", "1"))
        run(*self.train(*words, out="other"))
        shutil.copy(whole, damaged)
        data = bytearray(read(whole))
        data[-20] ^= 255  # in the data, whose checksum is wrong then
        write(whole, data)
        before = read(self.checkpoint("out"))
        resume = ("train", "--resume", self.checkpoint("out"), "--memory", "0")
        _, errors = run(*resume, status=1)
        self.assertIn("tree/11.png: cannot read the PNG image", errors)
        self.assertIn("continue with --resume " + self.checkpoint("out"), errors)
        self.assertNotEqual(read(self.checkpoint("out")), before)
        shutil.copy(damaged, whole)
        run(*resume)
        self.assertEqual(read(self.checkpoint("out")), read(self.checkpoint("other")))

    def test_orientation(self):
        """A photograph that lies on its side fits among those that stand."""
        shutil.rmtree(self.data)
        exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
        for name in ("a", "b"):
            os.makedirs(os.path.join(self.data, name))
            for i in range(12):
                write_png(os.path.join(self.data, name, "%d.png" % i), 12, 20, bytes((i,) * 720), 3)
        path = os.path.join(self.data, "a", "photo.jpg")
        write(path, RGB_JPEG[:2] + b"\xff\xe1\0" + bytes((len(exif) + 2,)) + exif + RGB_JPEG[2:])
        words = ("train", "--data", self.data, "--model", "mlp", "--epochs", "1", "--out", self.path("out"))
        run(*words)
        run("predict", self.path("out"), path)
        write(path, RGB_JPEG)
        self.refuses("predict", self.path("out"), path, says="the image has 12x20 pixels, but the network needs 20x12")
        self.check_chunks(exif[6:], words[:-1])

    def check_chunks(self, tiff, words):
        """The same with the chunks of PNG and WebP, in front of the pixels and behind them."""
        os.remove(os.path.join(self.data, "a", "photo.jpg"))
        made = {"photo.png": photograph_png(tiff)}
        if "webp" in run("info")[0].lower():
            made.update({"photo%d.webp" % size: photograph_webp(tiff, size) for size in (0, 70001)})
        for name, data in made.items():
            path = os.path.join(self.data, "a", name)
            write(path, data)
            run(*words, self.path("out." + name))
            run("predict", self.path("out"), path)
        changed = self.path("other.png")
        write(changed, photograph_png(tiff.replace(b"\0\x06\0", b"\0\x01\0")))
        self.refuses("predict", self.path("out"), changed, says="the image has 12x20 pixels, but the network needs 20x12")

    def test_colours(self):
        """One image with colours, wherever it is, gives all three channels; the test part has those of training."""
        for order in ("grey first", "grey last"):
            shutil.rmtree(self.data)
            for part in ("train", "test"):
                for k, name in enumerate("ab"):
                    os.makedirs(os.path.join(self.data, part, name))
                    for i in range(8):
                        grey = (part == "test" or order == "grey last") == (i > 0 or k > 0)
                        write_png(os.path.join(self.data, part, name, "%d.png" % i), 6, 6,
                                  bytes((9 * i + 90 * k,) * (36 if grey else 108)), 1 if grey else 3)  # fmt: skip
            for memory in ("256", "0"):
                out = order + memory
                run("train", "--data", self.data, "--model", "mlp", "--epochs", "1", "--memory", memory, "--out", self.path(out))
                with open(self.checkpoint(out), "rb") as file:
                    self.assertIn(b'"channels":"3"', file.read())

    def test_folders_of_masks(self):
        """A set for segmentation whose folders have other names is one of two classes, which is said."""
        for first, second, says in (("Images", "labels", True), ("gt", "imgs", True), ("cat", "labels", False)):
            shutil.rmtree(self.data)
            for name in (first, second):
                os.makedirs(os.path.join(self.data, name))
                for i in range(8):
                    write_png(os.path.join(self.data, name, "%d.png" % i), 6, 6, bytes((9 * i,) * 36), 1)
            _, errors = run("train", "--data", self.data, "--model", "mlp", "--epochs", "1", "--out", self.path(first))
            self.assertEqual("must be called images and masks" in errors, says, errors)

    def test_too_many_pixels(self):
        """A small file that declares many pixels takes no memory for them."""
        size = b"\xff\xdc"  # 65500
        at = RGB_JPEG.index(b"\xff\xc0")
        huge = RGB_JPEG[: at + 5] + size + size + RGB_JPEG[at + 9 :]
        path = os.path.join(self.data, "bird", "99.jpg")
        write(path, huge[:-2] + b"\0" * 8400000 + huge[-2:])
        for memory in ("256", "0"):
            self.refuses(*self.train("--memory", memory),
                         says="99.jpg: the image has 65500 x 65500 pixels; at most 200000000")  # fmt: skip

    def test_warnings(self):
        os.mkdir(os.path.join(self.data, "empty"))
        write(os.path.join(self.data, "car", "notes.txt"), b"x")
        _, errors = run(*self.train())
        self.assertIn("the class empty has no images", errors)
        self.assertIn("1 file is skipped, because it is not a PNG, JPEG or WebP image\n", errors)
        for name in ("bird", "car", "empty"):
            shutil.rmtree(os.path.join(self.data, name))
        self.assertIn("only one class, tree", run(*self.train(out="one"))[1])

    def test_streamed(self):
        """Images that are read while training give the same bits, for any number of threads."""
        run(*self.train("--mirror", "--shift", "2"))
        for workers in ("1", "3"):
            _, errors = run(*self.train("--mirror", "--shift", "2", "--memory", "0", "--workers", workers, out=workers))
            self.assertIn("125 images are read while training", errors)
            self.assertEqual(read(self.checkpoint(workers)), read(self.checkpoint("out")))

    def test_webp(self):
        """The pixels are those of PNG files that hold them; what is opaque by half is so over black."""
        if "webp" not in run("info")[0].lower():
            self.skipTest("the program has no libwebp")
        half = bytes((sample * 128 + 127) // 255 for sample in (200, 60, 30)) * 240
        for kind in ("webp", "png"):
            for name, data, pixels in (("bird/50", LOSSLESS_WEBP, webp_pixels()), ("car/51", HALF_WEBP, half)):
                path = os.path.join(self.data, name + "." + kind)
                if kind == "webp":
                    write(path, data)
                else:
                    os.remove(path[:-4] + ".webp")
                    write_png(path, 20, 12, pixels, 3)
            run(*self.train(out=kind))
        self.assertEqual(read(self.checkpoint("webp")), read(self.checkpoint("png")))
        write(self.path("one.WEBP"), LOSSY_WEBP)
        self.assertIn(" %", run("predict", self.path("png"), self.path("one.WEBP"))[0])

    def test_bad_webp(self):
        if "webp" not in run("info")[0].lower():
            self.skipTest("the program has no libwebp")
        path = os.path.join(self.data, "bird", "50.webp")
        huge = LOSSLESS_WEBP[:21] + b"\xff\xff\xff\x0f" + LOSSLESS_WEBP[25:]
        for data, says in ((LOSSY_WEBP[:-20], "50.webp: cannot read the WebP image: the file ends within the image"),
                           (LOSSY_WEBP[:14], "50.webp: cannot read the WebP image"),
                           (LOSSLESS_WEBP[:26] + b"\xff" * 12 + LOSSLESS_WEBP[38:], "50.webp: cannot read the WebP image"),
                           (MOVING_WEBP, "50.webp: animated WebP images are not supported"),
                           (huge, "50.webp: the image declares 16384 x 16384 pixels, which is too much")):  # fmt: skip
            write(path, data)
            self.refuses(*self.train(), says=says)

    def test_memory_of_eval(self):
        """Batches that are not trained with are bounded in bytes: all at once, these layers have 420 MB."""
        if b"__asan_init" in read(train_case.PROGRAM) or b"__tsan_init" in read(train_case.PROGRAM):
            self.skipTest("sanitizers need memory of their own")
        shutil.rmtree(self.data)
        self.draw(self.data, count=20)
        with open(self.path("wide.txt"), "w", encoding="utf-8") as file:
            file.write("conv 64 window=3 padding.policy=same\npool window=16 stride=16\ndense classes\n")
        run("train", "--data", self.data, "--model", self.path("wide.txt"), "--size", "160", "--batch", "4", "--epochs", "1",
            "--out", self.path("out"), "--validation", "0")  # fmt: skip
        shutil.copytree(self.data, self.path("all"))
        shutil.copy(self.path("all", "bird", "00.png"), self.path("all", "bird", "more.png"))  # other data than that of the run
        whole = start("eval", self.path("out"), "--data", self.path("all"), "--json")
        output = whole.stdout.read()
        whole.stdout.close()
        whole.stderr.close()
        _, status, used = os.wait4(whole.pid, 0)
        whole.returncode = status
        self.assertEqual(status, 0)
        self.assertIn('"images":66', output)
        self.assertLess(used.ru_maxrss, 300000)

    # ---- folders as people have them ----

    def photos(self, folder, count=6, classes="ab", start=0):
        for k, name in enumerate(classes):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
            for i in range(start, start + count):
                write_png(os.path.join(folder, name, "%02d.png" % i), 6, 6, bytes((9 * i % 90 + 90 * k,) * 36))

    def learn(self, *words, data="set", out="out", status=0):
        return run("train", "--data", self.path(data), "--model", "mlp", "--epochs", "2", "--out", self.path(out), *words,
                   status=status)  # fmt: skip

    def test_parts(self):
        """val/ chooses the best epoch where there is test/, and is the test part where there is none."""
        self.photos(self.path("set", "train"), 20)
        for name in ("val", "valid", "validation"):
            self.photos(self.path("set", name), 3)
            output, _ = self.learn(out="alone-" + name)
            self.assertIn("36 images for training, 4 for validation, 6 for testing", output)
            self.photos(self.path("set", "test"), 5)
            output, _ = self.learn(out="both-" + name)
            self.assertIn("has a validation part, which chooses the best epoch", output)
            self.assertIn("40 images for training, 6 for validation, 10 for testing", output)
            self.assertIn("10 test images", run("eval", self.path("both-" + name))[0])
            output, _ = self.learn("--validation", "0", out="none-" + name)
            self.assertIn("40 images for training, 10 for testing", output)
            shutil.rmtree(self.path("set", name))
            shutil.rmtree(self.path("set", "test"))
        self.photos(self.path("set", "val"), 3)
        os.makedirs(self.path("set", "test"))
        shutil.copy(self.path("set", "val", "a", "00.png"), self.path("set", "test"))
        output, errors = self.learn(out="unlabelled")
        self.assertIn("6 for testing", output)
        self.assertEqual(errors.count("set/test: ignored, because it has no folder for each class\n"), 1, errors)

    def test_parts_of_arrays_and_shards(self):
        for name in ("train", "test", "val"):
            with tarfile.open(self.path(name + "-0.tar"), "w") as tar:
                for i in range(20 if name == "train" else 5 if name == "test" else 3):
                    write_png(self.path("one.png"), 4, 4, bytes((i,) * 16))
                    for end, data in (("png", read(self.path("one.png"))), ("cls", b"%d" % (i % 2))):
                        info = tarfile.TarInfo("%d.%s" % (i, end))
                        info.size = len(data)
                        tar.addfile(info, io.BytesIO(data))
        self.assertIn("20 images for training, 3 for validation, 5 for testing", self.learn(data="", out="shards")[0])
        folder = train_case.write_arrays(self.path("arrays"), [0, 1, 2, 3] * 5)
        for letter in "xy":
            shutil.copy(os.path.join(folder, letter + "_test.npy"), os.path.join(folder, letter + "_val.npy"))
        self.assertIn("20 images for training, 4 for validation, 4 for testing", self.learn(data="arrays", out="first")[0])
        os.remove(os.path.join(folder, "y_test.npy"))
        output, errors = self.learn(data="arrays", out="second")
        self.assertIn("18 images for training, 2 for validation, 4 for testing", output)
        self.assertIn("x_test.npy is ignored, because there is no y_test.npy", errors)

    def test_other_images(self):
        """Another split or other files would put test images into training."""
        self.photos(self.path("set"), 30)
        self.learn("--stop", "1")
        resume = ("train", "--resume", self.checkpoint("out"))
        self.refuses(*resume, "--seed", "9", "--validation", "0", says="there are 54 training images, but the network was trained with 49")
        _, errors = run(*resume, "--seed", "9", status=1)
        self.assertIn("the training images are not those that the network was trained with; --seed", errors)
        self.photos(self.path("set"), 1, start=30)
        _, errors = run(*resume, status=1)
        self.assertIn("the network was trained with 49", errors)
        os.remove(self.path("set", "a", "30.png"))
        os.remove(self.path("set", "b", "30.png"))
        run(*resume)
        self.assertEqual(run("eval", self.path("out"))[1], "")
        os.rename(self.path("set", "b", "00.png"), self.path("set", "b", "40.png"))
        _, errors = run("eval", self.path("out"))
        self.assertIn("images that it has learned from may be among the test images", errors)

    def test_own_data_by_other_names(self):
        """However the folder is named, eval repeats the test of the training."""
        self.photos(self.path("set"), 30)
        self.learn()
        own = run("eval", self.path("out"), "--json")[0].split(",", 1)[1]
        for name in ("set/", "./set", "set/../set", self.path("set")):
            output, _ = run("eval", self.path("out"), "--json", "--data", name, cwd=self.folder)
            self.assertEqual(output.split(",", 1)[1], own)

    def test_stray(self):
        """What lies beside the classes does not take over the set; what is not used is named."""
        self.photos(self.path("set"), 10)
        os.makedirs(self.path("set", "a", "deep", "er"))
        for name in ("a/deep/x.png", "a/deep/er/y.png", "loose.png"):
            shutil.copy(self.path("set", "a", "00.png"), self.path("set", name))
        for name in ("__MACOSX", "@eaDir", ".git"):
            shutil.copytree(self.path("set", "b"), self.path("set", name))
        write(self.path("set", "photos.tar"), b"x" * 1024)
        write(self.path("set", "y.npy"), b"x")
        output, errors = self.learn()
        self.assertIn("18 images for training, 2 for validation, 2 for testing, 2 classes", output)
        self.assertIn("1 image is beside the folders of the classes", errors)
        for name in ("1", "2", "3"):
            os.symlink(self.path("gone"), self.path("set", "b", "link%s.png" % name))
        _, errors = self.learn(out="links", status=1)
        for name in ("1", "2", "3"):
            self.assertIn("link%s.png: cannot be opened" % name, errors)
        self.assertIn("3 of 25 images cannot be used", errors)

    def test_interrupted_while_reading(self):
        """Ctrl-C ends the reading of many photographs, too."""
        for name in "ab":
            os.makedirs(self.path("set", name))
        write_png(self.path("large.png"), 1500, 1500, os.urandom(1500) * 1500)
        for i in range(1200):
            os.link(self.path("large.png"), self.path("set", "ab"[i % 2], "%d.png" % i))
        child = start("train", "--data", self.path("set"), "--size", "8", "--model", "mlp", "--workers", "2",
                      "--out", self.path("out"))  # fmt: skip
        time.sleep(1)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
        self.assertEqual((child.returncode, os.path.exists(self.path("out"))), (130, False), errors)
        self.assertLess(time.monotonic() - began, 5)
        self.assertEqual(errors, "retrograde: reading the images was interrupted\n")

    def test_one_class(self):
        train_case.write_arrays(self.path("arrays"), [2] * 20)
        self.assertIn("arrays: there is only one class, 2; a network learns nothing", self.learn(data="arrays")[1])

    def test_no_data_sets(self):
        for name, says in (("x.tar.gz", "packed tar files are not read"), ("x.csv", "numpy.savez"),
                           ("x.jpg", "this is neither a folder, a tar file nor an NPZ file")):  # fmt: skip
            write(self.path(name), b"some text, 1, 2")
            _, errors = self.learn(data=name, status=1)
            self.assertIn(name + ": ", errors)
            self.assertIn(says, errors)

    # ---- tar files ----

    def pack(self, folder, form, shards=3, long=""):
        """All images, in the order of their names, in the layout of WebDataset."""
        os.makedirs(folder)
        names = sorted(os.path.join(label, name) for label in os.listdir(self.data)
                       for name in os.listdir(os.path.join(self.data, label)))  # fmt: skip
        for k in range(shards):
            with tarfile.open(os.path.join(folder, "train-%03d.tar" % k), "w", format=form) as tar:
                for i, name in enumerate(names[k::shards]):
                    kind = "png" if name.endswith("png") else "jpg"
                    members = [(kind, read(os.path.join(self.data, name))),
                               ("cls", b"%d\n" % ("bird", "car", "tree").index(name.split("/")[0])), ("json", b"{}")]  # fmt: skip
                    for end, data in members if i % 2 else members[::-1]:
                        info = tarfile.TarInfo("%s%04d.%s" % (long, i, end))
                        info.size = len(data)
                        tar.addfile(info, io.BytesIO(data))

    def test_tar_formats(self):
        """GNU and PAX headers, long names too, hold the same images."""
        results = []
        for i, (form, long) in enumerate(((tarfile.GNU_FORMAT, ""), (tarfile.PAX_FORMAT, "ä" * 90 + "/" + "b" * 60),
                                          (tarfile.GNU_FORMAT, "c" * 200), (tarfile.USTAR_FORMAT, "dir/"))):  # fmt: skip
            self.pack(self.path("shards"), form, long=long)
            run(*self.train("--memory", str(i % 2), data=self.path("shards"), out="out%d" % i))
            results.append(read(self.checkpoint("out%d" % i)))
            shutil.rmtree(self.path("shards"))
        self.assertTrue(all(result == results[0] for result in results))
        self.pack(self.path("single"), tarfile.GNU_FORMAT, 1)
        output, _ = run(*self.train(data=self.path("single", "train-000.tar"), out="single"))
        self.assertIn("3 classes", output)

    def test_bad_tar(self):
        self.pack(self.path("shards"), tarfile.GNU_FORMAT)
        path = self.path("shards", "train-001.tar")
        good = read(path)
        for data, says in ((good[:1000], "ends"), (b"x" * 1024, "wrong checksum"),
                           (good[:600] + b"junk" * 300 + good[1800:], "checksum")):  # fmt: skip
            write(path, data)
            self.refuses(*self.train("--memory", "0", data=self.path("shards")), says=("train-001.tar", "byte", says))
        with tarfile.open(path, "w") as tar:
            for end, data in (("cls", b"cat"), ("png", b"x")):
                info = tarfile.TarInfo("1." + end)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        self.refuses(*self.train(data=self.path("shards")), says=("train-001.tar", "class of 1.cls is 'cat'"))

    def test_interrupted_in_a_shard(self):
        """However often it is stopped, training ends with the same bits."""
        self.pack(self.path("shards"), tarfile.PAX_FORMAT)
        words = self.train("--memory", "0", "--epochs", "60", "--batch", "8", "--mirror", data=self.path("shards"), out="cut")
        whole = [word if word != self.path("cut") else self.path("whole") for word in words]
        began = time.monotonic()
        run(*whole)
        seconds = time.monotonic() - began
        stopped = 0
        for i in range(INTERRUPTS):
            child = start(*words)
            child.stdout.readline()  # what is trained; some say first that there is no test part
            time.sleep(random.uniform(0, seconds / INTERRUPTS))
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=120)
            self.assertIn(child.returncode, (0, 130), errors)
            stopped += child.returncode == 130
            if os.path.exists(self.checkpoint("cut")):
                words = ("train", "--resume", self.checkpoint("cut"), "--memory", "0")
        run(*words)
        self.assertEqual(read(self.checkpoint("cut")), read(self.checkpoint("whole")))
        print("%d of %d interrupts came while training" % (stopped, INTERRUPTS), file=sys.stderr)


if __name__ == "__main__":
    if "--interrupts" in sys.argv:
        at = sys.argv.index("--interrupts")
        INTERRUPTS = int(sys.argv[at + 1])
        del sys.argv[at : at + 2]
    train_case.main()
