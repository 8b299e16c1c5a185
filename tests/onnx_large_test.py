#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Commands on models of thousands of layers: their time grows with the number of layers, not with its square.

usage: onnx_large_test.py PROGRAM
"""
import pathlib
import resource
import tempfile

from onnx_made import model, node, port, tensor
from onnx_run import run, succeed, write_npy


def seconds_of(function):
    """Of the processor, in the programs that the function runs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    function()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(what, prepare, few):
    """`prepare` makes files for a number of layers and returns what is timed."""
    one, four = seconds_of(prepare(few)), seconds_of(prepare(4 * few))
    print(f"{what}, {few} and {4 * few} layers: {one:.2f} and {four:.2f} s")
    assert four < 9 * one + 0.6, what  # 4 times, or 16 where a search is linear in each layer


def chain(layers, shared):
    """Batch normalizations in a row: their statistics are tensors of their own, or two for all."""
    nodes, tensors = [], []
    for i in range(layers):
        names = ["ones", "zeros", "zeros", "ones"] if shared else [f"{kind}{i}" for kind in ("s", "b", "m", "v")]
        if not shared:
            tensors += [tensor(name, [1], [float(name[0] in "sv")]) for name in names]
        nodes.append(node("BatchNormalization", [f"y{i - 1}" if i else "x", *names], [f"y{i}" if i + 1 < layers else "y"]))
    tensors += [tensor("ones", [1], [1.0]), tensor("zeros", [1], [0.0])] if shared else []
    return model(nodes, [port("x", ["N", 1, 2, 2])], [port("y", ["N", 1, 2, 2])], tensors, opset=15)


def test_run(folder):
    write_npy(folder / "x.npy", [1, 1, 2, 2], [0.5, 1.0, -1.0, 2.0])
    for shared in (False, True):
        def prepare(layers):
            (folder / "m.onnx").write_bytes(chain(layers, shared))
            return lambda: succeed(folder / "m.onnx", f"x={folder}/x.npy", "-o", f"y={folder}/y.npy")
        compare("run with shared statistics" if shared else "run", prepare, 5000)


def test_gradient_graph(folder):
    def prepare(layers):
        (folder / "m.onnx").write_bytes(chain(layers, False))
        return lambda: export(folder / "m.onnx", folder / "gradient.onnx", "--gradient")
    compare("export --gradient", prepare, 1500)


def export(*arguments):
    done = run(arguments[0], "-o", *arguments[1:], command="export")
    assert done.returncode == 0, done.stderr


def test_weights(folder):
    """A model as text, its weights for PyTorch, and as text again."""
    def prepare(layers):
        (folder / "m.txt").write_text("batch_norm epsilon=1e-5\n" * layers + "dense classes\n")
        return lambda: export(folder / "m.txt", folder / "m.safetensors", "--height", "2", "--width", "2")
    compare("export of weights", prepare, 3000)

    def prepare_import(layers):
        prepare(layers)
        export(folder / "m.txt", folder / "m.onnx", "--height", "2", "--width", "2")
        return lambda: run(folder / "m.onnx", "-o", folder / "m2.txt", command="import")
    compare("import", prepare_import, 3000)


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                test(pathlib.Path(folder))


main()
