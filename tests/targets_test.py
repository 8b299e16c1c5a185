# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Data with other targets than one class: values, several labels, masks; tables and time series.

    python3 targets_test.py PROGRAM
"""
import array
import json
import os
import random
import struct
import zlib

import train_case
from train_case import Case, png_chunk, read, run, write_npy, write_png


def floats(values):
    return array.array("f", values).tobytes()


class Targets(Case):
    def arrays(self, shape, x, kind, targets, y):
        """A data set of two arrays; the images are floats."""
        os.makedirs(self.path("set"), exist_ok=True)
        write_npy(self.path("set", "x.npy"), "<f4", shape, floats(x))
        write_npy(self.path("set", "y.npy"), kind, (shape[0], *targets), floats(y) if kind == "<f4" else bytes(y))
        self.shape, self.first = shape[1:], floats(x[: len(x) // shape[0]])

    def train(self, *words):
        output, _ = run("train", "--data", self.path("set"), "--out", self.path("out"), "--batch", "16", "--json", *words)
        lines = [json.loads(line) for line in output.strip().split("\n")]
        told = json.loads(run("eval", self.path("out"), "--json")[0])
        self.assertEqual(told["loss"], lines[-1]["test_loss"])
        return lines, told

    def predict(self):
        write_npy(self.path("one.npy"), "<f4", self.shape, self.first)
        return json.loads(run("predict", self.path("out"), self.path("one.npy"), "--json")[0])["values"]

    def table(self):
        source = random.Random(5)
        rows = [[source.uniform(-1, 1) for _ in range(6)] for _ in range(400)]
        self.arrays((400, 6), sum(rows, []), "<f4", (2,), sum(([r[0] + 2 * r[1], r[2] - r[3]] for r in rows), []))
        return rows

    def test_values(self):
        rows = self.table()
        for dtype in ("f32", "bf16"):
            lines, told = self.train("--model", "mlp", "--epochs", "12", "--dtype", dtype)
            self.assertLess(lines[-1]["test_absolute_error"], 0.15)
            self.assertEqual(told["absolute_error"], lines[-1]["test_absolute_error"])
            self.assertLess(lines[-1]["test_loss"], 0.1 * lines[0]["loss"])
            values = self.predict()
            self.assertEqual(len(values), 2)
            self.assertLess(abs(values[0] - rows[0][0] - 2 * rows[0][1]), 0.6)
            page = read(self.path("out", "report.html")).decode()
            self.assertIn("Mean absolute error", page)
            self.assertEqual(page.count('<figure class="chart scatter">'), 2)
            self.assertEqual(len(page.split('<path class="dots"')[1].split('"/>')[0].split("h0")), 41)
            os.rename(self.path("out"), self.path("out-" + dtype))

    def test_exact_values(self):
        """Losses and errors of networks in 16 bits are those of the values themselves, not of rounded ones."""
        source = random.Random(14)
        losses = {"mean_squared": lambda e: e * e, "mean_absolute": abs, "huber": lambda e: abs(e) - 0.5 if abs(e) > 1 else e * e / 2}
        with open(self.path("dense.txt"), "w", encoding="utf-8") as file:
            file.write("dense 2\n")
        os.makedirs(self.path("set"))
        rows, y, files = {}, {}, {}
        for part, count in (("train", 36), ("test", 20)):
            rows[part] = [[source.uniform(-1, 1) for _ in range(3)] for _ in range(count)]
            y[part] = array.array("f", [source.choice((50, 100)) + source.uniform(0.02, 0.03) for _ in range(2 * count)])
            write_npy(self.path("set", "x_%s.npy" % part), "<f4", (count, 3), floats(sum(rows[part], [])))
            write_npy(self.path("set", "y_%s.npy" % part), "<f4", (count, 2), y[part].tobytes())
            files[part] = [self.path("%s%d.npy" % (part, i)) for i in range(count)]
            for file, row in zip(files[part], rows[part]):
                write_npy(file, "<f4", (3,), floats(row))

        def errors_of(out, part):
            told = run("predict", out, *files[part], "--json")[0].strip().split("\n")
            predicted = sum((json.loads(line)["values"] for line in told), [])
            self.assertEqual(len(predicted), len(y[part]))
            return [a - b for a, b in zip(predicted, y[part])]

        def mean(values):
            values = list(values)
            return sum(values) / len(values)

        for dtype, loss, parts in (("bf16", "mean_squared", "1"), ("f16", "huber", "1"), ("bf16", "mean_absolute", "4"),
                                   ("f16", "mean_squared", "2"), ("f32", "mean_squared", "1"), ("f64", "huber", "1")):  # fmt: skip
            out = self.path("-".join((dtype, loss, parts)))
            words = ("train", "--data", self.path("set"), "--model", self.path("dense.txt"), "--dtype", dtype, "--loss", loss,
                     "--micro-batches", parts, "--batch", "16", "--validation", "0", "--rate", "1e-30", "--json")  # fmt: skip
            lines = [json.loads(line) for line in run(*words, "--epochs", "1", "--out", out)[0].strip().split("\n")]
            told = json.loads(run("eval", out, "--json")[0])
            self.assertEqual(told["loss"], lines[-1]["test_loss"], out)
            self.assertEqual(told["absolute_error"], lines[-1]["test_absolute_error"], out)
            for part, got in (("train", lines[0]["loss"]), ("test", told["loss"])):  # the rate keeps the parameters as they are
                wanted = mean(map(losses[loss], errors_of(out, part)))
                self.assertLess(abs(got - wanted), 2e-7 * wanted, (out, part))
            wanted = mean(map(abs, errors_of(out, "test")))
            self.assertLess(abs(told["absolute_error"] - wanted), 2e-8 * wanted, out)
            page = read(os.path.join(out, "report.html")).decode()
            for i in range(2):
                self.assertTrue(">%.2f</td>" % mean(map(abs, errors_of(out, "test")[i::2])) in page, out)

    def test_columns(self):
        """Columns of any scale, each with its own mean and deviation: in training, predictions and ONNX models."""
        rows = self.table()
        scaled = [[r[0], 1000 * r[1] + 5000, 0.001 * r[2], 50 * r[3] - 20, 7, r[5]] for r in rows]
        targets = sum(([r[0] + 2 * r[1], r[2] - r[3]] for r in rows), [])
        for name, shape in (("table", (400, 6)), ("series", (400, 2, 3))):
            # of a series the two steps of a column have one scale
            x = scaled if name == "table" else [[r[0], 1000 * r[1] + 5000, 0.001 * r[2], r[3], 1000 * r[4] + 5000, 0.001 * r[5]]
                                               for r in rows]  # fmt: skip
            y = targets if name == "table" else sum(([r[0] + 2 * r[1], r[0] - r[3]] for r in rows), [])
            self.arrays(shape, sum(x, []), "<f4", (2,), y)
            run("train", "--data", self.path("set"), "--out", self.path(name), "--batch", "16", "--model", "mlp", "--epochs", "12")
            told = json.loads(run("eval", self.path(name), "--json")[0])
            self.assertLess(told["absolute_error"], 0.15, name)
            checkpoint = read(self.path(name, "checkpoint.safetensors"))
            self.assertIn(b'"columns":"%d"' % shape[-1], checkpoint)
            write_npy(self.path("one.npy"), "<f4", shape[1:], floats(x[0]))
            values = json.loads(run("predict", self.path(name), self.path("one.npy"), "--json")[0])["values"]
            for value, wanted in zip(values, y):
                self.assertLess(abs(value - wanted), 0.6)
            run("export", self.path(name), "-o", self.path("model.onnx"))
            write_npy(self.path("input.npy"), "<f4", (1, 1) + (1,) * (3 - len(shape)) + shape[1:], floats(x[0]))
            run("run", self.path("model.onnx"), "images=" + self.path("input.npy"), "-o", "logits=" + self.path("output.npy"))
            output = array.array("f", read(self.path("output.npy"))[-8:])
            for value, wanted in zip(output, values):
                self.assertLess(abs(value - wanted), 1e-4 * max(1, abs(wanted)))
        words = ("train", "--data", self.path("set"), "--out", self.path("cut"), "--batch", "16", "--model", "mlp", "--epochs", "12")
        run(*words, "--stop", "3")
        run("train", "--resume", self.path("cut"))
        self.assertEqual(read(self.path("cut", "checkpoint.safetensors")), read(self.path("series", "checkpoint.safetensors")))
        self.arrays((40, 4, 3), [(i % 97) / 96 for i in range(480)], "|u1", (), [i % 2 for i in range(40)])
        run("train", "--data", self.path("set"), "--out", self.path("grey"), "--model", "mlp", "--epochs", "1")
        self.assertNotIn(b'"columns"', read(self.path("grey", "checkpoint.safetensors")))  # as pixels are

    def test_patience_of_values(self):
        """The loss decides, and is named."""
        self.table()
        output, _ = run("train", "--data", self.path("set"), "--out", self.path("out"), "--model", "mlp", "--rate", "0.3",
                        "--optimizer", "adam", "--schedule", "step", "--drop", "9", "--drop-every", "1", "--patience", "1",
                        "--epochs", "20")  # fmt: skip
        self.assertIn("no lower validation loss since epoch", output)

    def test_losses(self):
        self.table()
        results = set()
        for loss in ("mean_squared", "mean_absolute", "huber"):
            lines, _ = self.train("--model", "mlp", "--epochs", "2", "--loss", loss)
            self.assertLess(lines[1]["loss"], lines[0]["loss"])
            results.add(lines[0]["loss"])
            os.rename(self.path("out"), self.path(loss))
        self.assertEqual(len(results), 3)
        run("train", "--resume", os.path.join(self.path("huber"), "checkpoint.safetensors"), "--epochs", "3")
        words = ("train", "--data", self.path("set"), "--out", self.path("out"), "--loss")
        self.refuses(*words, "softmax_cross_entropy", says="needs one class", status=2)
        self.refuses(*words, "square", says="loss must be", status=2)
        self.refuses("train", "--data", "glyphs", "--out", self.path("out"), "--loss", "huber", status=2,
                     says="--loss must be softmax_cross_entropy where the data has classes")  # fmt: skip
        self.refuses("train", "--data", "glyphs", "--model", "small", "--out", self.path("out"), "--head", "3", status=2,
                     says="--head is 3, but the data needs 10")  # fmt: skip

    def test_values_of_losses(self):
        """Losses of probabilities have no meaning for other values."""
        source = random.Random(13)
        for y, refused in (([source.random() for _ in range(100)], {"hinge"}), ([i % 2 for i in range(100)], set()),
                           ([-1 + i % 2 * 2 for i in range(100)], {"hinge", "sigmoid_cross_entropy"})):  # fmt: skip
            self.arrays((100, 4), [source.random() for _ in range(400)], "<f4", (), y)
            for loss in ("hinge", "sigmoid_cross_entropy"):
                words = ("train", "--data", self.path("set"), "--model", "mlp", "--epochs", "1", "--loss", loss, "--out",
                         self.path("out%d" % len(os.listdir(self.folder))))  # fmt: skip
                _, errors = run(*words, status=2 if loss in refused else 0)
                self.assertEqual("--loss %s needs values" % loss in errors, loss in refused, errors)
        with open(self.path("softmax.txt"), "w", encoding="utf-8") as file:
            file.write("dense classes\nsoftmax\n")
        self.arrays((100, 4), [source.random() for _ in range(400)], "|u1", (2,), [i % 2 for i in range(200)][:198] + [1, 1])
        self.refuses("train", "--data", self.path("set"), "--model", self.path("softmax.txt"), "--out", self.path("no"),
                     says="the network ends with softmax, but the loss applies sigmoid itself")  # fmt: skip

    def test_values_beyond_f16(self):
        """They would be infinite, and training would seem to diverge."""
        self.arrays((60, 2), [0.5, 1] * 60, "<f4", (), [60000 + 100 * i for i in range(60)])
        words = ("train", "--data", self.path("set"), "--out", self.path("out"), "--model", "mlp", "--dtype")
        self.refuses(*words, "f16", status=2, says="--dtype f16 cannot hold the value 65600, only numbers up to 65504")
        run(*words, "bf16", "--epochs", "1")

    def test_labels(self):
        """Which of three places of a time series are high."""
        source = random.Random(6)
        labels = [[source.randrange(2) for _ in range(3)] for _ in range(400)]
        series = [source.uniform(0, 0.4) + label[t // 4] for label in labels for t in range(12) for _ in range(2)]
        self.arrays((400, 12, 2), series, "|u1", (3,), sum(labels, []))
        lines, told = self.train("--model", "mlp", "--epochs", "4")
        self.assertGreater(told["accuracy"], 0.95)
        values = self.predict()
        self.assertEqual([value > 0.5 for value in values], [label == 1 for label in labels[0]])
        names = [str(i) for i in sorted(range(3), key=lambda i: -values[i]) if values[i] > 0.5]
        words = run("predict", self.path("out"), self.path("one.npy"))[0].strip().split(":")[1].split(",")
        self.assertEqual([word.split()[0] for word in words], names or ["none"])
        page = read(self.path("out", "report.html")).decode()
        self.assertIn("Label accuracy", page)
        self.assertIn("<caption>Labels</caption>", page)
        data = read(self.path("out", "checkpoint.safetensors"))
        head = 8 + struct.unpack("<Q", data[:8])[0]
        with open(self.path("bad.safetensors"), "wb") as file:
            file.write(data[:head] + b"\xff" * (len(data) - head))
        self.refuses("predict", self.path("bad.safetensors"), self.path("one.npy"), says="the network returns NaN")

    def test_counts_of_a_checkpoint(self):
        """Labels and classes that differ in number: predict read behind its answers."""
        self.arrays((40, 2), [0.5] * 80, "|u1", (2,), [0, 1] * 40)
        with open(self.path("two.txt"), "w", encoding="utf-8") as file:
            file.write("dense 2\n")
        self.train("--model", self.path("two.txt"), "--epochs", "1")
        data = read(self.path("out", "checkpoint.safetensors"))
        start = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:start])
        for classes, targets, says in ((3, 2, "2 labels an image but 3 classes"), (2, 3, "3 labels an image")):
            header["__metadata__"].update(classes=str(classes), targets=str(targets), class_names="a\n" * classes)
            text = json.dumps(header).encode()
            text += b" " * (-len(text) % 8)
            with open(self.path("bad.safetensors"), "wb") as file:
                file.write(struct.pack("<Q", len(text)) + text + data[start:])
            self.refuses("predict", self.path("bad.safetensors"), self.path("one.npy"), says=says)

    def test_masks(self):
        """Pixels that are bright, of images with two channels."""
        source = random.Random(7)
        classes = [source.randrange(3) for _ in range(200 * 6 * 5)]
        pixels = [kind + source.uniform(-0.3, 0.3) for kind in classes for _ in range(2)]
        self.arrays((200, 6, 5, 2), pixels, "|u1", (6, 5), classes)
        with open(self.path("pixels.txt"), "w", encoding="utf-8") as file:
            file.write("conv 8 window=3 padding.policy=same\nneuron\nconv classes window=1\n")
        lines, told = self.train("--model", self.path("pixels.txt"), "--epochs", "12", "--rate", "0.02")
        self.assertGreater(told["accuracy"], 0.9)
        self.assertEqual(told["iou"], lines[-1]["test_iou"])
        self.assertGreater(told["iou"], 0.8)
        answer = self.predict()
        self.assertEqual(len(answer), 30)
        self.assertGreater(sum(a == b for a, b in zip(answer, classes)), 26)
        self.assertIn("Mean intersection over union", read(self.path("out", "report.html")).decode())
        for change in (("--mirror",), ("--crop", "2"), ("--shift", "1")):
            self.refuses("train", "--data", self.path("set"), "--model", self.path("pixels.txt"), *change, "--out",
                         self.path("no"), says=change[0] + " is not supported for images with masks", status=2)  # fmt: skip
        self.refuses("train", "--data", self.path("set"), "--model", "mlp", "--out", self.path("no"), says="90 elements")

    def test_ranges(self):
        """Bytes count as 0 to 1: floats that are bytes are told apart from those from 0 to 1."""
        source = random.Random(9)
        classes = [i % 2 for i in range(80)]
        pixels = [source.randrange(100) + 120 * kind for kind in classes for _ in range(36)]
        sets = {"bytes": ("|u1", bytes(pixels)), "whole": ("<f4", floats(pixels)), "unit": ("<f4", floats(x / 255 for x in pixels)),
                "short": ("<i2", array.array("h", pixels).tobytes())}  # fmt: skip
        for name, (kind, data) in sets.items():
            os.makedirs(self.path(name))
            write_npy(self.path(name, "x.npy"), kind, (80, 6, 6), data)
            write_npy(self.path(name, "y.npy"), "|u1", (80,), bytes(classes))
            write_npy(self.path(name + ".npy"), kind, (6, 6), data[: len(data) // 80])
            run("train", "--data", self.path(name), "--model", "mlp", "--epochs", "6", "--out", self.path("out-" + name))
        refused = {("bytes", "whole"), ("bytes", "short"), ("unit", "whole"), ("unit", "short"), ("whole", "bytes"), ("whole", "unit"),
                   ("short", "bytes"), ("short", "unit")}  # fmt: skip
        for trained in sets:
            own = json.loads(run("eval", self.path("out-" + trained), "--data", self.path("unit" if trained in ("bytes", "unit") else "whole"),
                                 "--json")[0])  # fmt: skip
            self.assertGreater(own["accuracy"], 0.95)
            for name in sets:
                words = ("eval", self.path("out-" + trained), "--data", self.path(name))
                if (trained, name) in refused:
                    _, errors = run(*words, status=1)
                    self.assertIn("the pixels are", errors)
                else:
                    run(*words)
                words = ("predict", self.path("out-" + trained), self.path(name + ".npy"))
                if name == "short":
                    continue
                if (trained, name) in refused and name != "bytes":
                    self.refuses(*words, says="the pixels are")
                else:  # bytes are themselves for networks of whole numbers
                    self.assertIn(".npy: 0 9", run(*words)[0])
        write_npy(self.path("whole", "x.npy"), "<f4", (80, 6, 2, 3), sets["whole"][1])
        _, errors = run("train", "--data", self.path("whole"), "--normalize", "imagenet", "--out", self.path("no"), status=2)
        self.assertIn("normalize imagenet is for pixels from 0 to 1", errors)

    def test_bytes_in_tables(self):
        """A row of bytes is a row of numbers; image files are none."""
        rows = self.table()
        run("train", "--data", self.path("set"), "--model", "mlp", "--epochs", "1", "--out", self.path("out"))
        row = [3, 0, 1, 2, 5, 4]
        write_npy(self.path("bytes.npy"), "|u1", (6,), bytes(row))
        write_npy(self.path("floats.npy"), "<f4", (6,), floats(row))
        told = [run("predict", self.path("out"), self.path(name))[0].split(":")[1] for name in ("bytes.npy", "floats.npy")]
        self.assertEqual(told[0], told[1])
        self.assertEqual(len(rows[0]), 6)
        write_png(self.path("row.png"), 6, 1, bytes(row))
        self.refuses("predict", self.path("out"), self.path("row.png"), says="numbers that are no pixels")

    def test_whole_numbers(self):
        """Tables of integers of any size are read as floats are."""
        source = random.Random(11)
        rows = [source.randrange(-100, 100) for _ in range(400)]
        for kind, code in (("<i8", "q"), ("<i2", "h"), ("|i1", "b"), ("<f8", "d"), (">i4", "i")):
            data = array.array(code, rows)
            if kind[0] == ">":
                data.byteswap()
            self.arrays((100, 4), floats(rows), "|u1", (), [rows[4 * i] > 0 for i in range(100)])
            write_npy(self.path("set", "x.npy"), kind, (100, 4), data.tobytes())
            run("train", "--data", self.path("set"), "--model", "mlp", "--epochs", "2", "--out", self.path(kind))
            self.assertEqual(read(self.checkpoint(kind)), read(self.checkpoint("<i8")), kind)
        write_npy(self.path("set", "x.npy"), "<u8", (100, 4), b"\xff" * 3200)
        self.refuses("train", "--data", self.path("set"), "--out", self.path("no"), says="numbers of 2^63 and more")

    def test_hints(self):
        """Targets that are probably classes."""
        source = random.Random(12)
        x = [source.random() for _ in range(400)]
        kinds = [source.randrange(4) for _ in range(100)]
        for kind, targets, y, says in (
            ("|u1", (4,), [int(k == i) for k in kinds for i in range(4)], "exactly one label; if it can have no other"),
            ("<f4", (), kinds, "y has whole numbers as floats, which are learned as values"),
            ("|u1", (4,), [int(k <= i) for k in kinds for i in range(4)], ""),
            ("<f4", (), [k + 0.5 for k in kinds], ""),
            ("<f4", (), [10 * k for k in kinds], ""),
        ):
            self.arrays((100, 4), x, kind, targets, y)
            _, errors = run("train", "--data", self.path("set"), "--model", "mlp", "--epochs", "1", "--out", self.path("out"))
            self.assertEqual(errors.count("\n"), 1 if says else 0, errors)
            self.assertIn(says, errors)
            os.rename(self.path("out"), self.path("out%d" % len(os.listdir(self.folder))))
        os.rename(self.path("set", "x.npy"), self.path("set", "images.npy"))
        self.refuses("train", "--data", self.path("set"), "--out", self.path("no"), says="has no train part: its arrays must be x and y")

    def write_mask(self, path, side, classes):
        """A palette of four colours, the first two transparent."""
        rows = b"".join(b"\0" + bytes(classes[i * side : (i + 1) * side]) for i in range(side))
        with open(path, "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 3, 0, 0, 0))
                       + png_chunk(b"PLTE", bytes(range(12))) + png_chunk(b"tRNS", b"\0\0")
                       + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b""))  # fmt: skip

    def draw_masks(self):
        """Photographs of three sizes; the last row of a mask is ignored."""
        source = random.Random(8)
        for part, count in (("train", 60), ("val", 20)):
            for folder in ("images", "masks"):
                os.makedirs(self.path("roads", part, folder))
            for i in range(count):
                side = (8, 12, 20)[i % 3]
                classes = [source.randrange(3) if k % 4 == 0 else 1 for k in range(side // 4)] * side * 4
                classes = sorted(classes[: side * side])
                pixels = bytes(min(255, 80 * kind + source.randrange(20)) for kind in classes)
                name = "%03d" % i
                write_png(self.path("roads", part, "images", name + ".png"), side, side, pixels)
                self.write_mask(self.path("roads", part, "masks", name + ".png"), side, classes[:-side] + [255] * side)
        with open(self.path("roads", "classes.txt"), "w", encoding="utf-8") as file:
            file.write("sky\nroad\ncar\n")
        with open(self.path("pixels.txt"), "w", encoding="utf-8") as file:
            file.write("conv 8 window=3 padding.policy=same\nneuron\nconv classes window=1\n")

    def test_mask_files(self):
        """One command each; the same bits in memory and read while training."""
        self.draw_masks()
        words = ("train", "--data", self.path("roads"), "--model", self.path("pixels.txt"), "--size", "8", "--batch", "16",
                 "--rate", "0.02", "--epochs", "12")  # fmt: skip
        output, errors = run(*words, "--out", self.path("out"))
        self.assertEqual(errors, "")
        self.assertIn("3 classes of pixels", output)
        self.assertGreater(float(output.split("\ntest pixel accuracy ")[1].split(" ")[0]), 80)
        self.assertIn(output.split("\ntest ")[1].split(", after")[0], run("eval", self.path("out"))[0])
        run(*words, "--memory", "0", "--workers", "3", "--out", self.path("streamed"))
        self.assertEqual(read(self.checkpoint("streamed")), read(self.checkpoint("out")))
        image = self.path("roads", "val", "images", "001.png")
        values = json.loads(run("predict", self.path("out"), image, "--json")[0])["values"]
        self.assertEqual(len(values), 64)
        self.assertTrue(set(values) <= {0, 1, 2})
        shares = run("predict", self.path("out"), image)[0].split(": ")[1]
        self.assertIn("road %.2f %%" % (100 * values.count(1) / 64), shares)
        page = read(self.path("out", "report.html")).decode()
        self.assertIn("</i>road</td>", page)
        self.assertIn("Intersection over union", page)
        self.assertEqual(page.count('alt="true mask"'), 8)
        with open(self.path("roads", "train", "masks", "003.png"), "r+b") as file:
            file.truncate(70)
        self.refuses(*words, "--out", self.path("no"), says="train/masks/003.png: ")
        self.write_mask(self.path("roads", "train", "masks", "003.png"), 8, [1] * 64)
        os.mkfifo(self.path("roads", "train", "masks", "004.jpg"))
        self.refuses(*words, "--out", self.path("no"), says="train/masks/004.jpg: this is a pipe, not an image")
        os.remove(self.path("roads", "train", "masks", "004.jpg"))
        with open(self.path("roads", "val", "masks", "005.png"), "wb") as file:
            file.write(b"no mask")
        self.refuses(*words, "--out", self.path("no"), says="val/masks/005.png: this is not a PNG image, as masks must be")


if __name__ == "__main__":
    train_case.main()
