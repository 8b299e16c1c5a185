#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""What exporters write in several ways: operators of older sets, a batch that the file fixes, tensors that are merged.

usage: onnx_import_test.py PROGRAM
"""
import json
import pathlib
import struct
import tempfile

from onnx_made import FLOAT, INT64, model, node, port, tensor
from onnx_run import read_npy, run, run_any, succeed, write_npy

PIXELS = [((i * 37) % 101 - 50) / 40 for i in range(4096)]
HALF, BFLOAT = 10, 16


def of_type(name, dims, values, kind):
    """A tensor of f16 or bf16."""
    pack = (lambda v: struct.pack("<e", v)) if kind == HALF else (lambda v: struct.pack("<f", v)[2:])
    return tensor(name, dims, b"".join(map(pack, values)), kind)


def output_of(folder, data, dims, *more):
    """The output y of x."""
    count = 1
    for dim in dims:
        count *= dim
    (folder / "model.onnx").write_bytes(data)
    write_npy(folder / "x.npy", dims, PIXELS[:count])
    succeed(folder / "model.onnx", f"x={folder}/x.npy", "-o", f"y={folder}/y.npy", *more)
    return read_npy(folder / "y.npy")


def close(got, wanted, tolerance=1e-6):
    assert len(got) == len(wanted), (len(got), len(wanted))
    assert all(abs(a - b) <= tolerance * max(1, abs(b)) for a, b in zip(got, wanted)), (got[:8], wanted[:8])


# ---- training, by the program ----

def write_images(folder, size=8, channels=1, classes=3, count=24, masks=False):
    folder.mkdir()
    for part in ("train", "test"):
        write_npy(folder / f"x_{part}.npy", [count, size, size, channels],
                  [PIXELS[(7 * i) % 4096] + (i // (size * size * channels)) % classes
                   for i in range(count * size * size * channels)])
        labels = [i // (size * size if masks else 1) % classes for i in range(count * (size * size if masks else 1))]
        write_npy(folder / f"y_{part}.npy", [count, size, size] if masks else [count], labels, "i")
    return folder


def losses(folder, data, *options, name="run"):
    """Training losses of each epoch; dropout and order of images are those of one seed."""
    (folder / f"{name}.onnx").write_bytes(data)
    done = run_any("train", folder / f"{name}.onnx", "--data", folder / "data", "--epochs", 2, "--batch", 8, "--dtype", "f64",
                   *options, "--out", folder / name)
    assert done.returncode == 0, done.stderr
    rows = [row.split(",") for row in (folder / name / "metrics.csv").read_text().split()]
    return [float(row[rows[0].index("train_loss")]) for row in rows[1:]]


def parameters(path):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return {name: entry for name, entry in json.loads(data[8:8 + length]).items() if name != "__metadata__"}


# ---- Resize ----

def test_sizes_of_an_open_batch(folder):
    """Sizes that are computed from the shape of a batch of any size: F.interpolate(size=)."""
    write_images(folder / "data")
    sizes = [node("Shape", ["x"], ["s"]), node("Slice", ["s", "zero", "two"], ["n"]),
             node("Concat", ["n", "pixels"], ["t"], axis=0), node("Resize", ["x", "", "", "t"], ["r"], mode="linear")]
    scaled = [node("Resize", ["x", "", "f"], ["r"], mode="linear")]
    rest = [node("Conv", ["r", "w"], ["c"]), node("GlobalAveragePool", ["c"], ["p"]), node("Flatten", ["p"], ["y"])]
    tensors = [tensor("zero", [1], [0], INT64), tensor("two", [1], [2], INT64), tensor("pixels", [2], [16, 16], INT64),
               tensor("f", [4], [1.0, 1.0, 2.0, 2.0]), tensor("w", [3, 1, 3, 3], [v / 4 for v in PIXELS[:27]])]
    made = lambda nodes, batch="N": model(nodes + rest, [port("x", [batch, 1, 8, 8])], [port("y", [batch, 3])], tensors)
    wanted = losses(folder, made(scaled), name="scaled")
    assert losses(folder, made(sizes), name="sizes") == wanted
    # and where the file has its own batch among constant sizes
    constant = [node("Resize", ["x", "", "", "whole"], ["r"], mode="linear")]
    tensors.append(tensor("whole", [4], [1, 1, 16, 16], INT64))
    assert losses(folder, made(constant, 1), name="constant") == wanted


def test_constants_of_an_open_batch(folder):
    """What is computed from the other dimensions is one constant, though the shape holds the batch, too."""
    data = model([node("Shape", ["x"], ["s"]), node("Gather", ["s", "i"], ["h"]), node("Mul", ["h", "i"], ["m"]),
                  node("Slice", ["s", "none", "none"], ["empty"]), node("Unsqueeze", ["m", "none"], ["n"]),
                  node("Concat", ["empty", "n"], ["c"], axis=0), node("Squeeze", ["c"], ["r"]),
                  node("Range", ["zero", "r", "one"], ["row"]), node("Cast", ["row"], ["f"], to=1), node("Add", ["x", "f"], ["y"])],
                 [port("x", ["N", 2, 4])], [port("y", ["N", 2, 4])],
                 [tensor("i", [], [2], INT64), tensor("zero", [], [0], INT64), tensor("one", [], [2], INT64),
                  tensor("none", [1], [0], INT64)], opset=13)
    assert output_of(folder, data, [3, 2, 4])[1] == tuple(
        struct.unpack("<f", struct.pack("<f", PIXELS[i] + 2 * (i % 4)))[0] for i in range(24))
    done = run_any("export", folder / "model.onnx", "--opset", 14, "-o", folder / "again.onnx")
    assert done.returncode == 0, done.stderr
    assert output_of(folder, (folder / "again.onnx").read_bytes(), [3, 2, 4]) == read_npy(folder / "y.npy")
    last = [node("Cast", ["q"], ["f"], to=1), node("Add", ["x", "f"], ["y"])]  # what is equal for 2 images and for 3
    for nodes, dims, values in (([node("Div", ["s", "k"], ["q"])], [2], [4, 1]),
                                ([node("Gather", ["s", "zero"], ["n"]), node("Div", ["n", "k"], ["q"])], [], [4]),
                                ([node("Gather", ["s", "zero"], ["n"]), node("Min", ["n", "k"], ["q"])], [], [2])):
        (folder / "model.onnx").write_bytes(model(
            [node("Shape", ["x"], ["s"]), *nodes, *last], [port("x", ["N", 2])], [port("y", ["N", 2])],
            [tensor("k", dims, values, INT64), tensor("zero", [], [0], INT64)], opset=13))
        done = run_any("export", folder / "model.onnx", "--opset", 14, "-o", folder / "never.onnx")
        assert done.returncode == 1 and "'f' depends on the size of the batch" in done.stderr, done.stderr


def test_extremes_of_constants(folder):
    """Max and Min of one constant, or of three, as PyTorch's newer exporter writes those of sizes."""
    data = model([node("Shape", ["x"], ["s"]), node("Slice", ["s", "two", "three"], ["h"]), node("Max", ["h"], ["a"]),
                  node("Min", ["a", "six", "three"], ["b"]), node("Max", ["b", "two", "minus"], ["c"]),
                  node("Concat", ["zero", "c", "minus"], ["t"], axis=0), node("Reshape", ["x", "t"], ["y"])],
                 [port("x", ["N", 2, 9])], [port("y", ["N", 3, 6])],
                 [tensor(name, [1], [value], INT64) for name, value in (("two", 2), ("three", 3), ("six", 6), ("zero", 0), ("minus", -1))])
    assert output_of(folder, data, [2, 2, 9])[0] == (2, 3, 6)


