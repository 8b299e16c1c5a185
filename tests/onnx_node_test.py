#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Runs the node tests and the light networks of the Python package `onnx` with `retrograde run`.

usage: onnx_node_test.py PROGRAM [--list] [--only PART]

Every case passes, or its model is refused as not covered; with --list each case is printed with the
reason. A case of an operator that docs/onnx.md lists must not be refused for the operator itself.
Skips where the package is missing.
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import numpy_helper
    from onnx.backend.test.case.node import collect_testcases
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

NPY = {"f2", "f4", "f8", "u1", "i4", "i8"}
# Operators of which at least one case must pass.
COVERED = """Abs Add ArgMax ArgMin AveragePool BatchNormalization Clip Concat Conv ConvTranspose Div Dropout Elu Exp
Flatten Gelu Gemm GlobalAveragePool GlobalMaxPool GroupNormalization HardSigmoid HardSwish Identity
InstanceNormalization LRN LayerNormalization LeakyRelu Log LogSoftmax MatMul MaxPool Mean Mish Mul
NegativeLogLikelihoodLoss PRelu Pad Pow Reciprocal ReduceMax ReduceMean ReduceMin ReduceSum Relu Reshape Resize
Selu Shape Sigmoid Slice Softmax SoftmaxCrossEntropyLoss Softplus Softsign Split Sqrt Squeeze Sub Sum Tanh Transpose
Unsqueeze""".split()


def is_array(value):
    return isinstance(value, np.ndarray) and value.dtype.str[1:] in NPY


def run_case(program, folder, model, inputs, outputs, rtol, atol):
    """"" if the case passes, "not covered: …", or what is wrong."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    known = {i.name for i in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in known]
    command = [str(program), "run", str(path)]
    for name, value in zip(names, inputs):
        if not is_array(value):
            return "not covered: inputs of other types"
        np.save(folder / f"in{len(command)}.npy", value)
        command.append(f"{name}={folder}/in{len(command)}.npy")
    results = []
    for output, wanted in zip(model.graph.output, outputs):
        if not isinstance(wanted, np.ndarray):
            return "not covered: outputs of other types"
        results.append(folder / f"out{len(results)}.npy")
        command += ["-o", f"{output.name}={results[-1]}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode not in (0, 1, 2) or (done.returncode and not done.stderr.startswith("retrograde: ")):
        return f"crash {done.returncode}: {done.stderr[:300]}"
    if done.returncode:
        text = done.stderr.strip()
        match = re.search(r"not covered: .*|has elements of type .*|stored in .*", text)
        return "not covered: " + match.group(0)[:160] if match else text
    for path, wanted in zip(results, outputs):
        got = np.load(path)
        if got.shape != wanted.shape:
            return f"shape {got.shape} in place of {wanted.shape}"
        try:
            np.testing.assert_allclose(got.astype(wanted.dtype) if wanted.dtype != bool else got != 0, wanted,
                                       rtol=rtol, atol=atol)
        except AssertionError as wrong:
            return " ".join(str(wrong).split())[:300]
    return ""


def bake(model, inputs):
    """The model with all inputs but the first as initializers, and the input that is left."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for port, value in list(zip(model.graph.input, inputs))[1:]:
        if isinstance(value, np.ndarray):
            model.graph.initializer.append(numpy_helper.from_array(value, port.name))
    del model.graph.output[1:] # further outputs, such as masks, may not be covered
    return model, [value for port, value in list(zip(model.graph.input, inputs))
                   if port.name not in {i.name for i in model.graph.initializer}]


def light_networks():
    folder = pathlib.Path(os.path.dirname(onnx.__file__)) / "backend/test/data/light"
    for path in sorted(folder.glob("light_*.onnx")):
        model = onnx.load(path)
        known = {i.name for i in model.graph.initializer}
        inputs = []
        for port in model.graph.input:
            if port.name not in known:
                shape = [d.dim_value for d in port.type.tensor_type.shape.dim]
                count = int(np.prod(shape))
                inputs.append((np.arange(count).reshape(shape).astype(np.float32)) / count)
        tensor = onnx.TensorProto()
        tensor.ParseFromString((folder / (path.stem + "_output_0.pb")).read_bytes())
        yield path.stem, model, inputs, [numpy_helper.to_array(tensor)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    counts, failed, covered = collections.Counter(), [], set()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cases = []
        for case in collect_testcases(None):
            if options.only in case.name and case.model is not None:
                inputs, outputs = case.data_sets[0]
                cases.append((case.name, case.model, inputs, outputs, case.rtol, case.atol))
        for light, model, inputs, outputs in light_networks():
            if options.only in light:
                cases.append((light, model, inputs, outputs, 2e-3, 1e-7))
        for label, model, inputs, outputs, rtol, atol in cases:
            outcome = run_case(options.program.resolve(), folder, model, inputs, outputs, rtol, max(atol, 1e-6))
            if outcome.startswith("not covered"): # sizes and axes as constants, the first output alone
                baked, left = bake(model, inputs)
                again = run_case(options.program.resolve(), folder, baked, left, outputs[:1], rtol, max(atol, 1e-6))
                outcome = again if not again or not again.startswith("not covered") else outcome
            kind = "passes" if not outcome else "not covered" if outcome.startswith("not covered") else "FAILS"
            counts[kind] += 1
            if kind == "passes":
                covered |= {node.op_type for node in model.graph.node}
            if kind == "FAILS":
                failed.append(label)
            if kind == "FAILS" or options.list:
                print(f"{kind:12} {label}: {outcome}")
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    missing = [op for op in COVERED if op not in covered] if not options.only else []
    if missing:
        print("no case passes of:", " ".join(missing))
    sys.exit(1 if failed or missing else 0)


if __name__ == "__main__":
    main()
