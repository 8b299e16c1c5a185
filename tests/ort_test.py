# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Gradient operators inside stock ONNX Runtime, against their formulas in double.

usage: ort_test.py LIBRARY [--seed N] [--cases N]
Needs the packages onnx and onnxruntime (tools/setup ci installs them); without them it is skipped,
which counts as a failure where CI=true.
"""
import argparse
import math
import os
import random
import sys
import threading

try:
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(1 if os.environ.get("CI") == "true" else 77)

TYPES = {"f32": (TensorProto.FLOAT, np.float32), "f64": (TensorProto.DOUBLE, np.float64),
         "f16": (TensorProto.FLOAT16, np.float16), "bf16": (TensorProto.BFLOAT16, np.float32)}
TOLERANCE = {"f32": 1e-5, "f64": 1e-12, "f16": 2e-3, "bf16": 1e-2}  # of the largest element
DOMAINS = ("com.microsoft", "org.retrograde")


def session(library, name, shapes, dtype, attributes, domain, threads=0):
    """A node alone; bf16 goes in and out as f32, through casts."""
    kind = TYPES[dtype][0]
    given = TensorProto.FLOAT if dtype == "bf16" else kind
    inputs = [helper.make_tensor_value_info(f"i{k}", given, shape) for k, shape in enumerate(shapes)]
    nodes, names = [], [f"i{k}" for k in range(len(shapes))]
    if dtype == "bf16":
        nodes = [helper.make_node("Cast", [n], [n + "c"], to=kind) for n in names]
        names = [n + "c" for n in names]
    nodes.append(helper.make_node(name, names, ["o"], domain=domain, **attributes))
    if dtype == "bf16":
        nodes.append(helper.make_node("Cast", ["o"], ["oc"], to=TensorProto.FLOAT))
    result = helper.make_tensor_value_info("oc" if dtype == "bf16" else "o", given, None)
    graph = helper.make_graph(nodes, "node", inputs, [result])
    model = helper.make_model(graph, ir_version=9,
                              opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)])
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(library)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(library, name, arrays, dtype, attributes, domain=DOMAINS[0]):
    arrays = [a.astype(TYPES[dtype][1]) for a in arrays]
    s = session(library, name, [a.shape for a in arrays], dtype, attributes, domain)
    return s.run(None, {f"i{k}": a for k, a in enumerate(arrays)})[0]


# ---- formulas, in double ----


def axes_of(shape, axis, flat):
    axis %= len(shape)
    return tuple(range(axis, len(shape))) if flat else (axis,)


def softmax_grad(dy, y, axis, flat):
    return (dy - (dy * y).sum(axes_of(y.shape, axis, flat), keepdims=True)) * y


def log_softmax_grad(dy, y, axis, flat):
    return dy - np.exp(y) * dy.sum(axes_of(y.shape, axis, flat), keepdims=True)


def erf(x):
    return np.vectorize(math.erf, otypes=[float])(x)


def gelu_tanh_grad(dy, x):
    k = math.sqrt(2 / math.pi)
    t = np.tanh(k * (x + 0.044715 * x**3))
    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x))


def quick_gelu_grad(dy, x, alpha=1.702):
    s = 1 / (1 + np.exp(-alpha * x))
    return dy * s * (1 + alpha * x * (1 - s))


# name: what the second input is, the formula with the attributes as keywords
OPERATORS = {
    "SoftmaxGrad": ("y", lambda dy, y, axis=1: softmax_grad(dy, y, axis, True)),
    "SoftmaxGrad_13": ("y", lambda dy, y, axis=-1: softmax_grad(dy, y, axis, False)),
    "LogSoftmaxGrad": ("log", lambda dy, y, axis=1: log_softmax_grad(dy, y, axis, True)),
    "LogSoftmaxGrad_13": ("log", lambda dy, y, axis=-1: log_softmax_grad(dy, y, axis, False)),
    "ReluGrad": ("x", lambda dy, x: dy * (x > 0)),
    "LeakyReluGrad": ("x", lambda dy, y, alpha=0.01: np.where(y > 0, dy, alpha * dy)),
    "SigmoidGrad": ("y", lambda dy, y: dy * y * (1 - y)),
    "TanhGrad": ("y", lambda dy, y: dy * (1 - y * y)),
    "GeluGrad": ("x", lambda dy, x: dy * (0.5 * (1 + erf(x / math.sqrt(2))) +
                                          x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi))),
    "FastGeluGrad": ("x", gelu_tanh_grad),
    "QuickGeluGrad": ("x", quick_gelu_grad),
}


def second_input(kind, shape, draw):
    values = draw.uniform(-2, 2, shape)
    return values if kind == "x" else np.abs(values) / 2 if kind == "y" else -np.abs(values)


def as_stored(array, dtype):
    """The number that an element of the dtype holds."""
    if dtype != "bf16":
        return array.astype(TYPES[dtype][1]).astype(float)
    bits = array.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(float)


class Failures:
    def __init__(self):
        self.runs, self.list = 0, []

    def compare(self, what, got, want, dtype):
        self.runs += 1
        if got.shape != want.shape:
            self.list.append(f"{what}: shape {got.shape}, not {want.shape}")
        elif want.size and not np.abs(got - want).max() <= TOLERANCE[dtype] * max(np.abs(want).max(), 1e-30):
            self.list.append(f"{what}: largest difference {np.abs(got - want).max()}")

    def expect(self, condition, what):
        self.runs += 1
        if not condition:
            self.list.append(what)


# ---- tests ----


def test_golden(library, failures):
    """Rows that ONNX Runtime's own training build gives, for inputs that are exact in binary."""
    i = np.arange(24)
    dy, y = ((i % 5) * 0.25 - 0.5).reshape(2, 3, 4), (((7 * i) % 11 + 1) / 64).reshape(2, 3, 4)
    golden = {("SoftmaxGrad", 0): [-0.008544922, -0.03710938, -0.002929688, 0.03491211],
              ("SoftmaxGrad", 1): [-0.008300781, -0.03515625, -0.001953125, 0.03759766],
              ("SoftmaxGrad", 2): [-0.007873535, -0.03173828, -0.0002441406, 0.04229736],
              ("SoftmaxGrad_13", 0): [-0.00769043, -0.02929688, -0.005371094, 0.04498291],
              ("SoftmaxGrad_13", 1): [-0.008666992, -0.03320312, 0.004882812, 0.03625488],
              ("SoftmaxGrad_13", 2): [-0.007873535, -0.03173828, -0.0002441406, 0.04229736]}
    for (name, axis), row in golden.items():
        got = run(library, name, [dy, y], "f32", {"axis": axis})
        failures.expect(np.abs(got.ravel()[:4] - row).max() < 1e-8, f"{name} axis {axis}: {got.ravel()[:4]}")