def test_clip_of_constants(folder):
    """Sizes between bounds: as floats, as timm's padding for windows of one size has them, as integers, by attributes."""
    for cast, opset, bounds in ((1, 13, ("low", "")), (7, 13, ("low", "high")), (1, 13, ("", "high")), (1, 10, ())):
        number = FLOAT if cast == 1 else INT64
        limits = {} if bounds else {"min": 0.0, "max": 4.0}
        data = model([node("Shape", ["x"], ["s"]), node("Gather", ["s", "i"], ["w"], axis=0), node("Cast", ["w"], ["f"], to=cast),
                      node("Sub", ["f", "k"], ["d"]), node("Clip", ["d", *bounds], ["c"], **limits), node("Cast", ["c"], ["n"], to=INT64),
                      node("Concat", ["zero", "n"], ["t"], axis=0), node("Reshape", ["x", "t"], ["y"])],
                     [port("x", ["N", 2, 9])], [port("y", ["N", "k"])],
                     [tensor("i", [1], [2], INT64), tensor("zero", [1], [-1], INT64)] +
                     [tensor(name, [1] if name == "k" else [], [value], number)
                      for name, value in (("k", 11 if bounds[:1] == ("low",) else 3), ("low", 3), ("high", 4))], opset=opset)  # fmt: skip
        columns = 3 if bounds[:1] == ("low",) else 4
        assert output_of(folder, data, [2, 2, 9])[0] == (36 // columns, columns)


def test_order_of_an_open_batch(folder):
    """A Gather of all elements in their order, with indices computed from the batch, as exporters write a view in steps."""
    data = model([node("Reshape", ["x", "flat"], ["f"]), node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"]),
                  node("Range", ["zero", "n", "one"], ["r"]), node("Mul", ["r", "four"], ["a"]), node("Unsqueeze", ["a", "last"], ["b"]),
                  node("Range", ["zero", "four", "one"], ["c"]), node("Add", ["b", "c"], ["i"]), node("Gather", ["f", "i"], ["g"]),
                  node("Gemm", ["g", "w"], ["y"])], [port("x", ["N", 4, 1, 1])], [port("y", ["N", 2])],
                 [tensor("flat", [1], [-1], INT64), tensor("zero", [], [0], INT64), tensor("one", [], [1], INT64),
                  tensor("four", [], [4], INT64), tensor("last", [1], [1], INT64), tensor("w", [4, 2], PIXELS[50:58])])
    wanted = [sum(PIXELS[4 * i + k] * PIXELS[50 + 2 * k + j] for k in range(4)) for i in range(3) for j in range(2)]
    close(output_of(folder, data, [3, 4, 1, 1])[1], wanted)
    done = run_any("export", folder / "model.onnx", "--opset", 14, "-o", folder / "again.onnx")
    assert done.returncode == 0, done.stderr
    close(output_of(folder, (folder / "again.onnx").read_bytes(), [3, 4, 1, 1])[1], wanted)
    other = data.replace(struct.pack("<q", 4), struct.pack("<q", 3))  # not all elements
    (folder / "model.onnx").write_bytes(other)
    done = run_any("export", folder / "model.onnx", "--opset", 14, "-o", folder / "never.onnx")
    assert done.returncode == 1 and "Gather (node 'g'" in done.stderr, done.stderr


def test_resize_of_set_10(folder):
    """Inputs X and scales alone; pixels are taken without a half."""
    data = model([node("Resize", ["x", "s"], ["y"], mode="nearest")], [port("x", [1, 1, 2, 4])], [port("y", [])],
                 [tensor("s", [4], [1.0, 1.0, 2.0, 0.75])], opset=10)
    shape, y = output_of(folder, data, [1, 1, 2, 4])
    rows = [[PIXELS[4 * r + c] for c in (0, 1, 2)] for r in (0, 0, 1, 1)]
    assert shape == (1, 1, 4, 3)
    close(y, sum(rows, []))
    linear = model([node("Resize", ["x", "s"], ["y"], mode="linear")], [port("x", [1, 1, 1, 2])], [port("y", [])],
                   [tensor("s", [4], [1.0, 1.0, 1.0, 2.0])], opset=10)
    a, b = PIXELS[:2]
    close(output_of(folder, linear, [1, 1, 1, 2])[1], [a, (a + b) / 2, b, b])


def test_resize_of_tensorflow(folder):
    """tf_half_pixel_for_nn: pixel o looks at (o + 1/2) / scale."""
    for mode, at in (("floor", lambda u: int(u)), ("round_prefer_floor", lambda u: -int(-(u - 0.5) // 1))):
        for length, scale in ((4, 2.0), (7, 0.5), (6, 1.5)):
            data = model([node("Resize", ["x", "", "s"], ["y"], mode="nearest", nearest_mode=mode,
                               coordinate_transformation_mode="tf_half_pixel_for_nn")], [port("x", [1, 1, 1, length])],
                         [port("y", [])], [tensor("s", [4], [1.0, 1.0, 1.0, scale])], opset=11)
            wanted = [PIXELS[min(max(at((o + 0.5) / scale), 0), length - 1)] for o in range(int(length * scale))]
            close(output_of(folder, data, [1, 1, 1, length])[1], wanted)


def test_resize_by_cubic_polynomials(folder):
    """Four pixels along each axis; their gradient is the transposed map."""
    def weight(distance, a=-0.75):
        d = abs(distance)
        return (a + 2) * d ** 3 - (a + 3) * d ** 2 + 1 if d <= 1 else a * d ** 3 - 5 * a * d ** 2 + 8 * a * d - 4 * a if d < 2 else 0

    def matrix(length, out):
        rows = []
        for o in range(out):
            at = (o + 0.5) * length / out - 0.5
            row = [0.0] * length
            for pixel in range(-3, length + 3):
                row[min(max(pixel, 0), length - 1)] += weight(at - pixel)
            rows.append(row)
        return rows

    data = model([node("Conv", ["x", "w"], ["c"]), node("Resize", ["c", "", "", "s"], ["y"], mode="cubic")],
                 [port("x", ["N", 1, 5, 4])], [port("y", [])],
                 [tensor("w", [1, 1, 1, 1], [1.0]), tensor("s", [4], [2, 1, 7, 9], INT64)])
    rows, columns = matrix(5, 7), matrix(4, 9)
    shape, y = output_of(folder, data, [2, 1, 5, 4], "--dtype", "f64")
    assert shape == (2, 1, 7, 9)
    close(y, [sum(rows[o][i] * columns[p][j] * PIXELS[20 * n + 4 * i + j] for i in range(5) for j in range(4))
              for n in range(2) for o in range(7) for p in range(9)], 1e-6)
    dy = PIXELS[500:626]
    write_npy(folder / "dy.npy", [2, 1, 7, 9], dy, "d")
    succeed(folder / "model.onnx", f"x={folder}/x.npy", "--dtype", "f64", "--gradient", f"y={folder}/dy.npy", "-o", f"x={folder}/dx.npy")
    close(read_npy(folder / "dx.npy")[1], [sum(rows[o][i] * columns[p][j] * dy[63 * n + 9 * o + p] for o in range(7) for p in range(9))
                                           for n in range(2) for i in range(5) for j in range(4)], 1e-12)


# ---- older operator sets, types, constants ----

def test_spatial(folder):
    """BatchNormalization of operator sets 7 and 8 with the attribute that it had."""
    made = lambda **more: model([node("BatchNormalization", ["x", "g", "b", "m", "v"], ["y"], **more)],
                                [port("x", [2, 2, 1, 2])], [port("y", [])],
                                [tensor("g", [2], [1.0, 2.0]), tensor("b", [2], [0.5, 0.0]), tensor("m", [2], [0.0, 1.0]),
                                 tensor("v", [2], [1.0, 4.0])], opset=8)
    assert output_of(folder, made(spatial=1), [2, 2, 1, 2]) == output_of(folder, made(), [2, 2, 1, 2])
    (folder / "model.onnx").write_bytes(made(spatial=0))
    done = run(folder / "model.onnx", f"x={folder}/x.npy", "-o", f"y={folder}/y.npy")
    assert done.returncode != 0 and "spatial" in done.stderr, done.stderr


def test_gelu_of_16_bits(folder):
    """The Gelu that Erf builds, whose 1 / sqrt 2 has few digits."""
    for kind in (HALF, BFLOAT):
        for quotient in (False, True):
            nodes = [node("Div" if quotient else "Mul", ["x", "r"], ["a"]), node("Erf", ["a"], ["b"]), node("Add", ["b", "o"], ["c"]),
                     node("Mul", ["x", "c"], ["d"]), node("Mul", ["d", "h"], ["y"])]
            numbers = [("r", 2 ** 0.5 if quotient else 0.5 ** 0.5), ("o", 1.0), ("h", 0.5)]
            data = model(nodes, [port("x", [1, 6], kind)], [port("y", [], kind)],
                         [of_type(name, [], [value], kind) for name, value in numbers])
            gelu = model([node("Gelu", ["x"], ["y"])], [port("x", [1, 6], kind)], [port("y", [], kind)], opset=20)
            got = output_of(folder, data, [1, 6], "--dtype", "f32")[1]
            close(got, output_of(folder, gelu, [1, 6], "--dtype", "f32")[1], 1e-6)


def test_group_normalization_18(folder):
    """A scale and a bias for each group."""
    scale, bias = [2.0, -0.5], [0.25, 1.0]
    made = lambda opset, s, b: model([node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)], [port("x", ["N", 4, 2, 2])],
                                     [port("y", [])], [tensor("s", [len(s)], s), tensor("b", [len(b)], b)], opset=opset)
    spread = lambda v: [v[0], v[0], v[1], v[1]]
    wanted = output_of(folder, made(21, spread(scale), spread(bias)), [3, 4, 2, 2])
    assert output_of(folder, made(18, scale, bias), [3, 4, 2, 2]) == wanted
    write_npy(folder / "dy.npy", [3, 4, 2, 2], PIXELS[100:148])
    succeed(folder / "model.onnx", f"x={folder}/x.npy", "--gradient", f"y={folder}/dy.npy", "-o", f"s={folder}/few.npy")
    output_of(folder, made(21, spread(scale), spread(bias)), [3, 4, 2, 2])
    succeed(folder / "model.onnx", f"x={folder}/x.npy", "--gradient", f"y={folder}/dy.npy", "-o", f"s={folder}/many.npy")
    many = read_npy(folder / "many.npy")[1]
    close(read_npy(folder / "few.npy")[1], [many[0] + many[1], many[2] + many[3]], 1e-5)


def test_large_constants(folder):
    """Masks of more than 65536 elements are computed while the model is read, as shifted windows have them."""
    n, d = 80, 30
    nodes = [node("Unsqueeze", ["k"], ["a"], axes=[1]), node("Unsqueeze", ["k"], ["b"], axes=[2]), node("Sub", ["a", "b"], ["c"]),
             node("Equal", ["c", "zero"], ["e"]), node("Where", ["e", "zero", "low"], ["m"]), node("Add", ["x", "m"], ["s"]),
             node("ReduceMean", ["s"], ["y"], axes=[2], keepdims=0)]
    ids = [float((i // 7) % 3) for i in range(n * d)]
    # constants of one node alone are not trained, and fold
    constant = lambda name, dims, values: node("ConstantOfShape", [f"{name}.shape"], [name], value=tensor("v", [1], values))
    data = model([node("Cast", ["ids"], ["k"], to=1), constant("zero", [], [0.0]), constant("low", [], [-100.0]), *nodes],
                 [port("x", [n, d, d])], [port("y", [])],
                 [tensor("ids", [n, d], [int(v) for v in ids], INT64), tensor("zero.shape", [1], [1], INT64),
                  tensor("low.shape", [1], [1], INT64)], opset=12)
    values = [((i * 13) % 17) / 16 for i in range(n * d * d)]
    (folder / "model.onnx").write_bytes(data)
    write_npy(folder / "x.npy", [n, d, d], values)
    succeed(folder / "model.onnx", f"x={folder}/x.npy", "-o", f"y={folder}/y.npy")
    wanted = [sum(values[(i * d + j) * d + k] + (0 if ids[i * d + j] == ids[i * d + k] else -100) for k in range(d)) / d
              for i in range(n) for j in range(d)]
    close(read_npy(folder / "y.npy")[1], wanted, 1e-5)


def test_many_constants(folder):
    """Constants of many nodes are computed, 12 million elements in all, as each layer of a transformer has its own masks."""
    names = [f"c{i}" for i in range(12)]
    data = model([node("Range", ["zero", "many", "one"], ["c0"]),
                  *(node("Sub", [a, "one"], [b]) for a, b in zip(names, names[1:])), node("Gather", [names[-1], "many_less"], ["i"]),
                  node("Cast", ["i"], ["k"], to=1), node("Add", ["x", "k"], ["y"])], [port("x", ["N", 1])], [port("y", ["N", 1])],
                 [tensor("zero", [], [0], INT64), tensor("many", [], [1000000], INT64), tensor("one", [], [1], INT64),
                  tensor("many_less", [], [17], INT64)], opset=12)
    (folder / "model.onnx").write_bytes(data)
    write_npy(folder / "x.npy", [2, 1], [0.5, 1.5])
    succeed(folder / "model.onnx", f"x={folder}/x.npy", "-o", f"y={folder}/y.npy")
    assert read_npy(folder / "y.npy")[1] == (6.5, 7.5)


def test_many_rows(folder):
    """Rows of a table by many indices, as windows of 8 pixels pick their biases."""
    rows, columns, count = 225, 2, 5000
    index = [(i * 31) % rows for i in range(count)]
    picked = lambda kind, dims: model(
        [node(kind, ["t", "i"], ["g"]), node("Mul", ["g", "x"], ["y"])], [port("x", [1, columns])], [port("y", [])],
        [tensor("t", [rows, columns], PIXELS[:rows * columns]), tensor("i", dims, index, INT64)])
    data = picked("Gather", [count])
    of_one = output_of(folder, picked("GatherND", [count, 1]), [1, columns])
    of_two = output_of(folder, picked("GatherND", [50, 100, 1]), [1, columns])
    (folder / "model.onnx").write_bytes(picked("GatherND", [count // 2, 2]))
    done = run(folder / "model.onnx", f"x={folder}/x.npy", "-o", f"y={folder}/never.npy")
    assert done.returncode == 1 and "GatherND (node 'g': indices of 2 numbers each" in done.stderr, done.stderr
    shape, y = output_of(folder, data, [1, columns])
    assert of_one == (shape, y) and of_two == ((50, 100, columns), y)
    assert shape == (count, columns)
    close(y, [PIXELS[i * columns + c] * PIXELS[c] for i in index for c in range(columns)])
    write_npy(folder / "dy.npy", [count, columns], [1.0] * (count * columns))
    succeed(folder / "model.onnx", f"x={folder}/x.npy", "--gradient", f"y={folder}/dy.npy", "-o", f"t={folder}/dt.npy")
    close(read_npy(folder / "dt.npy")[1], [index.count(r) * PIXELS[c] for r in range(rows) for c in range(columns)], 1e-5)


def test_two_trained_factors(folder):
    """Factors whose product is 1 keep their gradients."""
    data = model([node("Mul", ["x", "a"], ["t"]), node("Mul", ["t", "b"], ["y"])], [port("x", [1, 2])], [port("y", [1, 2])],
                 [tensor("a", [1], [2.0]), tensor("b", [1], [0.5])])
    output_of(folder, data, [1, 2])
    write_npy(folder / "dy.npy", [1, 2], [1.0, 3.0])
    succeed(folder / "model.onnx", f"x={folder}/x.npy", "--gradient", f"y={folder}/dy.npy", "-o", f"a={folder}/da.npy",
            "-o", f"b={folder}/db.npy")
    total = PIXELS[0] + 3 * PIXELS[1]
    close(read_npy(folder / "da.npy")[1], [total / 2])
    close(read_npy(folder / "db.npy")[1], [2 * total])


def test_casts_of_values(folder):
    """Pixels of 8 bits, a part in another type, and indices as 32 bits."""
    data = model([node("Cast", ["x"], ["f"], to=1), node("Div", ["f", "k"], ["y"])], [port("x", ["N", 2], 2)], [port("y", [])],
                 [tensor("k", [], [255.0])])
    (folder / "model.onnx").write_bytes(data)
    write_npy(folder / "x.npy", [1, 2], [51, 255], "B")
    succeed(folder / "model.onnx", f"x={folder}/x.npy", "-o", f"y={folder}/y.npy")
    close(read_npy(folder / "y.npy")[1], [0.2, 1.0])
    mixed = model([node("Cast", ["x"], ["h"], to=HALF), node("Mul", ["h", "w"], ["g"]), node("Cast", ["g"], ["f"], to=1),
                   node("Add", ["f", "k"], ["y"])], [port("x", [1, 2])], [port("y", [])],
                  [of_type("w", [2], [0.5, 2.0], HALF), tensor("k", [2], [1.0, 3.0])])
    close(output_of(folder, mixed, [1, 2])[1], [PIXELS[0] / 2 + 1, PIXELS[1] * 2 + 3])
    largest = model([node("ArgMax", ["x"], ["a"], axis=1, keepdims=0), node("Cast", ["a"], ["y"], to=6)], [port("x", [1, 5])],
                    [port("y", [1], 6)])
    assert output_of(folder, largest, [1, 5])[1] == (PIXELS.index(max(PIXELS[:5])),)


def test_images_of_bytes(folder):
    """A network that divides its pixels itself trains as one that takes them from 0 to 1, without a normalization."""
    write_images(folder / "data")
    rest = [node("Flatten", ["f"], ["g"]), node("Gemm", ["g", "w"], ["y"], transB=1)]
    weights = tensor("w", [3, 64], [v / 8 for v in PIXELS[:192]])
    bytes_in = model([node("Cast", ["x"], ["c"], to=1), node("Div", ["c", "k"], ["f"]), *rest], [port("x", ["N", 1, 8, 8], 2)],
                     [port("y", ["N", 3])], [tensor("k", [], [255.0]), weights])
    plain = model([node("Identity", ["x"], ["f"]), *rest], [port("x", ["N", 1, 8, 8])], [port("y", ["N", 3])], [weights])
    options = ["--normalize", "none"]
    close(losses(folder, bytes_in, *options, name="bytes"), losses(folder, plain, *options, name="plain"), 1e-9)
    done = run_any("export", folder / "bytes", "-o", folder / "out.onnx")
    assert done.returncode == 0, done.stderr
    write_npy(folder / "x.npy", [1, 1, 8, 8], [(i * 5) % 256 for i in range(64)], "B")
    succeed(folder / "out.onnx", f"x={folder}/x.npy", "-o", f"y={folder}/y.npy")


# ---- a batch that the file fixes ----

def test_fixed_batch(folder):
    """Files for one image, or two, train on batches of any size: Reshape, Expand and Concat have the batch as a constant."""
    write_images(folder / "data")
    w = [v / 4 for v in PIXELS[:72]]
    ints = lambda name, values: tensor(name, [len(values)], values, INT64)

    def made(batch, open_batch):
        """Attention in small: channels are shuffled, tokens get a class token, heads move into the batch and back."""
        b, name = batch, "N" if open_batch else batch
        n = 0 if open_batch else b  # what a reshape of the same dimension says
        shapes = {"shuffle": [n if not open_batch else -1, 2, 4, 8, 8], "back": [n if not open_batch else -1, 8, 8, 8],
                  "tokens": [n if not open_batch else 0, 8, 64], "heads": [65, -1 if open_batch else b * 2, 4],
                  "rows": [-1, 8] if open_batch else [65 * b, 8], "unrows": [65, -1, 8] if open_batch else [65, b, 8]}
        nodes = [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), node("Reshape", ["c", "shuffle"], ["s1"]),
                 node("Transpose", ["s1"], ["s2"], perm=[0, 2, 1, 3, 4]), node("Reshape", ["s2", "back"], ["s3"]),
                 node("Reshape", ["s3", "tokens"], ["t1"]), node("Transpose", ["t1"], ["t2"], perm=[0, 2, 1])]
        if open_batch:
            nodes += [node("Shape", ["x"], ["xs"]), node("Gather", ["xs", "zero"], ["bs"]),
                      node("Concat", ["bs", "unit"], ["cs"], axis=0), node("Expand", ["token", "cs"], ["tok"])]
        else:
            nodes += [node("Expand", ["token", "cs"], ["tok"])]
        nodes += [node("Concat", ["tok", "t2"], ["t3"], axis=1), node("Transpose", ["t3"], ["t4"], perm=[1, 0, 2]),
                  node("Reshape", ["t4", "heads"], ["h1"]), node("Softmax", ["h1"], ["h2"], axis=2),
                  node("Reshape", ["h2", "rows"], ["r1"]), node("MatMul", ["r1", "m"], ["r2"]),
                  node("Reshape", ["r2", "unrows"], ["u1"]), node("Transpose", ["u1"], ["u2"], perm=[1, 0, 2]),
                  node("ReduceMean", ["u2"], ["y0"], axes=[1], keepdims=0), node("Gemm", ["y0", "f"], ["y"])]
        tensors = [tensor("w", [8, 1, 3, 3], w), tensor("token", [1, 1, 8], PIXELS[80:88]), tensor("m", [8, 8], PIXELS[:64]),
                   tensor("f", [8, 3], PIXELS[90:114]), *(ints(name, values) for name, values in shapes.items())]
        tensors += [ints("zero", [0]), ints("unit", [1, 8])] if open_batch else [ints("cs", [b, 1, 8])]
        return model(nodes, [port("x", [name, 1, 8, 8])], [port("y", [name, 3])], tensors)

    wanted = losses(folder, made(1, True), name="open")
    for batch in (1, 2):
        got = losses(folder, made(batch, False), name=f"fixed{batch}")
        close(got, wanted, 1e-12)
        done = run_any("eval", folder / f"fixed{batch}", "--json")
        assert done.returncode == 0, done.stderr


def test_images_stay_apart(folder):
    """With the batch that the file fixes an operator may have one image alone; it must not mix several."""
    write_images(folder / "data")
    end = [node("Gemm", ["f", "w"], ["y"])]
    w = tensor("w", [64, 3], [v / 8 for v in PIXELS[:192]])
    flat = node("Flatten", ["x"], ["v"])
    axes = tensor("axes", [2], [0, 1], INT64)
    for nodes, name in (([flat, node("Softmax", ["v"], ["f"], axis=0)], "Softmax"),
                        ([flat, node("LogSoftmax", ["v"], ["f"], axis=-2)], "LogSoftmax"),
                        ([flat, node("ReduceMax", ["v"], ["m"], keepdims=1), node("Div", ["v", "m"], ["f"])], "ReduceMax"),
                        ([flat, node("ReduceSum", ["v", "axes"], ["m"]), node("Sub", ["v", "m"], ["f"])], "ReduceSum")):
        for batch, fits in ((1, False), (2, False), ("N", True)):
            (folder / "mixed.onnx").write_bytes(
                model([*nodes, *end], [port("x", [batch, 1, 8, 8])], [port("y", [batch, 3])], [w, axes]))
            done = run_any("eval", folder / "mixed.onnx", "--data", folder / "data")
            assert (done.returncode == 0) == fits, (name, batch, done.stderr)
            assert fits or f"not covered: {name} (node" in done.stderr and f"the file has {batch})" in done.stderr, done.stderr
    # rows go in front of the batch: one row of all of them is not one of an image
    (folder / "rows.onnx").write_bytes(model(
        [node("Transpose", ["x"], ["t"], perm=[1, 2, 0, 3]), node("Reshape", ["t", "row"], ["f"]), *end],
        [port("x", [1, 1, 8, 8])], [port("y", [1, 3])], [w, tensor("row", [2], [1, -1], INT64)]))
    done = run_any("eval", folder / "rows.onnx", "--data", folder / "data")
    assert done.returncode == 1 and done.stderr.count("\n") == 1, (done.stdout, done.stderr)


def test_fixed_windows(folder):
    """Windows of an image are a multiple of the batch, which Expand repeats the file's number of."""
    write_images(folder / "data")

    def made(windows, expand, rows, batch):
        return model([node("Reshape", ["x", "windows"], ["a"]), node("Expand", ["a", "expand"], ["b"]),
                      node("Mul", ["b", "k"], ["c"]), node("ReduceMean", ["c"], ["m"], axes=[2, 3], keepdims=0),
                      node("Reshape", ["m", "rows"], ["f"]), node("Gemm", ["f", "w"], ["y"])],
                     [port("x", [batch, 1, 8, 8])], [port("y", [batch, 3])],
                     [tensor("windows", [4], windows, INT64), tensor("expand", [4], expand, INT64),
                      tensor("rows", [2], rows, INT64), tensor("k", [1, 2, 1, 4], PIXELS[:8]), tensor("w", [8, 3], PIXELS[:24])])

    wanted = losses(folder, made([-1, 1, 4, 4], [1, 2, 1, 1], [-1, 8], "N"), name="open")
    for batch in (1, 2):
        got = losses(folder, made([4 * batch, 1, 4, 4], [4 * batch, 2, 4, 4], [batch, 8], batch), name=f"windows{batch}")
        assert got == wanted, (batch, got, wanted)


def test_fixed_batch_flat(folder):
    """Reshape to [1, -1], and a class token that is joined as it is in the file."""
    write_images(folder / "data")
    for shape, name in (([1, -1], "rest"), ([1, 64], "whole"), ([-1, 64], "first")):
        data = model([node("Reshape", ["x", "s"], ["f"]), node("Gemm", ["f", "w"], ["y"], transB=1)],
                     [port("x", [1, 1, 8, 8])], [port("y", [1, 3])],
                     [tensor("s", [2], shape, INT64), tensor("w", [3, 64], [v / 8 for v in PIXELS[:192]])])
        got = losses(folder, data, name=name)
        wanted = got if name == "rest" else wanted
        assert got == wanted, (name, got, wanted)
    data = model([node("Reshape", ["x", "s"], ["v"]), node("Gather", ["v", "i"], ["f"]), node("Gemm", ["f", "w"], ["y"], transB=1)],
                 [port("x", [1, 1, 8, 8])], [port("y", [1, 3])],
                 [tensor("s", [1], [-1], INT64), tensor("i", [1, 64], list(range(64)), INT64),
                  tensor("w", [3, 64], [v / 8 for v in PIXELS[:192]])])
    assert losses(folder, data, name="strides") == wanted
    data = model([node("Reshape", ["x", "s"], ["t"]), node("Concat", ["token", "t"], ["c"], axis=1),
                  node("ReduceMean", ["c"], ["m"], axes=[1], keepdims=0), node("Gemm", ["m", "w"], ["y"])],
                 [port("x", [1, 1, 8, 8])], [port("y", [1, 3])],
                 [tensor("s", [3], [1, 8, 8], INT64), tensor("token", [1, 1, 8], PIXELS[:8]), tensor("w", [8, 3], PIXELS[:24])])
    losses(folder, data, name="token")
    assert "token" in parameters(folder / "token/checkpoint.safetensors")


# ---- merged tensors ----

def norms(merged):
    """Two batch normalizations; `merged`: all of their ones and zeros are two tensors."""
    ones, zeros = (lambda name: "ones" if merged else name), (lambda name: "zeros" if merged else name)
    norm = lambda x, y, n: node("BatchNormalization", [x, ones(f"g{n}"), zeros(f"b{n}"), zeros(f"m{n}"), ones(f"v{n}")], [y])
    nodes = [node("Conv", ["x", "w"], ["c"]), norm("c", "n1", 1), node("Relu", ["n1"], ["r"])]
    if merged:
        nodes += [node("Identity", ["ones"], ["alias"]),
                  node("BatchNormalization", ["r", "ones", "zeros", "zeros", "alias"], ["n2"])]
    else:
        nodes += [norm("r", "n2", 2)]
    nodes += [node("GlobalAveragePool", ["n2"], ["p"]), node("Flatten", ["p"], ["f"]), node("Gemm", ["f", "k"], ["y"])]
    names = [("ones", 1.0), ("zeros", 0.0)] if merged else [(f"{k}{n}", float(k in "gv")) for k in "gbmv" for n in (1, 2)]
    return model(nodes, [port("x", ["N", 1, 8, 8])], [port("y", ["N", 3])],
                 [tensor("w", [4, 1, 3, 3], PIXELS[:36]), tensor("k", [4, 3], PIXELS[50:62]),
                  *(tensor(name, [4], [value] * 4) for name, value in names)])


def test_merged_statistics(folder):
    """Statistics that share their tensor with scale and bias have gradients beside them, and train as tensors of their own."""
    write_images(folder / "data")
    (folder / "model.onnx").write_bytes(norms(True))
    write_npy(folder / "x.npy", [2, 1, 8, 8], PIXELS[:128])
    write_npy(folder / "dy.npy", [2, 3], [1.0, -2.0, 0.5, 1.5, 0.0, -1.0])
    arguments = [f"x={folder}/x.npy", "--dtype", "f64", "--gradient", f"y={folder}/dy.npy", "-o", folder / "all.safetensors"]
    succeed(folder / "model.onnx", *arguments, "-o", f"ones={folder}/ones.npy", "-o", f"zeros={folder}/zeros.npy")
    (folder / "apart.onnx").write_bytes(norms(False))
    succeed(folder / "apart.onnx", *arguments, *(text for k in ("g1", "g2", "b1", "b2") for text in ("-o", f"{k}={folder}/{k}.npy")))
    for merged, parts in (("ones", ("g1", "g2")), ("zeros", ("b1", "b2"))):
        a, b = (read_npy(folder / f"{name}.npy")[1] for name in parts)
        assert max(map(abs, a + b)) > 1e-3
        close(read_npy(folder / f"{merged}.npy")[1], [p + q for p, q in zip(a, b)], 1e-12)
    # one step of a small rate: scale and bias are one tensor each, so losses of both models differ from then on
    rates = ["--rate", "1e-9", "--decay", 0]
    close(losses(folder, norms(True), *rates, name="merged"), losses(folder, norms(False), *rates, name="apart"), 1e-7)
    found = parameters(folder / "merged/checkpoint.safetensors")
    assert {"ones", "zeros", "n1.running_mean", "n1.running_var", "n2.running_mean", "n2.running_var"} <= set(found), found
    out = folder / "out.onnx"
    done = run_any("export", folder / "merged", "-o", out, "--normalize", "none")
    done = run_any("export", folder / "merged", "-o", out) if done.returncode else done
    assert done.returncode == 0, done.stderr
    data = out.read_bytes()
    assert b"n1.running_var" in data and b"n2.running_mean" in data and b"Identity" in data
    write_npy(folder / "image.npy", [8, 8, 1], PIXELS[:64])
    write_npy(folder / "batch.npy", [1, 1, 8, 8], PIXELS[:64])
    succeed(out, f"x={folder}/batch.npy", "-o", f"y={folder}/y.npy")
    done = run_any("predict", folder / "merged", folder / "image.npy", "--json", "--top", 3)
    assert done.returncode == 0, done.stderr
    logits = read_npy(folder / "y.npy")[1]
    shares = sorted(entry["probability"] for entry in json.loads(done.stdout)["classes"])
    exponents = [2.718281828459045 ** (v - max(logits)) for v in logits]
    close(shares, sorted(e / sum(exponents) for e in exponents), 1e-5)
    # a model that is not trained is written as it was
    (folder / "model.onnx").write_bytes(norms(True))
    assert run_any("export", folder / "model.onnx", "-o", folder / "same.onnx").returncode == 0
    assert (folder / "same.onnx").read_bytes() == norms(True)


def test_other_outputs(folder):
    """Tensors that only other outputs need, or nothing, stay in what is exported after training."""
    write_images(folder / "data")
    data = model([node("Flatten", ["x"], ["f"]), node("Gemm", ["f", "w"], ["y"], transB=1), node("Gemm", ["f", "a"], ["aux"], transB=1)],
                 [port("x", ["N", 1, 8, 8])], [port("y", ["N", 3]), port("aux", ["N", 100])],
                 [tensor("w", [3, 64], [v / 8 for v in PIXELS[:192]]), tensor("a", [100, 64], [v / 8 for v in (PIXELS * 2)[:6400]]),
                  tensor("unused", [80], PIXELS[:80])])
    losses(folder, data)
    out = folder / "out.onnx"
    done = run_any("export", folder / "run", "-o", out)
    assert done.returncode == 0, done.stderr
    write_npy(folder / "x.npy", [2, 1, 8, 8], PIXELS[:128])
    succeed(out, f"x={folder}/x.npy", "-o", f"y={folder}/y.npy", "-o", f"aux={folder}/aux.npy")
    assert read_npy(folder / "aux.npy")[0] == (2, 100) and b"unused" in out.read_bytes()
    assert struct.pack("<80f", *PIXELS[:80]) in out.read_bytes()
    assert struct.pack("<6400f", *[v / 8 for v in (PIXELS * 2)[:6400]]) in out.read_bytes()


def test_nodes_of_other_outputs(folder):
    """Operators that only other outputs need may be ones that are not covered: they are written as they were."""
    write_images(folder / "data")
    data = model([node("Flatten", ["x"], ["f"]), node("Unique", ["f"], ["u"]), node("Gemm", ["f", "w"], ["y"], transB=1)],
                 [port("x", ["N", 1, 8, 8])], [port("y", ["N", 3]), port("u", ["K"])],
                 [tensor("w", [3, 64], [v / 8 for v in PIXELS[:192]])])
    losses(folder, data)
    done = run_any("export", folder / "run", "-o", folder / "out.onnx")
    assert done.returncode == 0 and b"Unique" in (folder / "out.onnx").read_bytes(), done.stderr


def test_masks_are_constants(folder):
    """A mask of attention that an exporter folded is no parameter, and a checkpoint has it."""
    write_images(folder / "data")
    mask = [0.0 if (i // 3) % 3 == (j // 3) % 3 else -100.0 for i in range(16) for j in range(16)]
    data = model([node("Reshape", ["x", "s"], ["q"]), node("Transpose", ["q"], ["k"], perm=[0, 2, 1]), node("MatMul", ["q", "k"], ["a"]),
                  node("Mul", ["a", "val_7"], ["b"]), node("Add", ["b", "val_9"], ["c"]), node("Softmax", ["c"], ["d"], axis=2),
                  node("MatMul", ["d", "q"], ["e"]), node("Flatten", ["e"], ["f"]), node("Gemm", ["f", "w"], ["y"], transB=1)],
                 [port("x", ["N", 1, 8, 8])], [port("y", ["N", 3])],
                 [tensor("s", [3], [0, 16, 4], INT64), tensor("val_7", [1], [0.5]), tensor("val_9", [16, 16], mask),
                  tensor("w", [3, 64], [v / 8 for v in PIXELS[:192]])])
    losses(folder, data, "--rate", 0.1)
    found = parameters(folder / "run/checkpoint.safetensors")
    assert not any(name.startswith("val_") and "." in name for name in found), found.keys()
    done = run_any("export", folder / "run", "-o", folder / "out.onnx")
    assert done.returncode == 0 and struct.pack("<256f", *mask) in (folder / "out.onnx").read_bytes(), done.stderr


def test_scattered_masks(folder):
    """Regions that ScatterND writes into a map, as shifted windows are told apart, are folded, also from a checkpoint."""
    write_images(folder / "data", size=12)
    rows = [4, 5, 6, 7]
    data = model([node("ConstantOfShape", ["shape"], ["m0"]), node("ScatterND", ["m0", "i", "regions"], ["m1"]),
                  node("ScatterND", ["m1", "j", "others"], ["m2"]), node("Reshape", ["m2", "image"], ["m3"]), node("Mul", ["x", "m3"], ["a"]),
                  node("Flatten", ["a"], ["f"]), node("Gemm", ["f", "w"], ["y"], transB=1)],
                 [port("x", ["N", 1, 12, 12])], [port("y", ["N", 3])],
                 [tensor("shape", [2], [12, 12], INT64), tensor("i", [8, 1], [k + 2 for k in range(8)], INT64),
                  tensor("regions", [8, 12], [1.0] * 96), tensor("j", [4, 1], rows, INT64), tensor("others", [4, 12], [2.0] * 48),
                  tensor("image", [4], [1, 1, 12, 12], INT64), tensor("w", [3, 144], [v / 8 for v in PIXELS[:432]])])
    values = PIXELS[:144]
    got = output_of(folder, data, [1, 1, 12, 12])[1]
    scale = lambda r: 2 if r in rows else 1 if 2 <= r < 10 else 0
    close(got, [sum(PIXELS[o * 144 + k] / 8 * values[k] * scale(k // 12) for k in range(144)) for o in range(3)], 1e-5)
    losses(folder, data)
    write_npy(folder / "image.npy", [12, 12, 1], values)
    done = run_any("export", folder / "run", "-o", folder / "out.onnx")
    assert done.returncode == 0 and struct.pack("<96f", *[1.0] * 96) in (folder / "out.onnx").read_bytes(), done.stderr
    done = run_any("predict", folder / "run", folder / "image.npy", "--json", "--top", 3)
    assert done.returncode == 0, done.stderr
    succeed(folder / "out.onnx", f"x={folder}/x.npy", "-o", f"y={folder}/y.npy")
    logits = read_npy(folder / "y.npy")[1]
    shares = sorted(2.718281828459045 ** (v - max(logits)) for v in logits)
    close(sorted(entry["probability"] for entry in json.loads(done.stdout)["classes"]), [v / sum(shares) for v in shares], 1e-5)


# ---- what images and outputs are ----

def test_numbers_are_constants(folder):
    """Initializers without dimensions are factors of their operators, as Constant nodes are, and keep their values."""
    write_images(folder / "data")
    data = model([node("Flatten", ["x"], ["f"]), node("Gemm", ["f", "w"], ["g"], transB=1), node("Mul", ["g", "sixth"], ["m"]),
                  node("Mul", ["m", "scale"], ["y"])], [port("x", ["N", 1, 8, 8])], [port("y", ["N", 3])],
                 [tensor("w", [3, 64], [v / 8 for v in PIXELS[:192]]), tensor("sixth", [], [1 / 6]), tensor("scale", [1], [1.0])])
    losses(folder, data, "--rate", 0.1)
    found = parameters(folder / "run/checkpoint.safetensors")
    assert "scale.momentum" in found or any(name.startswith("scale.") for name in found), found.keys()
    assert not any(name.startswith("sixth.") for name in found), found.keys()
    write_npy(folder / "x.npy", [1, 1, 8, 8], PIXELS[:64])
    write_npy(folder / "dy.npy", [1, 3], [1.0, 0.0, 0.0])
    succeed(folder / "run.onnx", f"x={folder}/x.npy", "--gradient", f"y={folder}/dy.npy", "-o", f"sixth={folder}/d.npy")
    assert read_npy(folder / "d.npy")[0] == ()


def test_open_pixels_with_channels_last(folder):
    """An input (n, h, w, 3) whose pixels are open."""
    write_images(folder / "data", channels=3)
    made = lambda size: model([node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]), node("Conv", ["t", "w"], ["c"]),
                               node("GlobalAveragePool", ["c"], ["p"]), node("Flatten", ["p"], ["y"])],
                              [port("x", ["N", *size, 3])], [port("y", ["N", 3])], [tensor("w", [3, 3, 3, 3], PIXELS[:81])])
    wanted = losses(folder, made((8, 8)), name="fixed")
    assert losses(folder, made(("h", "w")), name="open") == wanted


def test_masks_with_channels_last(folder):
    """An output (n, h, w, classes) of an input (n, h, w, channels)."""
    write_images(folder / "data", channels=3, masks=True)
    last = lambda end, name: model([node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]), node("Conv", ["t", "w"], ["c"], pads=[1, 1, 1, 1]),
                                    node("Transpose", ["c"], ["u"], perm=[0, 2, 3, 1]), *([node("Softmax", ["u"], ["y"], axis=3)] if end else
                                                                                          [node("Identity", ["u"], ["y"])])],
                                   [port("x", ["N", 8, 8, 3])], [port("y", ["N", 8, 8, 3])], [tensor("w", [3, 3, 3, 3], PIXELS[:81])])
    first = model([node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], [port("x", ["N", 3, 8, 8])], [port("y", ["N", 3, 8, 8])],
                  [tensor("w", [3, 3, 3, 3], PIXELS[:81])])
    wanted = losses(folder, first, name="first")
    assert losses(folder, last(False, "last"), name="last") == wanted
    assert losses(folder, last(True, "softmax"), name="softmax") == wanted
    done = run_any("eval", folder / "last.onnx", "--data", folder / "data", "--json")
    assert done.returncode == 0, done.stderr


def test_sigmoid_at_the_end(folder):
    """Predictions of a model that ends with Sigmoid are labels, each with the number that the model gives."""
    data = model([node("Flatten", ["x"], ["f"]), node("Gemm", ["f", "w"], ["g"], transB=1), node("Sigmoid", ["g"], ["y"])],
                 [port("x", ["N", 1, 8, 8])], [port("y", ["N", 3])], [tensor("w", [3, 64], [v / 8 for v in PIXELS[:192]])])
    wanted = output_of(folder, data, [1, 1, 8, 8])[1]
    write_npy(folder / "image.npy", [8, 8, 1], PIXELS[:64])
    done = run_any("predict", folder / "model.onnx", folder / "image.npy", "--json", "--top", 3)
    assert done.returncode == 0, done.stderr
    close(json.loads(done.stdout)["values"], wanted, 2e-6)


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                test(pathlib.Path(folder))


main()
