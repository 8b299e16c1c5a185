#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""ONNX models in `train`, `eval`, `predict`, `graph` and `run`: training, checkpoints, and what is refused.

usage: onnx_train_test.py PROGRAM
"""
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

from onnx_made import OWN_NAMES, classifier, model, named_classifier, node, port, tensor

PROGRAM = pathlib.Path(sys.argv[1]).resolve()


def write_npy(path, dims, values, descr="<f4", code="f"):
    shape = "(" + "".join(f"{dim}," for dim in dims) + ")"
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                     struct.pack(f"<{len(values)}{code}", *values))


def write_data(folder, size=8, channels=1, classes=3, count=96):
    """Bright stripes whose place says the class."""
    draw = random.Random(1)
    folder.mkdir()
    for part, images in (("train", count), ("test", count // 4)):
        labels = [i % classes for i in range(images)]
        pixels = [draw.random() + 2.0 * (y * classes // size == label)
                  for label in labels for y in range(size) for _ in range(size * channels)]
        write_npy(folder / f"x_{part}.npy", [images, size, size, channels], pixels)
        write_npy(folder / f"y_{part}.npy", [images], labels, "<i4", "i")
    return folder


def run(folder, *arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=folder)


def succeed(folder, *arguments):
    done = run(folder, *arguments)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def refuse(folder, words, *arguments):
    """One sentence with these words, and no folder of results."""
    done = run(folder, "train", *arguments, "--out", "never")
    assert done.returncode in (1, 2) and not (folder / "never" / "checkpoint.safetensors").exists(), done
    assert done.stderr.startswith("retrograde: ") and done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr, (word, done.stderr)


def tensors_of(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__")
    return {name: data[8 + length + entry["data_offsets"][0]:8 + length + entry["data_offsets"][1]]
            for name, entry in header.items()}


def shapes_of(path):
    data = path.read_bytes()
    header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


def write_weights(path, tensors):
    """A safetensors file of {name: (shape, values)}, as PyTorch writes it; values may be (dtype, bytes)."""
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, values) in tensors.items():
        dtype, data = values if isinstance(values, tuple) else ("F32", struct.pack(f"<{len(values)}f", *values))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def weights_of_classifier(channels, classes=3):
    """What the classifier of onnx_made has, under the same names."""
    return {"conv.weight": ([6, channels, 3, 3], [((i * 7) % 11 - 5) / 12 for i in range(54 * channels)]),
            "conv.bias": ([6], [0.0] * 6), "bn.weight": ([6], [1.0] * 6), "bn.bias": ([6], [0.0] * 6),
            "bn.running_mean": ([6], [0.0] * 6), "bn.running_var": ([6], [1.0] * 6),
            "bn.num_batches_tracked": ([], ("I64", bytes(8))),
            "fc.weight": ([classes, 96], [((i * 5) % 13 - 6) / 48 for i in range(classes * 96)]),
            "fc.bias": ([classes], [0.0] * classes)}


def losses_of(folder):
    rows = [row.split(",") for row in (folder / "metrics.csv").read_text().split()]
    return [[float(row[rows[0].index(name)]) for name in ("train_loss", "validation_loss")] for row in rows[1:]]


def test_training(folder):
    """A model learns, its checkpoint needs no other file, and training continues with the same bits."""
    data = write_data(folder / "data")
    (folder / "model.onnx").write_bytes(classifier())
    options = ["--data", data, "--epochs", 3, "--batch", 16, "--rate", 0.01]
    succeed(folder, "train", "model.onnx", *options, "--out", "whole")
    succeed(folder, "train", "--model", "model.onnx", *options, "--stop", 1, "--out", "parts")
    (folder / "model.onnx").unlink()
    succeed(folder, "train", "--resume", "parts/checkpoint.safetensors")
    assert (folder / "whole/checkpoint.safetensors").read_bytes() == (folder / "parts/checkpoint.safetensors").read_bytes()
    report = json.loads(succeed(folder, "eval", "whole", "--json"))
    assert report["accuracy"] > 0.9, report
    names = set(tensors_of(folder / "whole/checkpoint.safetensors"))
    assert {"conv.weight", "bn.weight", "bn.running_mean", "bn.running_var", "fc.weight", "fc.bias"} <= names, names
    statistics = struct.unpack("<6f", tensors_of(folder / "whole/checkpoint.safetensors")["bn.running_mean"])
    assert any(value != 0 for value in statistics), statistics
    succeed(folder, "graph", "whole/best.safetensors", "--out", "trained.svg")
    assert "batch_norm" in (folder / "trained.svg").read_text()
    write_npy(folder / "image.npy", [8, 8, 1], [float(y < 3) * 2 for y in range(8) for _ in range(8)])
    write_npy(folder / "images.npy", [1, 8, 8, 1], [0.5] * 64)
    assert json.loads(succeed(folder, "predict", "whole", "image.npy", "--json"))["classes"][0]["number"] == 0
    succeed(folder, "run", "whole/best.safetensors", "images=images.npy", "-o", "logits=y.npy")


def test_options(folder):
    """All dtypes, accumulated gradients and other optimizers train; a fixed batch in the file does not count."""
    data = write_data(folder / "data")
    (folder / "model.onnx").write_bytes(classifier(batch=1, end="LogSoftmax"))
    for number, options in enumerate((["--dtype", "f64"], ["--dtype", "bf16"], ["--dtype", "f16"],
                                      ["--accumulate", 2, "--optimizer", "sgd", "--decay", 0.001],
                                      ["--optimizer", "rmsprop", "--patience", 1])):
        succeed(folder, "train", "model.onnx", "--data", data, "--epochs", 2, "--batch", 16, *options, "--out", f"run{number}")
        assert json.loads(succeed(folder, "eval", f"run{number}", "--json"))["loss"] < 1.2, options


def test_micro_batches(folder):
    """The f32 copies of 16-bit weights start with the values of the file, also where a batch is cut."""
    data = write_data(folder / "data")
    (folder / "model.onnx").write_bytes(classifier())
    succeed(folder, "train", "model.onnx", "--data", data, "--epochs", 1, "--batch", 16, "--rate", 1e-9, "--dtype", "bf16",
            "--micro-batches", 4, "--freeze", "conv.*", "--out", "cut")
    found = tensors_of(folder / "cut/checkpoint.safetensors")
    master = struct.unpack("<288f", found["fc.weight.master"])
    assert all(abs(value - wanted) < 1e-6 for value, wanted in zip(master, weights_of_classifier(1)["fc.weight"][1])), master
    assert any(struct.unpack("<6f", found["bn.running_mean"])), "running statistics"
    assert "conv.weight.master" not in found and "conv.weight" in found, found.keys()


def test_untrained(folder):
    """The model as it is can be evaluated, used and drawn."""
    data = write_data(folder / "data")
    (folder / "model.onnx").write_bytes(classifier(ratio=0.0))
    assert 0 <= json.loads(succeed(folder, "eval", "model.onnx", "--data", data, "--json"))["accuracy"] <= 1
    write_npy(folder / "image.npy", [8, 8, 1], [0.25] * 64)
    write_npy(folder / "x.npy", [1, 1, 8, 8], [0.25] * 64)
    answer = json.loads(succeed(folder, "predict", "model.onnx", "image.npy", "--json", "--top", 3))
    succeed(folder, "run", "model.onnx", "x=x.npy", "-o", "y=y.npy")
    expected = struct.unpack("<3f", (folder / "y.npy").read_bytes()[-12:])
    for entry in answer["classes"]:
        assert abs(entry["probability"] - expected[entry["number"]]) < 1e-6, (answer, expected)
    succeed(folder, "graph", "model.onnx", "--out", "model.dot")
    assert "batch_norm" in (folder / "model.dot").read_text()


def test_inputs(folder):
    """Images with channels last in the file, rows of pixels, several channels."""
    data = write_data(folder / "data", channels=3)
    weights = [((i * 5) % 13 - 6) / 48 for i in range(3 * 192)]
    rows = model([node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "b"], ["y"])], [port("x", ["N", 192])],
                 [port("y", ["N", 3])], [tensor("w", [192, 3], weights), tensor("b", [3], [0.0] * 3)])
    last = model([node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]), node("Conv", ["t", "w"], ["c"]),
                  node("GlobalAveragePool", ["c"], ["y"])], [port("x", ["N", 8, 8, 3])], [port("y", ["N", 3, 1, 1])],
                 [tensor("w", [3, 3, 8, 3], weights[:216])])
    for name, made in (("rows", rows), ("last", last), ("three", classifier(channels=3))):
        (folder / "model.onnx").write_bytes(made)
        succeed(folder, "train", "model.onnx", "--data", data, "--epochs", 2, "--batch", 16, "--out", name)
        assert json.loads(succeed(folder, "eval", name, "--json"))["loss"] < 1.2, name


def test_series(folder):
    """An input (n, values, steps): arrays in this order, and never in the other one."""
    weights = [((i * 7) % 11 - 5) / 12 for i in range(60)]
    (folder / "series.onnx").write_bytes(model(
        [node("Conv", ["x", "conv.weight"], ["c"], pads=[2, 2]), node("Relu", ["c"], ["r"]),
         node("GlobalAveragePool", ["r"], ["p"]), node("Flatten", ["p"], ["f"]), node("Gemm", ["f", "fc.weight"], ["y"], transB=1)],
        [port("x", ["N", 3, 16])], [port("y", ["N", 3])],
        [tensor("conv.weight", [4, 3, 5], weights), tensor("fc.weight", [3, 4], weights[:12])]))
    values = [((i * 37) % 101 - 50) / 40 for i in range(24 * 48)]
    for name, shape in (("right", [3, 16]), ("swapped", [16, 3])):
        (folder / name).mkdir()
        for part in ("train", "test"):
            write_npy(folder / name / f"x_{part}.npy", [24, *shape], values)
            write_npy(folder / name / f"y_{part}.npy", [24], [i % 3 for i in range(24)], "<i4", "i")
    succeed(folder, "train", "series.onnx", "--data", "right", "--epochs", 1, "--out", "run")
    words = ("input 'x'", "are 3 and 16", "1 channels, 16 rows and 3 columns")
    refuse(folder, words, "series.onnx", "--data", "swapped")
    assert "are 3 and 16" in run(folder, "eval", "series.onnx", "--data", "swapped").stderr
    # the file says the sizes: no data set is needed
    succeed(folder, "import", "series.onnx", "-o", "series.safetensors")
    succeed(folder, "graph", "series.onnx", "--out", "series.svg")
    write_npy(folder / "one.npy", [3, 16], values[:48])
    write_npy(folder / "batch.npy", [1, 3, 16], values[:48])
    said = json.loads(succeed(folder, "predict", "series.safetensors", "one.npy", "--json", "--top", 3))["classes"]
    succeed(folder, "run", "series.onnx", "x=batch.npy", "-o", "y=y.npy")
    y = struct.unpack("<3f", (folder / "y.npy").read_bytes()[-12:])
    total = sum(math.exp(v) for v in y)
    for row in said:
        assert abs(row["probability"] - math.exp(y[row["number"]]) / total) < 1e-5, (said, y)


def test_weights(folder):
    """A model as text with weights in the layouts of PyTorch trains as the ONNX model with the same weights does."""
    data = write_data(folder / "data", channels=2)
    weights = write_weights(folder / "weights.safetensors", weights_of_classifier(2))
    (folder / "model.onnx").write_bytes(classifier(channels=2, ratio=0.0))
    (folder / "model.txt").write_text("conv: conv 6 window=3 padding.policy=same\nbn: batch_norm epsilon=1e-5\nneuron\n"
                                      "pool\nfc: dense classes\n")
    options = ["--data", data, "--epochs", 2, "--batch", 16, "--dtype", "f64"]
    said = succeed(folder, "train", "model.txt", "--weights", weights, *options, "--out", "text")
    assert "not in the file" not in said and "of no parameter" not in said, said
    succeed(folder, "train", "model.onnx", *options, "--out", "onnx")
    for of_text, of_onnx in zip(losses_of(folder / "text"), losses_of(folder / "onnx")):
        for a, b in zip(of_text, of_onnx):
            assert abs(a - b) < 1e-9 * abs(b), (of_text, of_onnx)
    succeed(folder, "train", "model.onnx", *options, "--weights", "onnx/checkpoint.safetensors", "--out", "again")
    assert losses_of(folder / "again")[0][0] < losses_of(folder / "onnx")[0][0]
    other = weights_of_classifier(2)
    del other["fc.bias"]
    other["extra.weight"] = ([1], [0.0])
    write_weights(folder / "other.safetensors", other)
    said = succeed(folder, "train", "model.onnx", *options, "--weights", "other.safetensors", "--out", "other")
    assert "not in the file: fc.bias" in said and "of no parameter: extra.weight" in said, said
    for name, change, words in (
            ("clash", {"conv.weight": ([6, 3, 3, 2], [0.0] * 108)}, ["conv.weight", "[6, 3, 3, 2]"]),
            ("head", {"fc.bias": ([4], [0.0] * 4)}, ["fc.bias", "head"]),
            ("nan", {"conv.bias": ([6], [float("nan")] * 6)}, ["conv.bias", "finite"]),
            ("integers", {"conv.bias": ([6], ("I64", bytes(48)))}, ["conv.bias", "I64"])):
        write_weights(folder / "bad.safetensors", {**weights_of_classifier(2), **change})
        refuse(folder, words, "model.onnx", "--data", data, "--weights", "bad.safetensors")
    write_weights(folder / "bad.safetensors", {"unknown": ([1], [0.0])})
    refuse(folder, ["no tensor has the name"], "model.onnx", "--data", data, "--weights", "bad.safetensors")
    for content in (b"", weights.read_bytes()[:-8], b"\xff" * 64):
        (folder / "bad.safetensors").write_bytes(content)
        refuse(folder, ["bad.safetensors"], "model.onnx", "--data", data, "--weights", "bad.safetensors")
    refuse(folder, ["missing.safetensors"], "model.onnx", "--data", data, "--weights", "missing.safetensors")


def test_tuning(folder):
    """Frozen parameters keep their bits, rates belong to patterns, and a new head fits the data."""
    data = write_data(folder / "data")
    (folder / "model.onnx").write_bytes(classifier(classes=4))
    first = weights_of_classifier(1, 4)
    options = ["--data", data, "--epochs", 2, "--batch", 16]
    tuning = ["--head", "auto", "--freeze", "conv.*", "--freeze", "bn.*", "--rate", 0.002, "--rate", "fc.b*=0.02",
              "--normalize", "none"]
    succeed(folder, "train", "model.onnx", *options, *tuning, "--out", "whole")
    succeed(folder, "train", "model.onnx", *options, *tuning, "--stop", 1, "--out", "parts")
    (folder / "model.onnx").rename(folder / "moved.onnx")
    succeed(folder, "train", "--resume", "parts/checkpoint.safetensors")
    assert (folder / "whole/checkpoint.safetensors").read_bytes() == (folder / "parts/checkpoint.safetensors").read_bytes()
    made = tensors_of(folder / "whole/checkpoint.safetensors")
    for name in ("bn.weight", "bn.bias", "bn.running_mean", "bn.running_var", "conv.bias"):
        assert made[name] == struct.pack("<6f", *first[name][1]), name
    kernel = struct.unpack("<54f", made["conv.weight"])  # one channel: the order does not matter
    assert kernel == struct.unpack("<54f", struct.pack("<54f", *first["conv.weight"][1]))
    assert shapes_of(folder / "whole/checkpoint.safetensors")["fc.bias"] == [3]
    assert made["fc.bias"] != bytes(12)
    done = run(folder, "train", "--resume", "parts/checkpoint.safetensors", "--epochs", 3, "--freeze", "bn.*")
    assert done.returncode in (1, 2) and "cannot change" in done.stderr, done.stderr
    succeed(folder, "train", "moved.onnx", *options, "--head", 3, "--rate", "fc.*=0", "--out", "still")
    still = tensors_of(folder / "still/checkpoint.safetensors")
    assert still["fc.bias"] == bytes(12) and still["conv.bias"] != bytes(24)
    succeed(folder, "train", "moved.onnx", *options, "--head", "auto", "--micro-batches", 2, "--dtype", "bf16", "--accumulate", 2,
            "--freeze", "bn.running_*", "--out", "micro")
    assert tensors_of(folder / "micro/checkpoint.safetensors")["bn.running_mean"] == bytes(24)
    (folder / "convolution.onnx").write_bytes(model(
        [node("Conv", ["x", "w", "b"], ["c"]), node("Relu", ["c"], ["r"]), node("GlobalAveragePool", ["r"], ["g"]),
         node("Flatten", ["g"], ["f"]), node("Softmax", ["f"], ["y"])], [port("x", ["N", 1, 8, 8])], [port("y", ["N", 5])],
        [tensor("w", [5, 1, 1, 1], [0.5] * 5), tensor("b", [5], [0.0] * 5)]))
    succeed(folder, "train", "convolution.onnx", *options, "--head", "auto", "--out", "convolution")
    (folder / "added.onnx").write_bytes(model(
        [node("Conv", ["x", "w"], ["c"]), node("Add", ["c", "b"], ["z"]), node("Flatten", ["z"], ["y"])],
        [port("x", ["N", 1, 8, 8])], [port("y", ["N", 1])],
        [tensor("w", [1, 1, 8, 8], [0.5] * 64), tensor("b", [1, 1, 1, 1], [0.0])]))
    succeed(folder, "train", "added.onnx", *options, "--head", "auto", "--out", "added")
    assert shapes_of(folder / "added/checkpoint.safetensors")["b"] in ([1, 3, 1, 1], [1, 1, 1, 3])
    (folder / "text.txt").write_text("bn: batch_norm\nfc: dense classes\n")
    succeed(folder, "train", "text.txt", *options, "--freeze", "bn.*", "--out", "text")
    assert tensors_of(folder / "text/checkpoint.safetensors")["bn.mean"] == bytes(4)


def test_end(folder):
    """A softmax is left out also before a change of shape, but not one of another dimension."""
    data = write_data(folder / "data")
    ends = {"behind": [node("Flatten", ["g"], ["f"]), node("Softmax", ["f"], ["y"])],
            "before": [node("Softmax", ["g"], ["s"], axis=1), node("Flatten", ["s"], ["y"])],
            "batch": [node("Flatten", ["g"], ["f"]), node("Softmax", ["f"], ["y"], axis=0)]}
    weights = {}
    for name, nodes in ends.items():
        (folder / f"{name}.onnx").write_bytes(model(
            [node("Conv", ["x", "w", "b"], ["c"]), node("GlobalAveragePool", ["c"], ["g"]), *nodes],
            [port("x", ["N", 1, 8, 8])], [port("y", ["N", 3])],
            [tensor("w", [3, 1, 3, 3], [(i % 7 - 3) / 8 for i in range(27)]), tensor("b", [3], [0.0] * 3)]))
        succeed(folder, "train", f"{name}.onnx", "--data", data, "--epochs", 1, "--batch", 16, "--out", name)
        weights[name] = tensors_of(folder / name / "checkpoint.safetensors")["w"]
    assert weights["before"] == weights["behind"] != weights["batch"]


def test_training_mode(folder):
    """A model that was exported in training mode trains, is used and exported as any other."""
    data = write_data(folder / "data")
    figures = {}
    for name, mode in (("plain", False), ("mode", True)):
        (folder / f"{name}.onnx").write_bytes(classifier(mode=mode))
        succeed(folder, "train", f"{name}.onnx", "--data", data, "--epochs", 2, "--batch", 16, "--rate", 0.01, "--out", name)
        succeed(folder, "export", f"{name}/checkpoint.safetensors", "-o", f"{name}-out.onnx")
        weights = tensors_of(folder / name / "checkpoint.safetensors")
        figures[name] = (weights["bn.running_mean"], weights["fc.weight"], succeed(folder, "eval", name, "--json"))
    assert figures["plain"][:2] == figures["mode"][:2]
    plain, mode = (json.loads(figures[name][2]) for name in ("plain", "mode"))
    assert (plain["accuracy"], plain["loss"]) == (mode["accuracy"], mode["loss"]), (plain, mode)
    assert b"training_mode" in (folder / "mode.onnx").read_bytes()
    assert b"training_mode" not in (folder / "mode-out.onnx").read_bytes()
    write_npy(folder / "x.npy", [2, 1, 8, 8], [float(i % 5) for i in range(128)])
    for name in ("plain", "mode"):
        succeed(folder, "run", f"{name}-out.onnx", "x=x.npy", "-o", f"y={name}.npy")
    assert (folder / "plain.npy").read_bytes() == (folder / "mode.npy").read_bytes()


def test_names(folder):
    """Parameters may have names that training uses itself; the bits are those of other names."""
    data = write_data(folder / "data")
    figures = {}
    for kind, names in (("other", [f"p{i}" for i in range(10)]), ("own", OWN_NAMES)):
        (folder / f"{kind}.onnx").write_bytes(named_classifier(names))
        options = ["--data", data, "--epochs", 2, "--batch", 16, "--rate", 0.01, "--rate", f"{names[7]}=0.02"]
        for number, more in enumerate(([], ["--accumulate", 2, "--dtype", "bf16"], ["--micro-batches", 2, "--optimizer", "sgd"])):
            run_name = f"{kind}{number}"
            succeed(folder, "train", f"{kind}.onnx", *options, *more, "--stop", 1, "--out", run_name)
            succeed(folder, "train", "--resume", f"{run_name}/checkpoint.safetensors")
            found = tensors_of(folder / run_name / "checkpoint.safetensors")
            figures[run_name] = (losses_of(folder / run_name), [found[name] for name in names])
            succeed(folder, "eval", run_name)
        succeed(folder, "graph", f"{kind}.onnx", "--out", f"{kind}.dot")
        for number, more in enumerate(([], ["--opset", 13], ["--opset", 17, "--fold-batch-norm"])):
            succeed(folder, "export", f"{kind}0", *more, "-o", f"{kind}-out.onnx")
            write_npy(folder / "x.npy", [2, 1, 8, 8], [float(i % 5) for i in range(128)])
            succeed(folder, "run", f"{kind}-out.onnx", "x=x.npy", "-o", f"y={kind}.npy")
            figures[f"{kind} out {number}"] = (folder / f"{kind}.npy").read_bytes()
        succeed(folder, "export", f"{kind}0", "--gradient", "-o", f"{kind}-gradient.onnx")
    for name in list(figures):
        if name.startswith("own"):
            assert figures[name] == figures[name.replace("own", "other")], name


def test_bad_tuning(folder):
    data = write_data(folder / "data")
    (folder / "model.onnx").write_bytes(classifier())
    (folder / "sum.onnx").write_bytes(model([node("GlobalAveragePool", ["x"], ["g"]), node("Mul", ["g", "w"], ["y"])],
                                            [port("x", ["N", 1, 8, 8])], [port("y", ["N", 3, 1, 1])],
                                            [tensor("w", [1, 3, 1, 1], [1.0] * 3)]))
    for options, words in ((["--freeze", "none*"], ["none*", "no parameter"]), (["--freeze", ","], ["empty pattern"]),
                           (["--freeze", ""], ["--freeze needs a pattern"]),
                           (["--freeze", "*"], ["no parameters"]), (["--rate", "fc.*=fast"], ["PATTERN=NUMBER"]),
                           (["--rate", "nothing=1"], ["nothing", "no parameter"]), (["--head", "many"], ["--head"]),
                           (["--head", 4], ["4", "3 classes"]), (["--normalize", "imagenet"], ["3 channels"]),
                           (["--normalize", "some"], ["normalize"]), (["--freeze", "x" * 2000], ["longer"])):
        refuse(folder, words, "model.onnx", "--data", data, *options)
    refuse(folder, ["no last layer", "'y' (Mul)"], "sum.onnx", "--data", data, "--head", "auto")
    (folder / "shared.onnx").write_bytes(model(
        [node("Flatten", ["x"], ["f"]), node("MatMul", ["f", "v"], ["g"]), node("Add", ["g", "b"], ["h"]),
         node("MatMul", ["h", "w"], ["z"]), node("Add", ["z", "b"], ["y"])], [port("x", ["N", 1, 8, 8])], [port("y", ["N", 3])],
        [tensor("v", [64, 3], [0.5] * 192), tensor("w", [3, 3], [0.5] * 9), tensor("b", [3], [0.0] * 3)]))
    refuse(folder, ["'b' is shared"], "shared.onnx", "--data", data, "--head", 3)


def test_refused(folder):
    data = write_data(folder / "data")
    (folder / "good.onnx").write_bytes(classifier())
    (folder / "four.onnx").write_bytes(classifier(classes=4))
    (folder / "large.onnx").write_bytes(classifier(size=16))
    (folder / "color.onnx").write_bytes(classifier(channels=3))
    (folder / "cut.onnx").write_bytes(classifier()[:-40])
    (folder / "text.onnx").write_text("conv 8\n")
    (folder / "two.onnx").write_bytes(model([node("Add", ["a", "b"], ["y"])],
                                            [port("a", ["N", 3]), port("b", ["N", 3])], [port("y", ["N", 3])]))
    (folder / "none.onnx").write_bytes(model([node("GlobalAveragePool", ["x"], ["y"])], [port("x", ["N", 1, 8, 8])],
                                             [port("y", ["N", 1, 1, 1])]))
    (folder / "constant.onnx").write_bytes(model([node("Identity", ["w"], ["y"])], [port("x", ["N", 1, 8, 8])],
                                                 [port("y", ["N", 3])], [tensor("w", [1, 3], [1.0] * 3)]))
    for name, words in (("four", ["f32[1, 4]", "3 classes", "--head"]), ("large", ["16x16", "8 x 8"]), ("color", ["3 channels"]),
                        ("cut", ["cut.onnx"]), ("text", ["text.onnx"]), ("two", ["2 inputs"]), ("missing", ["missing.onnx"]),
                        ("none", ["no parameters"]), ("constant", ["constant"])):
        refuse(folder, words, f"{name}.onnx", "--data", data)
    write_npy(folder / "image.npy", [8, 8, 1], [0.5] * 64)
    write_npy(folder / "a.npy", [2, 3], [0.5] * 6)
    for words, arguments in (
            (["2 inputs: 'a', 'b'"], ("predict", "two.onnx", "image.npy")),
            (["2 inputs: 'a', 'b'"], ("import", "two.onnx", "-o", "two.safetensors")),
            (["input 'b' is missing: add b=FILE"], ("run", "two.onnx", "a=a.npy", "-o", "y=y.npy"))):
        done = run(folder, *arguments)
        assert done.returncode in (1, 2) and done.stderr.count("\n") == 1, done.stderr
        assert all(word in done.stderr for word in words), done.stderr
    refuse(folder, ["unexpected"], "good.onnx", "more.onnx", "--data", data)
    for arguments in (("eval", "good.onnx"), ("predict", "good.onnx", "none.png"), ("predict", "cut.onnx", "none.png"),
                      ("graph", "two.onnx")):
        done = run(folder, *arguments)
        assert done.returncode in (1, 2) and done.stderr.count("\n") == 1, (arguments, done.stderr)


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                test(pathlib.Path(folder))


main()
