#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Models that are written anew: which inputs and outputs they have, and dimensions of parameters.

usage: onnx_written_test.py PROGRAM
"""
import pathlib
import struct
import tempfile

from onnx_made import INT64, model, node, port, tensor
from onnx_run import read_npy, run_any, succeed, write_npy

VALUES = [((i * 37) % 101 - 50) / 40 for i in range(1024)]
GRAPH, NODE, INITIALIZER, INPUT, OUTPUT = 7, 1, 5, 11, 12


def read_varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7f) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """Number and value of each field of a message."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        if key & 7 == 0:
            value, at = read_varint(data, at)
        elif key & 7 == 2:
            length, at = read_varint(data, at)
            value, at = data[at:at + length], at + length
        else:
            size = 4 if key & 7 == 5 else 8
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def graph_of(path):
    return next(value for number, value in fields(path.read_bytes()) if number == GRAPH)


def names_of(path, kind):
    return [next(value for number, value in fields(entry) if number == 1).decode()
            for key, entry in fields(graph_of(path)) if key == kind]


def parameters_of(path):
    """Dims and bytes of initializers by name."""
    made = {}
    for key, entry in fields(graph_of(path)):
        if key == INITIALIZER:
            parts = list(fields(entry))
            dims = [value for number, value in parts if number == 1 and isinstance(value, int)]
            for value in (value for number, value in parts if number == 1 and isinstance(value, bytes)):
                at = 0
                while at < len(value):
                    dim, at = read_varint(value, at)
                    dims.append(dim)
            name = next(value for number, value in parts if number == 8).decode()
            made[name] = dims, next((value for number, value in parts if number == 9), b"")
    return made


def operators_of(path):
    return [next(value for number, value in fields(entry) if number == 4).decode()
            for key, entry in fields(graph_of(path)) if key == NODE]


def export(source, *options, out):
    done = run_any("export", source, *options, "-o", out)
    assert done.returncode == 0, done.stderr
    return out


def output_of(path, dims, name="y"):
    count = 1
    for dim in dims:
        count *= dim
    write_npy(path.parent / "x.npy", dims, VALUES[:count])
    succeed(path, f"x={path.parent}/x.npy", "-o", f"{name}={path.parent}/y.npy")
    return read_npy(path.parent / "y.npy")


def test_series(folder):
    """Weights of convolutions over one dimension keep their dimensions, without a Transpose."""
    shapes = {"conv.weight": [4, 3, 5], "conv.bias": [4], "up.weight": [4, 2, 3], "fc.weight": [3, 2], "fc.bias": [3]}
    weights = {name: struct.pack(f"<{len(values)}f", *values) for name, dims in shapes.items()
               for values in [VALUES[len(dims):len(dims) + dims[0] * (dims + [1])[1] * (dims + [1, 1])[2]]]}
    start = folder / "series.onnx"
    start.write_bytes(model(
        [node("Conv", ["x", "conv.weight", "conv.bias"], ["a"], pads=[2, 2]), node("Relu", ["a"], ["b"]),
         node("ConvTranspose", ["b", "up.weight"], ["c"], strides=[2]), node("GlobalAveragePool", ["c"], ["d"]),
         node("Flatten", ["d"], ["e"]), node("Gemm", ["e", "fc.weight", "fc.bias"], ["y"], transB=1)],
        [port("x", ["N", 3, 16])], [port("y", ["N", 3])],
        [tensor(name, dims, weights[name]) for name, dims in shapes.items()]))
    dims, wanted = output_of(start, [2, 3, 16])
    for options in (["--opset", 17], ["--opset", 22, "--fold-batch-norm"], ["--gradient"]):
        made = export(start, *options, out=folder / "series_out.onnx")
        written = parameters_of(made)
        for name, shape in shapes.items():
            assert written[name] == (shape, weights[name]), (options, name, written[name][0])
        assert "--gradient" in options or "Transpose" not in operators_of(made), operators_of(made)
        if "--gradient" not in options:
            got_dims, got = output_of(made, [2, 3, 16])
            assert got_dims == dims and all(abs(a - b) <= 1e-6 for a, b in zip(got, wanted)), (options, got, wanted)


