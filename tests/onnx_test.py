#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""`retrograde run` on ONNX models: results, gradients, names, external data, and files that lie.

usage: onnx_test.py PROGRAM
"""
import os
import pathlib
import struct
import tempfile

from onnx_made import (INT64, attribute, external, field, model, network, node, port, samples, tensor)
from onnx_run import read_npy, run, succeed, write_npy


def refuse(folder, data, words, inputs=("x=x.npy",)):
    """The model is refused with a sentence that has these words, and nothing is written."""
    (folder / "bad.onnx").write_bytes(data)
    out = folder / "never.npy"
    done = run(folder / "bad.onnx", *[text.replace("=", f"={folder}/") for text in inputs], "-o", f"y={out}")
    assert done.returncode in (1, 2) and not out.exists(), (words, done.returncode, done.stderr)
    assert done.stderr.startswith("retrograde: ") and done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr, (word, done.stderr)


# ---- the network of onnx_made, in plain loops ----

WEIGHTS = [((i * 7) % 11 - 5) / 8 for i in range(54)]
DENSE = [((i * 5) % 13 - 6) / 16 for i in range(36)]
BIAS = [0.5, -0.25, 0.125]


def forward(x, weights=tuple(WEIGHTS)):
    """y of one image, 32 numbers in the order (c, h, w)."""
    conv = []
    for o in range(3):
        for i in range(4):
            for j in range(4):
                total = BIAS[o]
                for c in range(2):
                    for p in range(3):
                        for q in range(3):
                            r, s = i + p - 1, j + q - 1
                            if 0 <= r < 4 and 0 <= s < 4:
                                total += weights[((o * 2 + c) * 3 + p) * 3 + q] * x[(c * 4 + r) * 4 + s]
                conv.append(max(total, 0.0))
    pooled = [max(conv[(o * 4 + 2 * i + a) * 4 + 2 * j + b] for a in (0, 1) for b in (0, 1))
              for o in range(3) for i in range(2) for j in range(2)]
    return [sum(DENSE[o * 12 + k] * pooled[k] for k in range(12)) + float(o) for o in range(3)]


def images(count):
    return [((i * 37) % 101 - 50) / 40 for i in range(32 * count)]


def close(got, wanted, tolerance):
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert abs(a - b) <= tolerance * max(1, abs(b)), (got, wanted)


def test_forward(folder):
    path = folder / "network.onnx"
    path.write_bytes(network())
    for count in (1, 3):
        x = images(count)
        write_npy(folder / "x.npy", [count, 2, 4, 4], x)
        succeed(path, f"x={folder}/x.npy", "-o", f"y={folder}/y.npy")
        shape, y = read_npy(folder / "y.npy")
        assert shape == (count, 3)
        close(y, [value for n in range(count) for value in forward(x[32 * n:32 * n + 32])], 1e-6)


def test_gradient(folder):
    """Gradients of weights and images, in the order of the file, against differences."""
    path, x, dy = folder / "network.onnx", images(1), [1.0, -2.0, 0.5]
    path.write_bytes(network())
    write_npy(folder / "x.npy", [1, 2, 4, 4], x, "d")
    write_npy(folder / "dy.npy", [1, 3], dy, "d")
    succeed(path, f"x={folder}/x.npy", "--dtype", "f64", "--gradient", f"y={folder}/dy.npy",
            "-o", f"w={folder}/dw.npy", "-o", f"x={folder}/dx.npy", "-o", f"y={folder}/y.npy",
            "-o", folder / "all.safetensors")
    shape, dw = read_npy(folder / "dw.npy")
    assert shape == (3, 2, 3, 3)
    objective = lambda x, w: sum(a * b for a, b in zip(dy, forward(x, w)))
    step = 1e-6
    wanted = []
    for k in range(54):
        up, down = list(WEIGHTS), list(WEIGHTS)
        up[k] += step
        down[k] -= step
        wanted.append((objective(x, up) - objective(x, down)) / (2 * step))
    close(dw, wanted, 1e-7)
    assert max(map(abs, dw)) > 0.1
    shape, dx = read_npy(folder / "dx.npy")
    assert shape == (1, 2, 4, 4)
    for k in (0, 5, 18, 31):
        up, down = list(x), list(x)
        up[k] += step
        down[k] -= step
        assert abs(dx[k] - (objective(up, WEIGHTS) - objective(down, WEIGHTS)) / (2 * step)) < 1e-7
    header = (folder / "all.safetensors").read_bytes()
    length = struct.unpack("<Q", header[:8])[0]
    for name in ("w", "b", "d", "e"):
        assert f'"{name}"'.encode() in header[8:8 + length]
    assert b'"zero"' not in header[8:8 + length]


def test_samples(folder):
    """All samples run."""
    write_npy(folder / "x.npy", [2, 3, 4, 4], [((i * 29) % 61 - 30) / 20 for i in range(96)])
    for name, data in samples().items():
        if name != "network":
            (folder / "sample.onnx").write_bytes(data)
            succeed(folder / "sample.onnx", f"x={folder}/x.npy", "-o", f"y={folder}/y.npy")


def test_layouts(folder):
    """A transpose and a constant of fewer dimensions meet channels last."""
    write_npy(folder / "x.npy", [1, 2, 1, 3], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    nodes = [node("MaxPool", ["x"], ["p"], kernel_shape=[1, 1]), node("Add", ["p", "k"], ["a"]),
             node("Transpose", ["a"], ["t"], perm=[0, 3, 1, 2]), node("Flatten", ["t"], ["y"])]
    (folder / "layout.onnx").write_bytes(model(nodes, [port("x", [1, 2, 1, 3])], [port("y", [1, 6])],
                                               [tensor("k", [2, 1, 1], [10.0, 20.0])]))
    succeed(folder / "layout.onnx", f"x={folder}/x.npy", "-o", f"y={folder}/y.npy")
    assert read_npy(folder / "y.npy") == ((1, 6), (11.0, 24.0, 12.0, 25.0, 13.0, 26.0))


def test_old_pad(folder):
    """Operator sets before 11 have the value that is padded as an attribute."""
    write_npy(folder / "x.npy", [1, 2], [1.0, 2.0])
    (folder / "pad.onnx").write_bytes(model([node("Pad", ["x"], ["y"], pads=[0, 1, 0, 0], value=0.5)],
                                            [port("x", [1, 2])], [port("y", [1, 3])], opset=9))
    succeed(folder / "pad.onnx", f"x={folder}/x.npy", "-o", f"y={folder}/y.npy")
    assert read_npy(folder / "y.npy") == ((1, 3), (0.5, 1.0, 2.0))


def test_external(folder):
    write_npy(folder / "x.npy", [1, 2], [1.0, 2.0])
    data = struct.pack("<3f", 9.0, 10.0, 20.0)
    (folder / "data").mkdir()
    (folder / "data" / "w.bin").write_bytes(data)
    os.symlink("w.bin", folder / "data" / "link.bin")
    os.symlink("data", folder / "folder")
    os.link(folder / "data" / "w.bin", folder / "hard.bin")
    (folder / "plain.bin").write_bytes(data)

    def made(*arguments):
        return model([node("Add", ["x", "w"], ["y"])], [port("x", [1, 2])], [port("y", [1, 2])],
                     [external("w", [2], *arguments)])

    (folder / "good.onnx").write_bytes(made("plain.bin", 4, 8))
    succeed(folder / "good.onnx", f"x={folder}/x.npy", "-o", f"y={folder}/y.npy")
    assert read_npy(folder / "y.npy")[1] == (11.0, 22.0)
    for arguments, words in (
            (("../../etc/passwd",), "leaves the model's folder"), (("data/../../x",), "leaves the model's folder"),
            (("/etc/passwd",), "absolute"), (("data/link.bin", 4), "links are not followed"),
            (("folder/w.bin", 4), "cannot be opened"), (("hard.bin", 4), "several names"), (("data",), "regular file"),
            (("plain.bin", 8), "ends before"), (("plain.bin", 1 << 62), "ends before"),
            (("plain.bin", 4, 4), "4 bytes"), (("plain.bin", -4), "not a number"), (("none.bin",), "cannot be opened"),
            (("",), "no location")):
        refuse(folder, made(*arguments), ["'w'", words])


def test_bad(folder):
    """Truncated, overlong, cyclic, wrong types, sizes that lie, nesting: one sentence each."""
    write_npy(folder / "x.npy", [2, 3], [1.0] * 6)
    x, y = [port("x", [2, 3])], [port("y", [2, 3])]
    whole = network()
    for size in range(0, len(whole), 13):
        refuse(folder, whole[:size], [])
    one = lambda nodes, tensors=(), **more: model(nodes, x, y, tensors, **more)
    cases = (
        (b"not a model at all", []),
        (one([node("Relu", ["x"], ["y"])], opset=6), ["operator set 6"]),
        (one([node("Relu", ["x"], ["y"])], opset=99), ["operator set 99"]),
        (one([node("Loop", ["x"], ["a"]), node("Relu", ["a"], ["b"]), node("Unique", ["b"], ["y"], name="n7")]),
         ["not covered", "Loop", "Unique", "n7"]),
        (one([node("Relu", ["b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["y"])]), ["'b'", "Relu"]),
        (one([node("Relu", ["y"], ["y"])]), ["'y'"]),
        (one([node("Relu", ["x"], ["y"]), node("Relu", ["x"], ["y"])]), ["made twice"]),
        (one([node("Relu", ["x"], ["x"])]), ["made twice"]),
        (one([node("Relu", ["x"], ["z"])]), ["output 'y'"]),
        (one([node("Softmax", ["x"], ["y"], axis=5)]), ["axis", "5", "Softmax"]),
        (one([node("Softmax", ["x"], ["y"], axis="one")]), ["axis", "integer"]),
        (one([node("Relu", ["x"], ["y"], slope=1.0)]), ["slope"]),
        (one([node("Transpose", ["x"], ["y"], perm=[0, 0])]), ["perm"]),
        (one([node("Transpose", ["x"], ["y"], perm=[0, -1])]), ["perm"]),
        (one([node("Add", ["x"], ["y"])]), ["input 1"]),
        (one([node("Add", ["x", "k"], ["y"])], [tensor("k", [4], [1.0] * 4)]), ["Add"]),
        (one([node("Add", ["x", "k"], ["y"])], [tensor("k", [3], b"\0" * 8)]), ["'k'", "8 bytes", "12"]),
        (one([node("Add", ["x", "k"], ["y"])], [tensor("k", [3], [1.0] * 2, raw=False)]), ["'k'"]),
        (one([node("Add", ["x", "k"], ["y"])], [tensor("k", [1 << 40, 1 << 40], b"")]), ["'k'", "memory"]),
        (one([node("Add", ["x", "k"], ["y"])], [tensor("k", [-3], b"")]), ["'k'", "negative"]),
        (one([node("Add", ["x", "k"], ["y"])], [tensor("k", [1] * 9, [1.0])]), ["'k'", "dimensions"]),
        (one([node("Add", ["x", "k"], ["y"])], [tensor("k", [3], b"\0" * 3, 2)]), ["Add"]),
        (one([node("Add", ["x", "k"], ["y"])], [tensor("k", [1], [1.0]), tensor("k", [1], [1.0])]), ["two init"]),
        (one([node("Reshape", ["x", "s"], ["y"])], [tensor("s", [2], [4, -1], INT64)]), ["Reshape", "6 elements"]),
        (one([node("Reshape", ["x", "s"], ["y"])], [tensor("s", [2], [-1, -1], INT64)]), ["Reshape", "shape"]),
        (one([node("Reshape", ["x", "s"], ["y"])], [tensor("s", [2], [1 << 62, 1 << 62], INT64)]), ["Reshape"]),
        (one([node("ConstantOfShape", ["s"], ["c"]), node("Add", ["x", "c"], ["y"])],
             [tensor("s", [3], [0, 1 << 62, 1 << 62], INT64)]), ["memory"]),
        (one([node("Gather", ["s", "i"], ["y"])], [tensor("s", [1], [4], INT64), tensor("i", [1], [9], INT64)]),
         ["index 9"]),
        (one([node("Conv", ["x", "k"], ["y"])], [tensor("k", [1, 1, 1, 1], [1.0])]), ["Conv"]),
        (one([node("Relu", ["x"], ["y"], domain="com.example")]), ["not covered: com.example.Relu (node 'y')"]),
        (one([node("MyConv", ["x"], ["a"]), node("Conv", ["x", "k"], ["y"], kernel_shape=[1, 1, 1])],
             [tensor("k", [1, 1, 1, 1, 1], [1.0])]), ["MyConv (node 'a'); Conv (node 'y'"]),
        (one([node("Sin", ["x"], ["y"], name="a\n\x1b[31mb\x9bc")]), ["Sin (node 'a??[31mb??c')"]),
        (one([node("Reshape", ["x", "s"], ["i"]), node("LpPool", ["i"], ["a", "y"], kernel_shape=[2, 2], p=3)],
             [tensor("s", [4], [1, 1, 2, 3], INT64)]), ["'y'"]),  # the second output was read out of bounds
        (field(7, field(7, b"")), []),
        (field(8, field(2, 13)) + field(7, field(1, field(5, attribute("a" * 9, 1)) * 300)), ["300 attributes"]),
    )
    for data, words in cases:
        refuse(folder, data, words)
    nested = b""
    for _ in range(2000):  # subgraphs within subgraphs
        nested = field(6, field(1, field(4, "If") + field(5, field(1, "then_branch") + nested + field(20, 5))))
    refuse(folder, one([node("Relu", ["x"], ["y"])]), ["no input 'z'", "x"], ["x=x.npy", "z=x.npy"])
    refuse(folder, one([node("If", ["x"], ["y"]) + field(5, field(1, "then_branch") + nested + field(20, 5))]), ["If"])


def test_arguments(folder):
    path = folder / "network.onnx"
    path.write_bytes(network())
    write_npy(folder / "x.npy", [1, 2, 4, 4], images(1))
    good = f"x={folder}/x.npy"
    for arguments, words in (((path, good), "no result"), ((path, good, "-o", "z=z.npy"), "'z'"),
                             ((path, "-o", "y=y.npy"), "'x'"), ((path, good, good, "-o", "y=y.npy"), "twice"),
                             ((path, good, "-o", "all.safetensors"), "--gradient"), ((), "model"),
                             ((path, good, "-o", "y=y.npy", "--dtype", "i8"), "--dtype"),
                             ((folder / "none.onnx", good, "-o", "y=y.npy"), "none.onnx"),
                             ((path, good, "--gradient", good, "-o", "w=w.npy"), "'x'")):
        done = run(*arguments)
        assert done.returncode in (1, 2) and words in done.stderr, (arguments, done.stderr)
        assert done.stderr.count("\n") == 1, done.stderr


def test_model_text(folder):
    """Models as text have gradients, too."""
    (folder / "model.txt").write_text("dense classes\n")
    write_npy(folder / "images.npy", [2, 2, 2, 1], [0.5, 1.0, -1.0, 2.0, 1.0, 0.0, 3.0, -0.5])
    write_npy(folder / "dy.npy", [2, 1, 1, 3], [1.0, 0.0, 0.0, 0.0, 2.0, 0.0])
    succeed(folder / "model.txt", f"images={folder}/images.npy", "--classes", 3, "--gradient",
            f"logits={folder}/dy.npy", "-o", f"logits={folder}/y.npy", "-o", f"dense1.w={folder}/dw.npy")
    shape, dw = read_npy(folder / "dw.npy")
    assert shape == (3, 2, 2, 1) and dw == (0.5, 1.0, -1.0, 2.0, 2.0, 0.0, 6.0, -1.0, 0.0, 0.0, 0.0, 0.0), dw


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                test(pathlib.Path(folder))


main()