def test_operators(library, failures, rng, draw, cases):
    for number in range(cases):
        name = sorted(OPERATORS)[number % len(OPERATORS)]
        kind, formula = OPERATORS[name]
        shape = tuple(rng.choice((1, 2, 3, 5, 8, 17, 33, 64)) for _ in range(rng.randint(1, 4)))
        attributes = {}
        if "Softmax" in name and (len(shape) < 2 or rng.random() < 0.8):
            attributes["axis"] = rng.randrange(-len(shape), len(shape))
        if name in ("LeakyReluGrad", "QuickGeluGrad") and rng.random() < 0.5:
            attributes["alpha"] = rng.choice((0.25, 0.5, 1.0))
        arrays = [draw.uniform(-1, 1, shape), second_input(kind, shape, draw)]
        for dtype in TYPES:
            got = run(library, name, arrays, dtype, attributes, rng.choice(DOMAINS))
            want = formula(*(as_stored(a, dtype) for a in arrays), **attributes)
            failures.compare(f"{name} {dtype} {shape} {attributes}", got.astype(float), want, dtype)


def test_large(library, failures, draw):
    """Shared among the runtime's threads, from several callers at the same time: one result."""
    dy, y = (draw.uniform(0, 1, (96, 40, 129)).astype(np.float32) for _ in range(2))
    want = softmax_grad(dy.astype(float), y.astype(float), 1, False)
    results = []
    for threads in (1, 2, 3):
        s = session(library, "SoftmaxGrad_13", [dy.shape, y.shape], "f32", {"axis": 1}, DOMAINS[0], threads)

        def call():
            results.append(s.run(None, {"i0": dy, "i1": y})[0])

        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    failures.expect(len(results) == 12, "callers that failed")
    for got in results:
        failures.compare("many threads", got, want, "f32")
        failures.expect(np.array_equal(got, results[0]), "bits depend on threads")


def test_edges(library, failures):
    for shape, axis in (((3, 0), 0), ((2, 0, 4), 1), ((0,), 0), ((0, 5), -1)):
        empty = np.zeros(shape)
        got = run(library, "SoftmaxGrad_13", [empty, empty], "f32", {"axis": axis})
        failures.expect(got.shape == shape, f"empty {shape} axis {axis}: {got.shape}")
    nan = run(library, "SoftmaxGrad_13", [np.array([[1, np.nan], [1, 2]]), np.full((2, 2), 0.5)], "f32", {})
    failures.expect(np.isnan(nan[0]).all() and np.isfinite(nan[1]).all(), f"NaN: {nan}")
    one, other = np.ones((2, 3)), np.ones((3, 2))
    refused = (("SoftmaxGrad", [np.ones(4)] * 2, {}, "axis"), ("SoftmaxGrad_13", [one, one], {"axis": 2}, "axis"),
               ("SoftmaxGrad_13", [one, one], {"axis": -3}, "axis"), ("SoftmaxGrad", [np.ones(())] * 2, {}, "axis"),
               ("SoftmaxGrad_13", [one, other], {}, "3, 2"), ("ReluGrad", [one, other], {}, "3, 2"),
               ("TanhGrad", [np.ones((1,) * 9)] * 2, {}, "9 dimensions"))
    for name, arrays, attributes, words in refused:
        try:
            run(library, name, arrays, "f32", attributes)
            failures.expect(False, f"{name} {attributes} was not refused")
        except Exception as error:  # the runtime has many classes for it
            failures.expect(words in str(error), f"{name} {attributes}: no '{words}' in: {error}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=66)
    options = parser.parse_args()
    library, failures = os.path.abspath(options.library), Failures()
    draw = np.random.default_rng(options.seed)
    test_golden(library, failures)
    test_operators(library, failures, random.Random(options.seed), draw, options.cases)
    test_large(library, failures, draw)
    test_edges(library, failures)
    for failure in failures.list[:20]:
        print(failure)
    print(f"ONNX Runtime {ort.__version__}, seed {options.seed}")
    print(f"{failures.runs - len(failures.list)} passed, {len(failures.list)} failed")
    return 1 if failures.list else 0


if __name__ == "__main__":
    sys.exit(main())
