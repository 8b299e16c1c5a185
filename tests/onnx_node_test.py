#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Runs the node tests and the light networks of the Python package `onnx`, or the cases of a folder, with `retrograde run`.

usage: onnx_node_test.py PROGRAM [--data FOLDER] [--list] [--only PART]

FOLDER has cases as Debian's libonnx-testdata does: */CASE/model.onnx and */CASE/test_data_set_0/input_0.pb.

Every case passes, or its model is refused as not covered; with --list each case is printed with the
reason. A case of operators that docs/onnx.md lists passes, or onnx_not_covered.txt has its reason;
for the cases of a folder onnx_not_covered_data.txt has further ones. Skips where the package, or the folder, is missing.
"""
import argparse
import collections
import fnmatch
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
    sys.exit(1 if os.environ.get("CI") == "true" else 77)

NPY = {"f2", "f4", "f8", "u1", "i4", "i8"}
# Operators of models. A case that has no others is refused only for a reason that the list has.
COVERED = set("""Abs Add ArgMax ArgMin AveragePool BatchNormalization Cast Celu Clip Concat Constant ConstantOfShape Conv
ConvTranspose DepthToSpace Div Dropout Elu Exp Expand Flatten Gather Gelu Gemm GlobalAveragePool GlobalLpPool
GlobalMaxPool GroupNormalization HardSigmoid HardSwish Identity InstanceNormalization LRN LayerNormalization LeakyRelu
Log LogSoftmax LpPool MatMul Max MaxPool Mean Min Mish Mul Neg NegativeLogLikelihoodLoss PRelu Pad Pow Range Reciprocal
ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu
Reshape Resize Selu Shape Sigmoid Size Slice Softmax SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth Split Sqrt
Squeeze Sub Sum Swish Tanh ThresholdedRelu Tile Transpose Unsqueeze Upsample Where""".split())
# Of these no case is of operators of models alone, or none can pass.
NO_CASE = {"Upsample", "Cast", "GlobalLpPool"}


def read_reasons(name):
    """Lines of a list: a pattern of names of cases, two spaces or more, the reason."""
    reasons = {}
    for line in (pathlib.Path(__file__).parent / name).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, reason = re.split(r"\s{2,}", line.strip(), maxsplit=1)
            reasons[pattern] = reason
    return reasons


def value_of(path, port):
    """A value of a case: an array, or None for sequences and others."""
    if not port.type.HasField("tensor_type"):
        return None
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


def data_cases(folder):
    """Cases in folders, with the tolerances of the package."""
    for path in sorted(folder.glob("*/*/model.onnx")):
        model, data = onnx.load(path), path.parent / "test_data_set_0"
        values = [[value_of(data / f"{kind}_{i}.pb", port) for i, port in enumerate(ports)
                   if (data / f"{kind}_{i}.pb").exists()]
                  for kind, ports in (("input", model.graph.input), ("output", model.graph.output))]
        yield path.parent.name, model, *values, 1e-3, 1e-7


def package_cases(only):
    for case in collect_testcases(None):
        if only in case.name and case.model is not None:
            inputs, outputs = ([array_of(value) for value in values] for values in case.data_sets[0])
            yield case.name, case.model, inputs, outputs, case.rtol, case.atol
    for light, model, inputs, outputs in light_networks():
        yield light, model, inputs, outputs, 2e-3, 1e-7


def array_of(value):
    """Numbers of numpy and of Python as arrays; anything else as it is."""
    return np.asarray(value) if isinstance(value, (np.generic, float, int)) else value


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
        match = re.search(r"not covered: .*|has elements of type .*|stored in .*|it uses operator set .*", text)
        return "not covered: " + match.group(0)[:160] if match else text
    for path, wanted in zip(results, outputs):
        got = np.load(path)
        if got.shape != wanted.shape:
            return f"shape {got.shape} in place of {wanted.shape}"
        try:
            rough = {"float16": 4e-3, "bfloat16": 3e-2}.get(wanted.dtype.name, 0)  # nodes round one by one
            np.testing.assert_allclose(got.astype(wanted.dtype) if wanted.dtype != bool else got != 0, wanted,
                                       rtol=max(rtol, rough), atol=max(atol, rough / 100))
        except AssertionError as wrong:
            return " ".join(str(wrong).split())[:300]
    return ""


def bake(model, inputs, keep):
    """The model with all inputs but, if `keep`, the first of floating-point numbers as initializers; that input."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    pairs = list(zip(model.graph.input, inputs))
    kept = keep and next((port.name for port, value in pairs if is_array(value) and value.dtype.kind == "f"), "")
    for port, value in pairs:
        if port.name != kept and isinstance(value, np.ndarray) and value.dtype.names is None:
            model.graph.initializer.append(numpy_helper.from_array(value, port.name))
    del model.graph.output[1:] # further outputs, such as masks, may not be covered
    known = {i.name for i in model.graph.initializer}
    return model, [value for port, value in pairs if port.name not in known]


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
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    counts, failed, covered = collections.Counter(), [], set()
    reasons, used = read_reasons("onnx_not_covered.txt"), set()
    if options.data and not options.data.is_dir():
        print(f"skipped: there is no {options.data}")
        sys.exit(77)
    if options.data: # the newer package has all of the first list
        used |= set(reasons)
        reasons = {**read_reasons("onnx_not_covered_data.txt"), **reasons}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for label, model, inputs, outputs, rtol, atol in data_cases(options.data) if options.data else package_cases(options.only):
            if options.only not in label:
                continue
            outcome = run_case(options.program.resolve(), folder, model, inputs, outputs, rtol, max(atol, 1e-6))
            if outcome.startswith("not covered"): # sizes and axes as constants, the first output alone
                baked, left = bake(model, inputs, True)
                outcome = run_case(options.program.resolve(), folder, baked, left, outputs[:1], rtol, max(atol, 1e-6))
                if outcome.startswith("not covered") and left:
                    baked, left = bake(model, inputs, False)
                    again = run_case(options.program.resolve(), folder, baked, left, outputs[:1], rtol, max(atol, 1e-6))
                    outcome = "" if not again else outcome
            kind = "passes" if not outcome else "not covered" if outcome.startswith("not covered") else "FAILS"
            if options.data and "it uses operator set" in outcome:
                kind = "of operator sets before 7"
            known = [pattern for pattern in reasons if fnmatch.fnmatchcase(label, pattern)]
            if kind == "not covered" and {node.op_type for node in model.graph.node} <= COVERED:
                used |= set(known)
                kind = "listed" if known else "FAILS"
            elif kind == "FAILS" and known and reasons[known[0]].startswith("differs: "):
                used |= set(known)
                kind = "listed"
            counts[kind] += 1
            if kind == "passes":
                covered |= {node.op_type for node in model.graph.node}
            if kind == "FAILS":
                failed.append(label)
            if kind == "FAILS" or options.list:
                print(f"{kind:12} {label}: {outcome}")
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    missing = sorted(COVERED - covered - NO_CASE) if not options.only and not options.data else []
    if missing:
        print("no case passes of:", " ".join(missing))
    unused = sorted(set(reasons) - used) if not options.only else []
    if unused:
        print("onnx_not_covered.txt has what is covered or not a case:", " ".join(unused))
    sys.exit(1 if failed or missing or unused else 0)


if __name__ == "__main__":
    main()
