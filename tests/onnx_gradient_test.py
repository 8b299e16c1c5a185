#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Operators of ONNX models: gradients of `retrograde run` against differences of its results, in f64, and results where
a formula in Python says what they are.

usage: onnx_gradient_test.py PROGRAM
"""
import math
import pathlib
import struct
import tempfile

from onnx_made import INT64, model, node, port, tensor
from onnx_run import read_npy, run, succeed, write_npy

BATCH = 3
HALF = math.sqrt(0.5)


def numbers(count, scale=1.0, seed=0):
    """Numbers between -1.4 and 1.4 that are far from each other and from 0."""
    return [scale * (((i + seed) * 61 % 97) - 48.3) / 34 for i in range(count)]


def floats(name, *values):
    return tensor(name, [len(values)] if len(values) > 1 else [], values)


def ints(name, *values):
    return tensor(name, [len(values)], values, INT64)


def gelu(kind):
    """Gelu by Erf, its factors in different orders."""
    half, one, root = floats("half", 0.5), floats("one", 1.0), floats("root", math.sqrt(2))
    start = [node("Div", ["x", "root"], ["u"]) if kind % 2 else node("Mul", ["x", "root"], ["u"]),
             node("Erf", ["u"], ["e"])]
    if kind % 2 == 0:
        root = floats("root", HALF)
    ends = {1: [node("Add", ["e", "one"], ["a"]), node("Mul", ["x", "a"], ["b"]), node("Mul", ["b", "half"], ["y"])],
            2: [node("Add", ["one", "e"], ["a"]), node("Mul", ["half", "x"], ["b"]), node("Mul", ["b", "a"], ["y"])],
            3: [node("Add", ["e", "one"], ["a"]), node("Mul", ["a", "half"], ["b"]), node("Mul", ["x", "b"], ["y"])],
            4: [node("Mul", ["e", "half"], ["a"]), node("Add", ["a", "half"], ["b"]), node("Mul", ["b", "x"], ["y"])]}
    return start + ends[kind], [half, one, root]


def elements(*nodes, tensors=(), formula=None):
    return (2, 3), list(nodes), list(tensors), formula


GELU = lambda v: v * (1 + math.erf(v * HALF)) / 2
IMAGE = (2, 5, 4)

# Dimensions of x after the batch, nodes, initializers, and a formula of one element or None.
CASES = {
    **{f"gelu by erf {kind}": elements(*gelu(kind)[0], tensors=gelu(kind)[1], formula=GELU) for kind in (1, 2, 3, 4)},
    "max of a number": elements(node("Max", ["x", "k"], ["y"]), tensors=[floats("k", 0.25)],
                                formula=lambda v: max(v, 0.25)),
    "min of three": elements(node("Neg", ["x"], ["a"]), node("Min", ["a", "x", "k"], ["y"]),
                             tensors=[tensor("k", [3], [-0.5, 0.1, 0.6])]),
    "max of images": (IMAGE, [node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2]), node("Max", ["k", "p"], ["y"])],
                      [tensor("k", [2, 1, 1], [0.2, 0.6])], None),
    "threshold": elements(node("ThresholdedRelu", ["x"], ["y"], alpha=0.5), formula=lambda v: v if v > 0.5 else 0.0),
    "bounds": elements(node("Clip", ["x", "", "k"], ["y"]), tensors=[floats("k", 0.3)], formula=lambda v: min(v, 0.3)),
    "power of integers": elements(node("Pow", ["x", "k"], ["y"]), tensors=[ints("k", 3)], formula=lambda v: v ** 3),
    "numbers": elements(node("Mul", ["x", "k"], ["a"]), node("Div", ["a", "l"], ["y"]),
                        tensors=[floats("k", 0.5), floats("l", 3.0)], formula=lambda v: v / 6),
    "where of a constant": elements(node("Where", ["c", "x", "k"], ["y"]),
                                    tensors=[tensor("c", [2, 1], b"\1\0", 9), floats("k", -math.inf)]),
    "where of values": elements(node("Greater", ["x", "k"], ["c"]), node("Exp", ["x"], ["a"]),
                                node("Where", ["c", "a", "x"], ["y"]), tensors=[floats("k", 0.1)],
                                formula=lambda v: math.exp(v) if v > 0.1 else v),
    "scatter": elements(node("ScatterND", ["k", "i", "u"], ["a"]), node("Mul", ["x", "a"], ["y"]),
                        tensors=[tensor("k", [3], [0.5, 1.5, 2.5]), tensor("i", [1, 1], [1], INT64),
                                 tensor("u", [1], [4.0])]),
    "logic": elements(node("Less", ["x", "k"], ["a"]), node("Greater", ["x", "l"], ["b"]), node("Or", ["a", "b"], ["c"]),
                      node("Not", ["c"], ["d"]), node("Cast", ["d"], ["e"], to=1), node("Mul", ["x", "e"], ["y"]),
                      tensors=[floats("k", -0.5), floats("l", 0.5)], formula=lambda v: v if -0.5 <= v <= 0.5 else 0.0),
    "sign": elements(node("Sign", ["x"], ["a"]), node("Mul", ["x", "a"], ["y"]), formula=abs),
    "expand": ((3, 1), [node("Expand", ["x", "s"], ["y"])], [ints("s", 1, 1, 4)], None),
    "expand to the batch": ((2, 3), [node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"]),
                                     node("Concat", ["n", "one", "one"], ["t"], axis=0), node("Expand", ["k", "t"], ["e"]),
                                     node("Concat", ["e", "x"], ["y"], axis=1)],
                            [ints("zero", 0), ints("one", 1), tensor("k", [1, 1, 3], [0.1, 0.2, 0.3])],
                            None),
    "tile": ((2, 3), [node("Tile", ["x", "r"], ["y"])], [ints("r", 1, 3, 2)], None),
    "gather one": ((4, 3), [node("Gather", ["x", "i"], ["y"], axis=1)], [tensor("i", [], [2], INT64)], None),
    "gather some": ((4, 3), [node("Gather", ["x", "i"], ["y"], axis=1)], [tensor("i", [2, 3], [3, 0, -1, 1, 1, 2], INT64)],
                    None),
    "gather rows": ((70,), [node("Gather", ["k", "i"], ["a"]), node("MatMul", ["x", "a"], ["y"])],
                    [tensor("k", [5, 2], numbers(10)), ints("i", *[(7 * i * i) % 5 for i in range(70)])], None),
    "gather many rows": ((400,), [node("Gather", ["k", "i"], ["a"]), node("MatMul", ["x", "a"], ["y"])],
                         [tensor("k", [300, 2], numbers(600)), ints("i", *[(7 * i * i) % 300 for i in range(400)])], None),
    "backwards": ((5, 2), [node("Slice", ["x", "s", "e", "a", "t"], ["y"])],
                  [ints("s", -1), ints("e", -100), ints("a", 1), ints("t", -2)], None),
    "depth to space": ((8, 2, 3), [node("DepthToSpace", ["x"], ["y"], blocksize=2)], [], None),
    "depth to space, crd": ((8, 2, 3), [node("DepthToSpace", ["x"], ["y"], blocksize=2, mode="CRD")], [], None),
    "space to depth": ((2, 4, 6), [node("SpaceToDepth", ["x"], ["y"], blocksize=2)], [], None),
    "product with a vector": ((2, 3), [node("MatMul", ["x", "v"], ["a"]), node("MatMul", ["a", "w"], ["y"])],
                              [tensor("v", [3], [0.5, -1.0, 2.0]), tensor("w", [2], [1.5, 0.75])], None),
    "counting": ((5,), [node("ConstantOfShape", ["s"], ["a"], value=tensor("v", [1], [1], INT64)), node("NonZero", ["a"], ["b"]),
                        node("Squeeze", ["b", "zero"], ["c"]), node("Cast", ["c"], ["d"], to=1), node("Mul", ["x", "d"], ["y"])],
                 [ints("s", 5), ints("zero", 0)], None),
    "one pixel": (IMAGE, [node("Resize", ["x", "", "s"], ["y"], mode="linear",
                               coordinate_transformation_mode="pytorch_half_pixel")],
                  [tensor("s", [4], [1.0, 1.0, 0.2, 0.5])], None),
    "corners": (IMAGE, [node("Resize", ["x", "", "s"], ["y"], mode="linear",
                             coordinate_transformation_mode="align_corners")],
                [tensor("s", [4], [1.0, 1.0, 0.5, 1.3])], None),
    "scales that are joined": (IMAGE, [node("Unsqueeze", ["q", "zero"], ["r"]), node("Concat", ["p", "r", "r"], ["s"], axis=0),
                                       node("Resize", ["x", "", "s"], ["y"])],
                               [floats("p", 1.0, 1.0), tensor("q", [], [2.0]), ints("zero", 0)], None),
    "norm of windows": (IMAGE, [node("LpPool", ["x"], ["y"], kernel_shape=[2, 3], p=3, pads=[1, 0, 0, 1])], [], None),
    "norm of images": (IMAGE, [node("GlobalLpPool", ["x"], ["y"], p=3)], [], None),
}
for kind in ("L1", "L2", "LogSumExp", "SumSquare", "Prod", "Max", "Mean"):
    CASES["Reduce" + kind] = (IMAGE, [node("MaxPool", ["x"], ["p"], kernel_shape=[1, 1]),
                                      node("Reduce" + kind, ["p"], ["y"], axes=[1, 3], keepdims=0)], [], None)
CASES["ReduceLogSum"] = (IMAGE, [node("Exp", ["x"], ["p"]), node("ReduceLogSum", ["p"], ["y"], axes=[-1])], [], None)


def check_case(folder, dims, nodes, tensors, formula):
    count = BATCH * math.prod(dims)
    x, direction = numbers(count), numbers(count, 1.0, 31)
    path, given = folder / "case.onnx", f"x={folder}/x.npy"
    path.write_bytes(model(nodes, [port("x", ["n", *dims])], [port("y", [])], tensors))

    def forward(step):
        write_npy(folder / "x.npy", [BATCH, *dims], [a + step * b for a, b in zip(x, direction)], "d")
        succeed(path, given, "--dtype", "f64", "-o", f"y={folder}/y.npy")
        return read_npy(folder / "y.npy")

    shape, y = forward(0)
    if formula:
        assert all(abs(a - formula(b)) <= 1e-6 * max(1, abs(a)) for a, b in zip(y, x)), (y, [formula(b) for b in x])
    dy = numbers(len(y), 1.0, 7)
    write_npy(folder / "dy.npy", shape, dy, "d")
    succeed(path, given, "--dtype", "f64", "--gradient", f"y={folder}/dy.npy", "-o", f"x={folder}/dx.npy")
    slope = sum(a * b for a, b in zip(read_npy(folder / "dx.npy")[1], direction))
    step = 1e-6
    up, down = forward(step)[1], forward(-step)[1]
    wanted = sum(g * (a - b) if a != b else 0 for g, a, b in zip(dy, up, down)) / (2 * step)
    assert abs(slope - wanted) <= 1e-7 * max(1, abs(wanted)), (slope, wanted)


def check_losses(folder):
    """Class weights and labels that are ignored, against the definition."""
    scores, labels, weights = numbers(12), [2, 0, 1], [0.5, 2.0, 1.25, 1.0]
    write_npy(folder / "x.npy", [3, 4], scores, "d")
    write_npy(folder / "t.npy", [3], labels, "q")
    for reduction in ("mean", "sum", "none"):
        for ignored in (None, 0):
            more = {} if ignored is None else {"ignore_index": ignored}
            (folder / "loss.onnx").write_bytes(
                model([node("SoftmaxCrossEntropyLoss", ["x", "t", "w"], ["y", "log"], reduction=reduction, **more)],
                      [port("x", ["n", 4]), port("t", ["n"], INT64)], [port("y", []), port("log", ["n", 4])],
                      [tensor("w", [4], weights)]))
            succeed(folder / "loss.onnx", f"x={folder}/x.npy", f"t={folder}/t.npy", "--dtype", "f64",
                    "-o", f"y={folder}/y.npy", "-o", f"log={folder}/log.npy")
            rows = [scores[4 * n:4 * n + 4] for n in range(3)]
            logs = [[v - math.log(sum(map(math.exp, row))) for v in row] for row in rows]
            used = [0.0 if label == ignored else weights[label] for label in labels]
            each = [-w * row[label] for w, row, label in zip(used, logs, labels)]
            wanted = each if reduction == "none" else [sum(each) / (sum(used) if reduction == "mean" else 1)]
            got = read_npy(folder / "y.npy")[1] + read_npy(folder / "log.npy")[1]
            assert all(abs(a - b) < 1e-12 for a, b in zip(got, wanted + sum(logs, []))), (reduction, ignored, got)


def check_ties(folder):
    """Both operands of a maximum have half of the gradient where they are equal, as in PyTorch."""
    write_npy(folder / "x.npy", [1, 3], [1.0, 2.0, 3.0])
    write_npy(folder / "dy.npy", [1, 3], [1.0, 1.0, 1.0])
    (folder / "ties.onnx").write_bytes(model([node("Max", ["x", "k"], ["y"])], [port("x", ["n", 3])],
                                             [port("y", ["n", 3])], [tensor("k", [3], [2.0, 2.0, 2.0])]))
    succeed(folder / "ties.onnx", f"x={folder}/x.npy", "--gradient", f"y={folder}/dy.npy", "-o", f"x={folder}/dx.npy",
            "-o", f"k={folder}/dk.npy")
    assert read_npy(folder / "dx.npy")[1] == (0.0, 0.5, 1.0)
    assert read_npy(folder / "dk.npy")[1] == (1.0, 0.5, 0.0)


def check_norm_of_zeros(folder):
    """Rows of zeros, as padding has them, have a norm of 0 and no gradient, also where they are divided by it."""
    write_npy(folder / "x.npy", [2, 3], [0.0, 0.0, 0.0, 1.0, 2.0, 2.0])
    write_npy(folder / "dy.npy", [2, 3], [1.0] * 6)
    (folder / "norm.onnx").write_bytes(
        model([node("ReduceL2", ["x"], ["n"], axes=[1]), node("Clip", ["n", "low"], ["c"]), node("Div", ["x", "c"], ["y"])],
              [port("x", [2, 3])], [port("y", [2, 3]), port("n", [2, 1])], [tensor("low", [], [0.5])]))
    for dtype, tolerance in (("f32", 1e-6), ("f64", 1e-12)):
        succeed(folder / "norm.onnx", f"x={folder}/x.npy", "--dtype", dtype, "--gradient", f"y={folder}/dy.npy", "-o",
                f"x={folder}/dx.npy", "-o", f"n={folder}/n.npy")
        wanted = [2.0] * 3 + [(3 - 5 * v / 3) / 9 for v in (1.0, 2.0, 2.0)]
        got = read_npy(folder / "dx.npy")[1] + read_npy(folder / "n.npy")[1]
        assert all(abs(a - b) < tolerance for a, b in zip(got, wanted + [0.0, 3.0])), got


def check_meant(folder):
    """In f64 an attribute and a constant of f32 are the numbers that were rounded to them."""
    write_npy(folder / "x.npy", [1, 1], [-3.0], "d")
    (folder / "meant.onnx").write_bytes(
        model([node("Constant", [], ["k"], value=tensor("k", [], [1 / 3])), node("LeakyRelu", ["x"], ["a"], alpha=0.1),
               node("Mul", ["a", "k"], ["y"])], [port("x", ["n", 1])], [port("y", ["n", 1])]))
    succeed(folder / "meant.onnx", f"x={folder}/x.npy", "--dtype", "f64", "-o", f"y={folder}/y.npy")
    assert abs(read_npy(folder / "y.npy")[1][0] + 0.1) < 1e-15
    scale = struct.unpack("<f", struct.pack("<f", 1.03876))[0]  # of six digits by chance, as a trained number may be
    (folder / "trained.onnx").write_bytes(
        model([node("Constant", [], ["k"], value=tensor("k", [1], [scale])), node("Mul", ["x", "k"], ["y"])],
              [port("x", ["n", 1])], [port("y", ["n", 1])]))
    succeed(folder / "trained.onnx", f"x={folder}/x.npy", "--dtype", "f64", "-o", f"y={folder}/y.npy")
    assert read_npy(folder / "y.npy")[1][0] == -3 * scale


def check_refused(folder):
    """One sentence that names the node."""
    write_npy(folder / "x.npy", [2, 3], [1.0] * 6)
    for nodes, tensors, words in (
            ([node("Erf", ["x"], ["y"], name="n1")], [], "Erf is covered as a part of Gelu"),
            ([node("Expand", ["x", "s"], ["y"], name="n1")], [ints("s", 5, 3)], "dimension 0"),
            ([node("Tile", ["x", "s"], ["y"], name="n1")], [ints("s", 5)], "'repeats'"),
            ([node("Tile", ["x", "s"], ["y"], name="n1")], [ints("s", 1, -2)], "'repeats'"),
            ([node("Gather", ["x", "s"], ["y"], name="n1")], [ints("s", 7)], "index 7"),
            ([node("DepthToSpace", ["x"], ["y"], name="n1", blocksize=2)], [], "dimensions"),
            ([node("GlobalLpPool", ["x"], ["y"], name="n1", p=0)], [], "'p'"),
            ([node("Slice", ["x", "z", "e", "a", "z"], ["y"], name="n1")], [ints("z", 0), ints("e", 2), ints("a", 0)],
             "step"),
            ([node("ReduceProd", ["x"], ["y"], name="n1", axes=[4])], [], "axis")):
        (folder / "bad.onnx").write_bytes(model(nodes, [port("x", [2, 3])], [port("y", [])], tensors))
        done = run(folder / "bad.onnx", f"x={folder}/x.npy", "-o", f"y={folder}/y.npy")
        assert done.returncode == 1 and words in done.stderr and "n1" in done.stderr, (words, done.stderr)
        assert done.stderr.count("\n") == 1, done.stderr


def check_exported(folder):
    """Factors that only round to whole ones are no blocks of pixels: the mean of each was written."""
    for scale, status in (("2,2", 0), ("2.3,2.3", 1), ("2,2.3", 1)):
        (folder / "up.txt").write_text(f"conv 2 window=1\nupsample scale={scale}\ndense classes\n")
        done = run(folder / "up.txt", "--gradient", "--height", 3, "--width", 3, "-o", folder / "up.onnx", command="export")
        assert done.returncode == status, (scale, done.stderr)
        assert status == 0 or "resizing other than by repeating each pixel" in done.stderr, done.stderr


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for label, case in CASES.items():
            try:
                check_case(folder, *case)
            except AssertionError as wrong:
                raise AssertionError(label) from wrong
        for check in (check_losses, check_ties, check_norm_of_zeros, check_meant, check_refused, check_exported):
            check(folder)


main()