def test_gradient_outputs(folder):
    """The gradient graph has an input for outputs that parameters have gradients of, not for others."""
    start = folder / "outputs.onnx"
    start.write_bytes(model(
        [node("Conv", ["x", "w"], ["y"]), node("ArgMax", ["y"], ["place"], axis=1), node("Relu", ["x"], ["seen"]),
         node("Greater", ["y", "zero"], ["above"]), node("Cast", ["above"], ["mask"], to=1), node("Tanh", ["y"], ["z"])],
        [port("x", ["N", 2, 4, 4])],
        [port("place", ["N", 1, 4, 4], 7), port("y", ["N", 3, 4, 4]), port("seen", ["N", 2, 4, 4]), port("mask", ["N", 3, 4, 4]),
         port("z", ["N", 3, 4, 4])],
        [tensor("w", [3, 2, 1, 1], VALUES[:6]), tensor("zero", [], [0.0])]))
    made = export(start, "--gradient", out=folder / "outputs_gradient.onnx")
    assert names_of(made, INPUT) == ["x", "y_grad", "z_grad"], names_of(made, INPUT)
    assert names_of(made, OUTPUT)[:5] == ["place", "y", "seen", "mask", "z"] and "w_grad" in names_of(made, OUTPUT)
    write_npy(folder / "x.npy", [1, 2, 4, 4], VALUES[:32])
    write_npy(folder / "dy.npy", [1, 1, 4, 4], VALUES[:16])
    done = run_any("run", start, f"x={folder}/x.npy", "--gradient", f"place={folder}/dy.npy", "-o", folder / "never.safetensors")
    assert done.returncode in (1, 2) and "no parameter has a gradient" in done.stderr, done
    assert done.stderr.count("\n") == 1 and not (folder / "never.safetensors").exists()
    start.write_bytes(model([node("Relu", ["x"], ["y"])], [port("x", ["N", 2])], [port("y", ["N", 2])]))
    done = run_any("export", start, "--gradient", "-o", folder / "never.onnx")
    assert done.returncode in (1, 2) and "no output has a gradient" in done.stderr and done.stderr.count("\n") == 1, done
    assert not (folder / "never.onnx").exists()


def test_old_softmax(folder):
    """Before operator set 13 a softmax goes over all dimensions from its axis on."""
    for kind in ("Softmax", "LogSoftmax"):
        for axis in (0, 1, 2):
            start = folder / "old.onnx"
            start.write_bytes(model(
                [node("Mul", ["x", "k"], ["a"]), node("Transpose", ["a"], ["b"], perm=[0, 2, 3, 1]), node(kind, ["b"], ["y"], axis=axis)],
                [port("x", ["N", 2, 3, 4])], [port("y", ["N", 3, 4, 2])], [tensor("k", [1, 2, 1, 4], VALUES[:8])], opset=11))
            dims, wanted = output_of(start, [2, 2, 3, 4])
            made = export(start, "--opset", 18, out=folder / "new.onnx")
            got_dims, got = output_of(made, [2, 2, 3, 4])
            assert got_dims == dims and all(abs(a - b) <= 1e-6 * max(1, abs(b)) for a, b in zip(got, wanted)), (kind, axis)
            gradient = export(start, "--gradient", out=folder / "gradient.onnx")
            assert kind + "Grad" in operators_of(gradient), operators_of(gradient)


def test_dimensions(folder):
    """What depends on the batch is called batch where it is the batch, whatever dimension it is."""
    start = folder / "dimensions.onnx"
    start.write_bytes(model(
        [node("Mul", ["x", "k"], ["a"]), node("Reshape", ["a", "rows"], ["y"]), node("Transpose", ["a"], ["z"], perm=[1, 0])],
        [port("x", ["N", 6])], [port("y", ["M", 3]), port("z", [6, "N"])],
        [tensor("k", [6], VALUES[:6]), tensor("rows", [2], [-1, 3], INT64)]))
    made = export(start, "--gradient", out=folder / "dimensions_gradient.onnx")
    named = {}
    for kind, entry in fields(graph_of(made)):
        if kind in (INPUT, OUTPUT):
            parts = dict(fields(entry))
            shape = dict(fields(dict(fields(parts[2]))[1]))[2]
            named[parts[1].decode()] = [dict(fields(dim)).get(1, dict(fields(dim)).get(2)) for _, dim in fields(shape)]
    assert named == {"x": [b"batch", 6], "y": [None, 3], "z": [6, b"batch"], "y_grad": [None, 3], "z_grad": [6, b"batch"],
                     "k_grad": [6]}, named


def main():
    for test in (test_series, test_gradient_outputs, test_old_softmax, test_dimensions):
        with tempfile.TemporaryDirectory() as name:
            test(pathlib.Path(name))


if __name__ == "__main__":
    main()
