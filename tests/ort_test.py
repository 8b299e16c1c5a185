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
import time

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


def run_node(library, name, arrays, outputs, attributes, dtype, *, shape=None, domain=DOMAINS[0], plain=(), wide=()):
    """A node with inputs of several types; a name of "" in `outputs` leaves that one out. The model says that results
    have this shape. Floating-point numbers have the dtype, but for inputs `plain` and results `wide`; bf16 goes in and
    out as f32, through casts."""
    kinds = {np.dtype(np.int64): TensorProto.INT64, np.dtype(np.int32): TensorProto.INT32, np.dtype(np.bool_): TensorProto.BOOL,
             np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE}  # fmt: skip
    given, names, nodes, results, ends = {}, [], [], [], []
    for k, a in enumerate(arrays):
        names.append(f"i{k}" if a is not None else "")
        if a is None:
            continue
        cast = a.dtype.kind == "f" and k not in plain
        given[f"i{k}"] = a.astype(TYPES[dtype][1]) if cast else a
        if cast and dtype == "bf16":
            nodes.append(helper.make_node("Cast", [f"i{k}"], [f"i{k}c"], to=TensorProto.BFLOAT16))
            names[k] += "c"
    kinds[np.dtype(np.float16)] = TensorProto.FLOAT16
    inputs = [helper.make_tensor_value_info(n, kinds[a.dtype], a.shape) for n, a in given.items()]
    nodes.append(helper.make_node(name, names, outputs, domain=domain, **attributes))
    for o in filter(None, outputs):
        cast = dtype == "bf16" and o not in wide
        if cast:
            nodes.append(helper.make_node("Cast", [o], [o + "c"], to=TensorProto.FLOAT))
        ends.append(o + "c" if cast else o)
        kind = TensorProto.FLOAT if dtype == "bf16" or o in wide else TYPES[dtype][0]
        results.append(helper.make_tensor_value_info(ends[-1], kind, shape))
    known = [helper.make_tensor_value_info(o, TYPES[dtype][0], shape) for o in outputs if shape and o not in ends and o]
    graph = helper.make_graph(nodes, "node", inputs, results, value_info=known)
    model = helper.make_model(graph, ir_version=9,
                              opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)])
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(library)
    return ort.InferenceSession(model.SerializeToString(), options).run(None, given)


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

    def node(self, library, name, arrays, outputs, formula, attributes, **more):
        """A node in all types beside its formula, which is given the numbers that elements of the type hold."""
        wide = more.get("wide", ())
        for dtype in TYPES:
            stored = [as_stored(a, dtype) if a.dtype.kind == "f" and k not in more.get("plain", ()) else a
                      for k, a in enumerate(arrays)]
            want = [w for w, o in zip(formula(*stored), outputs) if o]
            got = run_node(library, name, arrays, outputs, attributes, dtype, **more)
            for o, g, w in zip(filter(None, outputs), got, want):
                self.compare(f"{name} {o} {dtype} {attributes} {sorted(more)}", g.astype(float), w,
                             "f32" if o in wide and dtype != "f64" else dtype)

    def refused(self, library, name, arrays, attributes, words, outputs=("d",), domain=DOMAINS[0], dtype="f32"):
        """A node that gets a sentence with these words."""
        try:
            run_node(library, name, arrays, list(outputs), attributes, dtype, domain=domain)
            self.expect(False, f"{name} {attributes} was not refused; it should say '{words}'")
        except Exception as error:  # the runtime has many classes for it
            self.expect(words in str(error), f"{name} {attributes}: no '{words}' in: {error}")

    def expect(self, condition, what):
        self.runs += 1
        if not condition:
            self.list.append(what)


# ---- tests ----


# Of ONNX Runtime's own training build, for 24 elements of shape (2, 3, 4) that are exact in every dtype; and the
# tolerances of its tests, absolute and relative.
GOLDEN = {
    ("SoftmaxGrad", 0):
        "-0.008544922 -0.03710938 -0.002929688 0.03491211 0.04956055 -0.02563477 -0.04638672 "
        "-0.004394531 0.006347656 0.0637207 -0.04272461 -0.004638672 -0.005859375 0.01269531 0.07788086 "
        "-0.05981445 -0.01391602 -0.007324219 0.01904297 0.01416016 -0.0769043 -0.02319336 -0.0007324219 "
        "0.02539062 ",
    ("SoftmaxGrad", 1):
        "-0.008300781 -0.03515625 -0.001953125 0.03759766 0.05126953 -0.02490234 -0.04394531 "
        "-0.002929688 0.006835938 0.06591797 -0.04150391 -0.004394531 -0.001953125 0.01464844 0.08325195 "
        "-0.05639648 -0.01245117 -0.002441406 0.02197266 0.01513672 -0.07250977 -0.02075195 "
        "-0.0002441406 0.02929688 ",
    ("SoftmaxGrad", 2):
        "-0.007873535 -0.03173828 -0.0002441406 0.04229736 0.05554199 -0.02307129 -0.0378418 "
        "0.0007324219 0.006713867 0.06536865 -0.04180908 -0.004455566 -0.005859375 0.01269531 0.07788086 "
        "-0.05981445 -0.01300049 -0.004272461 0.02087402 0.01477051 -0.06207275 -0.01495361 0.0009155273 "
        "0.03857422 ",
    ("SoftmaxGrad_13", 0):
        "-0.00769043 -0.02929688 -0.005371094 0.04498291 0.04998779 -0.02233887 -0.03662109 -0.001464844 "
        "0.009765625 0.06317139 -0.03601074 -0.004333496 0.0009765625 0.01660156 0.07116699 -0.05340576 "
        "-0.01373291 0.003662109 0.02490234 0.01513672 -0.06152344 -0.02349854 0.0006103516 0.02783203 ",
    ("SoftmaxGrad_13", 1):
        "-0.008666992 -0.03320312 0.004882812 0.03625488 0.04870605 -0.02416992 -0.02685547 -0.003662109 "
        "0.006103516 0.06811523 -0.03295898 -0.004516602 0.01025391 0.01586914 0.06713867 -0.05383301 "
        "-0.007873535 0.0006103516 0.01318359 0.01586914 -0.05877686 -0.01922607 -0.001708984 0.03222656 ",
    ("LogSoftmaxGrad", 0):
        "-0.1105996 -0.1823324 0.1839397 0.2819639 0.586887 -0.2638167 -0.2089575 0.1115651 0.5532653 "
        "0.5526996 -0.3567476 0.1394004 0.06766764 0.4339397 0.5319639 -0.413113 -0.01381673 0.0410425 "
        "0.3615651 0.8032653 -0.4473004 -0.1067476 0.3894004 0.3176676 ",
    ("LogSoftmaxGrad", 1):
        "0.0841006 -0.1484985 0.2759096 0.2979459 0.6303304 -0.1457251 -0.1884363 0.1673476 0.704898 "
        "0.5790494 -0.2851214 0.3341006 -0.03383382 0.1580301 0.484018 -0.5434435 -0.3680916 -0.02052125 "
        "0.1942175 0.3483673 -0.5263498 -0.3216262 -0.1947002 0.2161662 ",
    ("LogSoftmaxGrad", 2):
        "-0.1105996 -0.1823324 0.1839397 0.2819639 0.5434435 -0.3819084 -0.2294787 0.05578254 0.25 0.5 "
        "-0.5 -0.25 -0.03383382 0.1580301 0.484018 -0.5434435 -0.4861833 -0.0410425 0.1384349 0.1967347 "
        "-0.4473004 -0.1067476 0.3894004 0.3176676 ",
    ("LogSoftmaxGrad_13", 0):
        "-0.1105996 -0.25 -0.1839397 0.265982 0.4565565 -0.2638167 -0.25 -0.1115651 0.4016327 0.4736502 "
        "-0.3567476 -0.25 0.06766764 0.25 0.4680361 -0.4565565 -0.3680916 0.0410425 0.25 0.1967347 "
        "-0.4736502 -0.3216262 0.3894004 0.25 ",
    ("LogSoftmaxGrad_13", 1):
        "-0.6947002 -0.2161662 0.2759096 0.25 0.4565565 -0.3819084 -0.1884363 0 0.09836733 0.5263498 "
        "-0.2851214 -0.25 0.1015015 0.25 0.4520541 -0.5434435 0.1042749 0 0.08265238 0.3483673 "
        "-0.4209506 -0.25 -0.5841006 0.2161662 ",
}
GOLDEN["SoftmaxGrad_13", 2] = GOLDEN["SoftmaxGrad", 2]
GOLDEN["LogSoftmaxGrad_13", 2] = GOLDEN["LogSoftmaxGrad", 2]
GOLDEN_TOLERANCE = {"f32": 1e-4, "f64": 1e-4, "f16": 1e-3, "bf16": 1e-2}


def test_golden(library, failures):
    i = np.arange(24)
    dy, small = ((i % 5) * 0.25 - 0.5).reshape(2, 3, 4), ((7 * i) % 11 + 1).reshape(2, 3, 4)
    for (name, axis), text in GOLDEN.items():
        want = np.array([float(word) for word in text.split()]).reshape(2, 3, 4)
        y = -small / 4 if name.startswith("Log") else small / 64
        for dtype in TYPES:
            for domain in DOMAINS:
                got = run(library, name, [dy, y], dtype, {"axis": axis}, domain).astype(float)
                error = (np.abs(got - want) / (1 + np.abs(want))).max()
                failures.expect(error <= GOLDEN_TOLERANCE[dtype], f"{name} axis {axis} {dtype}: differs by {error}")
                if dtype in ("f32", "f64"):  # the digits that the rows have
                    failures.expect(error <= 1e-7, f"{name} axis {axis} {dtype}: differs by {error}")


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


def windows(shape, kernel, strides, pads, dilations=(1, 1)):
    """For each output pixel its number and, for each tap inside the image, the tap and the pixel."""
    sizes = [(shape[d] + pads[d] + pads[d + 2] - dilations[d] * (kernel[d] - 1) - 1) // strides[d] + 1
             for d in range(2)]
    for oy, ox in np.ndindex(*sizes):
        taps = []
        for ky, kx in np.ndindex(*kernel):
            y, x = oy * strides[0] - pads[0] + ky * dilations[0], ox * strides[1] - pads[1] + kx * dilations[1]
            if 0 <= y < shape[0] and 0 <= x < shape[1]:
                taps.append(((ky, kx), (y, x)))
        yield (oy, ox), taps


def conv_gradient(dy, x, w, group, strides, pads, dilations):
    dx, dw = np.zeros_like(x), np.zeros_like(w)
    each_in, each_out = w.shape[1], w.shape[0] // group
    for (oy, ox), taps in windows(x.shape[2:], w.shape[2:], strides, pads, dilations):
        for (ky, kx), (py, px) in taps:
            for g in range(group):
                i, o = slice(g * each_in, (g + 1) * each_in), slice(g * each_out, (g + 1) * each_out)
                d = dy[:, o, oy, ox]
                dx[:, i, py, px] += d @ w[o, :, ky, kx]
                dw[o, :, ky, kx] += d.T @ x[:, i, py, px]
    return dx, dw, dy.sum((0, 2, 3))


def test_conv(library, failures, draw):
    for group, strides, pads, dilations in ((1, (1, 1), (0, 0, 0, 0), (1, 1)), (2, (2, 1), (1, 2, 0, 1), (1, 1)),
                                            (1, (1, 2), (2, 2, 2, 2), (2, 2)), (6, (1, 1), (1, 1, 1, 1), (1, 1))):
        x, w = draw.uniform(-1, 1, (2, 6, 9, 8)), draw.uniform(-1, 1, (12, 6 // group, 3, 2))
        sizes = [(x.shape[2 + d] + pads[d] + pads[d + 2] - dilations[d] * (w.shape[2 + d] - 1) - 1) // strides[d] + 1
                 for d in range(2)]
        dy = draw.uniform(-1, 1, (2, 12, *sizes))
        attributes = {"strides": strides, "pads": pads, "dilations": dilations, "group": group, "kernel_shape": (3, 2)}

        def formula(dy, x, w, more=(group, strides, pads, dilations)):
            return conv_gradient(dy, x, w, *more)
        failures.node(library, "ConvGrad", [dy, x, w], ["dX", "dW", "dB"], formula, attributes)
        failures.node(library, "ConvGrad", [dy, x, w], ["", "dW"], formula, attributes)


def test_small_conv(library, failures, draw):
    """A few thousand products, which loops over the definition compute, and the same shapes twice as many times."""
    for images in (1, 2, 40):
        for x, w, strides, pads, dilations, group in (((1, 7, 5), (1, 1, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
                                                      ((4, 6, 5), (2, 2, 3, 2), (2, 3), (2, 0, 1, 1), (1, 2), 2),
                                                      ((3, 1, 9), (3, 1, 1, 4), (1, 2), (0, 3, 0, 3), (1, 1), 3),
                                                      ((2, 3, 3), (5, 2, 3, 3), (3, 3), (4, 4, 4, 4), (1, 1), 1)):
            x, w = draw.uniform(-1, 1, (images, *x)), draw.uniform(-1, 1, w)
            sizes = [(x.shape[2 + d] + pads[d] + pads[d + 2] - dilations[d] * (w.shape[2 + d] - 1) - 1) // strides[d] + 1
                     for d in range(2)]
            dy = draw.uniform(-1, 1, (images, w.shape[0], *sizes))
            attributes = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}

            def formula(dy, x, w, more=(group, strides, pads, dilations)):
                return conv_gradient(dy, x, w, *more)
            for names in (["dX", "dW", "dB"], ["dX"], ["", "dW"], ["", "", "dB"]):
                failures.node(library, "ConvGrad", [dy, x, w], names, formula, attributes)


def volume_gradient(dy, x, w, group, strides, pads, dilations):
    wide = np.zeros(x.shape[:2] + tuple(x.shape[2 + d] + pads[d] + pads[3 + d] for d in range(3)))
    inside = (..., *(slice(pads[d], pads[d] + x.shape[2 + d]) for d in range(3)))
    wide[inside] = x
    dwide, dw = np.zeros_like(wide), np.zeros_like(w)
    each_in, each_out = w.shape[1], w.shape[0] // group
    for tap in np.ndindex(w.shape[2:]):
        at = tuple(slice(tap[d] * dilations[d], tap[d] * dilations[d] + strides[d] * (dy.shape[2 + d] - 1) + 1, strides[d])
                   for d in range(3))
        for g in range(group):
            i, o = slice(g * each_in, (g + 1) * each_in), slice(g * each_out, (g + 1) * each_out)
            dwide[(slice(None), i, *at)] += np.einsum("noxyz,oi->nixyz", dy[:, o], w[(o, slice(None), *tap)])
            dw[(o, slice(None), *tap)] += np.einsum("noxyz,nixyz->oi", dy[:, o], wide[(slice(None), i, *at)])
    return dwide[inside], dw, dy.sum((0, 2, 3, 4))


def test_volume_conv(library, failures, draw):
    for x_shape, w_shape, group, strides, pads, dilations in (
            ((2, 4, 5, 6, 7), (6, 4, 3, 3, 3), 1, (1, 1, 1), (1,) * 6, (1, 1, 1)),
            ((3, 6, 7, 5, 5), (4, 3, 3, 2, 1), 2, (2, 1, 3), (0, 2, 1, 1, 0, 2), (2, 1, 1)),
            ((1, 2, 4, 4, 4), (2, 1, 4, 4, 4), 2, (1, 1, 1), (0,) * 6, (1, 1, 1)), ((0, 2, 3, 3, 3), (2, 2, 3, 3, 3), 1, (1, 1, 1), (0,) * 6, (1, 1, 1)),
            ((1, 1, 1, 1, 2), (1, 1, 1, 1, 2), 1, (1, 1, 1), (3, 0, 4, 0, 2, 5), (1, 1, 2))):  # fmt: skip
        x, w = draw.uniform(-1, 1, x_shape), draw.uniform(-1, 1, w_shape)
        sizes = [(x.shape[2 + d] + pads[d] + pads[3 + d] - dilations[d] * (w.shape[2 + d] - 1) - 1) // strides[d] + 1
                 for d in range(3)]
        dy = draw.uniform(-1, 1, (x_shape[0], w_shape[0], *sizes))
        attributes = {"strides": strides, "pads": pads, "dilations": dilations, "group": group, "kernel_shape": w_shape[2:]}

        def formula(dy, x, w, more=(group, strides, pads, dilations)):
            return volume_gradient(dy, x, w, *more)
        for names in (["dX", "dW", "dB"], ["dX"], ["", "dW"], ["", "", "dB"]):
            failures.node(library, "ConvGrad", [dy, x, w], names, formula, attributes)
    x, w = draw.uniform(-1, 1, (1, 2, 5, 4, 6)), draw.uniform(-1, 1, (3, 2, 2, 3, 4))
    for policy, strides, pads in (("SAME_UPPER", (2, 1, 1), (0, 1, 1, 1, 1, 2)), ("SAME_LOWER", (1, 1, 2), (1, 1, 1, 0, 1, 1)),
                                  ("VALID", (1, 1, 1), (0,) * 6)):  # fmt: skip
        sizes = [(x.shape[2 + d] + pads[d] + pads[3 + d] - w.shape[2 + d]) // strides[d] + 1 for d in range(3)]
        failures.node(library, "ConvGrad", [draw.uniform(-1, 1, (1, 3, *sizes)), x, w], ["dX", "dW", "dB"],
                      lambda dy, x, w, s=strides, p=pads: volume_gradient(dy, x, w, 1, s, p, (1, 1, 1)),
                      {"auto_pad": policy, "strides": strides})
    dy, x, w = np.ones((1, 3, 3, 3, 3)), np.ones((1, 2, 3, 3, 3)), np.ones((3, 2, 1, 1, 2))
    for given, attributes, words in (([dy, x, w], {}, "must be f32[1, 3, 3, 3, 2]"), ([dy[..., :2], x, w], {"group": 2}, "do not fit"),
                                     ([dy[..., :2], x, w], {"kernel_shape": (1, 1, 1)}, "kernel_shape"),
                                     ([dy[0], x, w], {}, "X has 5 dimensions"), ([dy, x, w], {"strides": (0, 1, 1)}, "of volumes, kernel_shape, strides"),
                                     ([dy, x, np.ones((3, 2, 0, 1, 2))], {}, "must be")):  # fmt: skip
        failures.refused(library, "ConvGrad", given, attributes, words)


def test_many_weights(library, failures, draw):
    """Images with fewer columns than weights are volumes of depth 1, all of them at once or some."""
    for x_shape, w_shape, group, strides, pads, dilations in (
            ((2, 16, 4, 4), (64, 16, 3, 3), 1, (1, 1), (1, 1, 1, 1), (1, 1)), ((3, 8, 3, 5), (128, 4, 2, 3), 2, (1, 2), (1, 0, 0, 2), (1, 1)),
            ((1, 12, 6, 5), (96, 12, 3, 2), 1, (2, 1), (2, 1, 2, 1), (2, 2))):  # fmt: skip
        x, w = draw.uniform(-1, 1, x_shape), draw.uniform(-1, 1, w_shape)
        sizes = [(x.shape[2 + d] + pads[d] + pads[2 + d] - dilations[d] * (w.shape[2 + d] - 1) - 1) // strides[d] + 1
                 for d in range(2)]
        dy = draw.uniform(-1, 1, (x_shape[0], w_shape[0], *sizes))

        def formula(dy, x, w, more=(group, strides, pads, dilations)):
            return conv_gradient(dy, x, w, *more)
        for names in (["dX", "dW", "dB"], ["dX"], ["", "dW"]):
            failures.node(library, "ConvGrad", [dy, x, w], names, formula,
                          {"strides": strides, "pads": pads, "dilations": dilations, "group": group})
        failures.refused(library, "ConvGrad", [dy[..., :-1], x, w], {"strides": strides, "pads": pads, "group": group}, "ConvGrad")
    x, w = draw.uniform(-1, 1, (9, 24, 20, 20, 20)), draw.uniform(-1, 1, (2, 24, 3, 1, 1))  # four at once
    dy = draw.uniform(-1, 1, (9, 2, 18, 20, 20))
    got = run_node(library, "ConvGrad", [dy, x, w], ["dX", "dW", "dB"], {}, "f32")
    want = volume_gradient(*(as_stored(a, "f32") for a in (dy, x, w)), 1, (1, 1, 1), (0,) * 6, (1, 1, 1))
    for name, g, t in zip(("dX", "dW", "dB"), got, want):
        failures.compare(f"{name} of nine volumes", g, t, "f32")


def test_pointwise_conv(library, failures, draw):
    """Windows of one pixel are products of matrices in the runtime's memory."""
    for x_shape, outputs in (((3, 5, 7, 6), 4), ((2, 9, 17), 33), ((1, 1, 1, 1), 1)):
        x, w = draw.uniform(-1, 1, x_shape), draw.uniform(-1, 1, (outputs, x_shape[1]) + (1,) * (len(x_shape) - 2))
        dy = draw.uniform(-1, 1, x_shape[:1] + (outputs,) + x_shape[2:])

        def formula(dy, x, w):
            rows, images = dy.reshape(*dy.shape[:2], -1), x.reshape(*x.shape[:2], -1)
            return ((w.reshape(w.shape[0], -1).T @ rows).reshape(x.shape),
                    np.einsum("nop,nip->oi", rows, images).reshape(w.shape), rows.sum((0, 2)))
        for names in (["dX", "dW", "dB"], ["", "dW"], ["dX"], ["", "", "dB"]):
            failures.node(library, "ConvGrad", [dy, x, w], names, formula, {"kernel_shape": w.shape[2:]})


def test_pools(library, failures, draw):
    x = draw.uniform(-1, 1, (2, 3, 7, 8))
    kernel, strides, pads = (3, 2), (2, 1), (1, 0, 1, 1)
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    steps = list(windows(x.shape[2:], kernel, strides, pads))
    sizes = [1 + max(p[d] for p, _ in steps) for d in range(2)]
    dy = draw.uniform(-1, 1, (2, 3, *sizes))
    indices = np.zeros(dy.shape, np.int64)
    for n, c in np.ndindex(2, 3):
        for at, taps in steps:
            best = max((pixel for _, pixel in taps), key=lambda pixel: x[(n, c, *pixel)])
            indices[(n, c, *at)] = ((n * 3 + c) * 7 + best[0]) * 8 + best[1]

    def average(dy, _=None):
        dx = np.zeros_like(x)
        for at, taps in steps:
            for _, pixel in taps:
                dx[(..., *pixel)] += dy[(..., *at)] / len(taps)
        return [dx]

    def largest(dy, indices, _=None):
        dx = np.zeros(x.size)
        np.add.at(dx, indices.ravel(), dy.ravel())
        return [dx.reshape(x.shape)]
    failures.node(library, "AveragePoolGrad", [dy, x], ["dX"], average, attributes)
    failures.node(library, "AveragePoolGrad", [dy], ["dX"], average, {**attributes, "shape": x.shape})
    failures.node(library, "MaxPoolGrad", [dy, indices, x], ["dX"], largest, attributes)
    failures.node(library, "MaxPoolGrad", [dy, indices], ["dX"], largest, {**attributes, "shape": x.shape})


def test_pools_by_value_info(library, failures, draw):
    """The shape of dX from the model alone, for windows that only the ops compute: rows that end early, one dimension."""
    x = draw.uniform(-1, 1, (2, 3, 7, 8))
    dy, indices, want = np.zeros((2, 3, 4, 4)), np.zeros((2, 3, 4, 4), np.int64), np.zeros_like(x)
    for n, c, i, j in np.ndindex(dy.shape):
        dy[n, c, i, j] = draw.uniform(-1, 1)
        rows = x[n, c, 2 * i:2 * i + 2, 2 * j:2 * j + 2]
        r, s = np.unravel_index(rows.argmax(), rows.shape)
        indices[n, c, i, j] = ((n * 3 + c) * 7 + 2 * i + r) * 8 + 2 * j + s
        want[n, c, 2 * i + r, 2 * j + s] += dy[n, c, i, j]
    attributes = {"kernel_shape": (2, 2), "strides": (2, 2), "ceil_mode": 1}
    for shape in (x.shape, ("batch", *x.shape[1:])):
        for dtype in ("f32", "f64"):
            g = dy.astype(TYPES[dtype][1])
            got = run_node(library, "MaxPoolGrad", [g, indices], ["dX"], attributes, dtype, shape=shape)
            failures.compare(f"MaxPoolGrad by value_info {shape} {dtype}", got[0], want, dtype)
    line = draw.uniform(-1, 1, (2, 3, 4)).astype(np.float32)
    got = run_node(library, "AveragePoolGrad", [line], ["dX"], {"kernel_shape": (2,), "strides": (2,)}, "f32",
                   shape=("batch", 3, 9))  # fmt: skip
    spread = np.concatenate([np.repeat(line, 2, axis=2) / 2, np.zeros((2, 3, 1))], axis=2)
    failures.compare("AveragePoolGrad of one dimension", got[0], spread, "f32")


def boxes(shape, kernel, strides, pads):
    """For each output its number and the box of its window inside of a line, an image or a volume."""
    n = len(shape)
    sizes = [(shape[d] + pads[d] + pads[d + n] - kernel[d]) // strides[d] + 1 for d in range(n)]
    for at in np.ndindex(*sizes):
        first = [at[d] * strides[d] - pads[d] for d in range(n)]
        yield at, tuple(slice(max(f, 0), min(f + kernel[d], shape[d])) for d, f in enumerate(first))


def test_pools_of_any_rank(library, failures, draw):
    for shape, kernel, strides, pads in (((9,), (3,), (2,), (1, 1)), ((4, 5, 6), (2, 2, 2), (1, 1, 1), (0,) * 6),
                                         ((5, 4, 7), (3, 2, 3), (2, 1, 3), (1, 0, 2, 2, 1, 0)), ((6, 3), (3, 1), (3, 1), (1, 0, 0, 0))):
        n, places = len(shape), list(boxes(shape, kernel, strides, pads))
        x = draw.uniform(-1, 1, (2, 3, *shape))
        dy = draw.uniform(-1, 1, (2, 3, *(1 + at for at in places[-1][0])))
        indices, plane = np.zeros(dy.shape, np.int64), np.arange(x[0, 0].size).reshape(shape)
        for (i, c), (at, box) in ((p, b) for p in np.ndindex(2, 3) for b in places):
            indices[(i, c, *at)] = (i * 3 + c) * plane.size + plane[box].ravel()[x[(i, c, *box)].argmax()]

        def average(dy, whole=None, places=places, n=n, x=x):
            dx = np.zeros_like(x)
            for at, box in places:
                count = whole or math.prod(b.stop - b.start for b in box)
                dx[(..., *box)] += (dy[(..., *at)] / count).reshape(2, 3, *(1,) * n)
            return [dx]

        def largest(dy, indices, x=x):
            dx = np.zeros(x.size)
            np.add.at(dx, indices.ravel(), dy.ravel())
            return [dx.reshape(x.shape)]
        attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "shape": x.shape}
        failures.node(library, "MaxPoolGrad", [dy, indices], ["dX"], largest, attributes)
        failures.node(library, "AveragePoolGrad", [dy], ["dX"], average, attributes)
        failures.node(library, "AveragePoolGrad", [dy], ["dX"], lambda dy, whole=math.prod(kernel): average(dy, whole),
                      {**attributes, "count_include_pad": 1})
    dy, indices, kernel = np.ones((1, 2, 2, 2, 2)), np.zeros((1, 2, 2, 2, 2), np.int64), {"kernel_shape": (2, 2, 2)}
    for given, attributes, words in (([dy, indices], {"shape": (1, 2, 3, 3, 4)}, "dY is f32[1, 2, 2, 2, 2]"),
                                     ([dy, indices[..., :1]], {"shape": (1, 2, 3, 3, 3)}, "Indices are"),
                                     ([dy, indices], {"shape": (1, 2, 3, 3, 3)}, "outside of the image"),
                                     ([dy, indices], {"shape": (1, 2, 3, 3, 3), "dilations": (2, 2, 2)}, "dilations and"),
                                     ([dy, indices], {}, "must be given")):
        failures.refused(library, "MaxPoolGrad", given, {**kernel, **attributes}, words)


def batch_norm_gradient(dy, x, scale, mean, inverse):
    channels = (slice(None), None, None)
    hat = (x - mean[channels]) * inverse[channels]
    db, ds, count = dy.sum((0, 2, 3)), (dy * hat).sum((0, 2, 3)), x.size / x.shape[1]
    return (scale * inverse / count)[channels] * (count * dy - db[channels] - hat * ds[channels]), ds, db


def layer_norm_gradient(dy, x, scale, mean, inverse):
    hat, b = (x - mean) * inverse, dy * scale * inverse
    return b - b.mean(1, keepdims=True) - hat * (b * hat).mean(1, keepdims=True), (dy * hat).sum(0), dy.sum(0)


def test_norms(library, failures, draw):
    """Statistics of the data's type, and in float, as ONNX's LayerNormalization gives them."""
    x, dy = draw.uniform(-1, 1, (3, 4, 5, 2)), draw.uniform(-1, 1, (3, 4, 5, 2))
    scale, names = draw.uniform(0.5, 1.5, 4), ["X_grad", "scale_grad", "bias_grad"]
    mean, inverse = (a.astype(np.float32) for a in (x.mean((0, 2, 3)), 1 / np.sqrt(x.var((0, 2, 3)) + 1e-5)))
    failures.node(library, "BatchNormalizationGrad", [dy, x, scale, mean, inverse], names, batch_norm_gradient, {})
    rows, g = x.reshape(12, 10) + 2, dy.reshape(12, 10)
    weight = draw.uniform(0.5, 1.5, 10)
    row_mean, row_inverse = (a.astype(np.float32) for a in (rows.mean(1, keepdims=True),
                                                            1 / np.sqrt(rows.var(1, keepdims=True) + 1e-5)))
    arrays = [g, rows, weight, row_mean, row_inverse]
    failures.node(library, "LayerNormalizationGrad", arrays, names, layer_norm_gradient, {"axis": -1})
    failures.node(library, "LayerNormalizationGrad", arrays, names, layer_norm_gradient, {"axis": -1}, plain=(3, 4))
    small = scale.astype(np.float32)
    for dtype in ("f16", "bf16"):
        for plain, wide in (((3, 4), ()), ((2, 3, 4), names[1:])):
            arrays = [dy, x, small, mean, inverse]
            got = run_node(library, "BatchNormalizationGrad", arrays, names, {}, dtype, plain=plain, wide=wide)
            stored = [a.astype(float) if k in plain else as_stored(a, dtype) for k, a in enumerate(arrays)]
            for o, h, t in zip(names, got, batch_norm_gradient(*stored)):
                failures.compare(f"BatchNormalizationGrad {o} {dtype} {plain}", h.astype(float), t,
                                 "f32" if o in wide else dtype)


def test_wired_layer_norm(library, failures, draw):
    """Forward by the runtime's own node, then our gradient of it, in every type."""
    x, dy, scale = draw.uniform(-1, 1, (6, 16)) + 1, draw.uniform(-1, 1, (6, 16)), draw.uniform(0.5, 1.5, 16)
    for dtype, (kind, array) in TYPES.items():
        outer = TensorProto.FLOAT if dtype == "bf16" else kind
        given = {n: a.astype(array) for n, a in (("x", x), ("dy", dy), ("s", scale))}
        cast = [helper.make_node("Cast", [n], [n + "c"], to=kind) for n in given]
        nodes = [*cast, helper.make_node("LayerNormalization", ["xc", "sc"], ["y", "m", "i"], axis=-1),
                 helper.make_node("LayerNormalizationGrad", ["dyc", "xc", "sc", "m", "i"], ["dx", "ds", "db"],
                                  domain=DOMAINS[0], axis=-1),
                 *(helper.make_node("Cast", [n], [n + "o"], to=outer) for n in ("dx", "ds", "db"))]
        graph = helper.make_graph(nodes, "wired", [helper.make_tensor_value_info(n, outer, a.shape) for n, a in given.items()],
                                  [helper.make_tensor_value_info(n + "o", outer, None) for n in ("dx", "ds", "db")])  # fmt: skip
        model = helper.make_model(graph, ir_version=9,
                                  opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAINS[0], 1)])
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.register_custom_ops_library(library)
        got = ort.InferenceSession(model.SerializeToString(), options).run(None, given)
        rows, g, s = (as_stored(a, dtype) for a in (x, dy, scale))
        mean, inverse = rows.mean(1, keepdims=True), 1 / np.sqrt(rows.var(1, keepdims=True) + 1e-5)
        for name, h, t in zip(("dx", "ds", "db"), got, layer_norm_gradient(g, rows, s, mean, inverse)):
            failures.compare(f"wired {name} {dtype}", h.astype(float), t, "f32" if dtype == "f64" else dtype)


def loss_gradient(labels, reduction="mean", ignored=None):
    """The function of dY, logarithms and weights."""
    kept = np.ones(len(labels)) if ignored is None else (labels != ignored).astype(float)

    def formula(dy, logs, _, weight=None):
        factor = kept * (weight[labels] if weight is not None else 1)
        total = factor.sum() if reduction == "mean" else 1
        return [dy * (np.exp(logs) - np.eye(logs.shape[1])[labels]) * (factor / total)[:, None]]
    return formula


def test_loss_and_others(library, failures, draw):
    scores, labels = draw.uniform(-2, 2, (5, 7)), draw.integers(0, 7, 5)
    logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    weight, dy, first = draw.uniform(0.5, 2, 7), np.array(0.5), int(labels[0])
    for kind in (np.int64, np.int32):
        arrays = [dy, logs, labels.astype(kind)]
        for more, attributes, formula in (([], {}, loss_gradient(labels)), ([weight], {}, loss_gradient(labels)),
                                          ([], {"reduction": "sum"}, loss_gradient(labels, "sum")),
                                          ([], {"ignore_index": first}, loss_gradient(labels, ignored=first))):
            failures.node(library, "SoftmaxCrossEntropyLossGrad", arrays + more, ["d"], formula, attributes)
    g, mask = draw.uniform(-1, 1, (4, 9)), draw.uniform(0, 1, (4, 9)) < 0.7
    ratio = np.array(0.3, np.float32)
    for plain in ((2,), ()):
        failures.node(library, "DropoutGrad", [g, mask, ratio], ["d"], lambda g, mask, r: [g * mask / (1 - r)], {}, plain=plain)
    a, b = draw.uniform(-1, 1, (4, 9)), draw.uniform(1, 2, (9,))
    failures.node(library, "DivGrad", [g, a, b], ["da", "db"], lambda g, a, b: (g / b, (-g * a / b**2).sum(0)), {})
    for kind in (np.int64, np.int32):
        rows, taken = draw.uniform(-1, 1, (5, 3)), np.array([1, 0, 1, -1, 1], kind)
        for dtype in ("f32", "f64"):
            want = np.zeros((4, 3))
            np.add.at(want, taken, as_stored(rows, dtype))
            got = run_node(library, "GatherGrad", [np.array([4, 3]), taken, rows], ["d"], {}, dtype)
            failures.compare(f"GatherGrad {dtype} {kind}", got[0], want, dtype)


def test_slices(library, failures, draw):
    """Steps up and down, from numbers of 64 and of 32 bits, of nothing, and of another shape than dY."""
    for shape, slices in (((9,), [(0, 9, 1, 3)]), ((9,), [(0, 8, 0, -1)]), ((4, 7), [(0, 3, -5, -1), (1, -1, -8, -2)]),
                          ((5, 6, 8), [(2, 1, 8, 2)]), ((3, 4, 5), [(-1, 4, 0, -3), (0, 1, 99, 1)]), ((4, 5), [(1, 3, 3, 1)]),
                          ((4, 5), [(0, 1, 3, -1)]), ((3, 0), [(0, 2, -9, -2)]), ((2, 3, 4, 5), [(1, 2, -9, -1), (3, 0, 5, 4)])):
        at = [slice(None)] * len(shape)
        for axis, start, end, step in slices:
            at[axis] = slice(start, None if step < 0 and end < -shape[axis] else end, step)
        at = tuple(at)
        dy, lists = draw.uniform(-1, 1, np.zeros(shape)[at].shape), np.array(slices).T
        for kind in (np.int64, np.int32):
            axes, starts, ends, steps = (a.astype(kind) for a in lists)

            def formula(dy, *_, at=at, shape=shape):
                dx = np.zeros(shape)
                dx[at] = dy
                return [dx]
            failures.node(library, "SliceGrad", [dy, np.array(shape, np.int64), starts, ends, axes, steps], ["d"], formula, {})
    dy = draw.uniform(-1, 1, (2, 3)).astype(np.float32)
    for lists, words in (([[5, 3], [0], [3], [0], [1]], "the slice is f32[3, 3]"), ([[5], [0], [2], [0], [1]], "2 numbers"),
                         ([[2, 3], [0], [2], [2], [1]], "an axis"), ([[2, 3], [0], [2], [0], [0]], "step must not be 0"),
                         ([[2, 3], [0, 0], [2], [0], [1]], "starts and ends"), ([[-2, 3], [0], [2], [1], [1]], "dimension 0 of shape is -2")):
        failures.refused(library, "SliceGrad", [dy, *(np.array(numbers) for numbers in lists)], {}, words)


def test_alignment(library, failures, draw):
    """Long rows anywhere in memory have the same bits."""
    for dtype in ("f32", "f64", "f16"):
        memory = draw.uniform(-1, 1, (3, 40000)).astype(TYPES[dtype][1])
        s = session(library, "TanhGrad", [(20000,)] * 2, dtype, {}, DOMAINS[0])
        want = s.run(None, {"i0": memory[0, :20000], "i1": memory[1, :20000]})[0]
        for first, second in ((1, 1), (3, 3), (5, 2), (15, 0), (0, 7), (31, 31)):
            memory[2, first:first + 20000], at = memory[0, :20000], memory[1].copy()
            at[second:second + 20000] = memory[1, :20000]
            got = s.run(None, {"i0": memory[2, first:first + 20000], "i1": at[second:second + 20000]})[0]
            failures.expect(np.array_equal(got, want), f"bits of {dtype} depend on the place, {first} and {second}")


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
               ("SoftmaxGrad_13", [one, other], {}, "dY is f32[2, 3], but Y is f32[3, 2]"),
               ("ReluGrad", [one, other], {}, "dY is f32[2, 3], but X is f32[3, 2]"),
               ("TanhGrad", [np.ones((1,) * 9)] * 2, {}, "9 dimensions"))
    for name, arrays, attributes, words in refused:
        try:
            run(library, name, arrays, "f32", attributes)
            failures.expect(False, f"{name} {attributes} was not refused")
        except Exception as error:  # the runtime has many classes for it
            failures.expect(words in str(error), f"{name} {attributes}: no '{words}' in: {error}")


def test_attributes(library, failures):
    """An attribute of another type is refused, as is a label where there are no classes; results may be left out."""
    one = np.ones((2, 3), np.float32)
    state = [np.array([0.1], np.float32), np.array([1]), one, one, one, one]
    refused = (("LeakyReluGrad", [one, one], {"alpha": 1}, "alpha must be a float, but it is an int"),
               ("AdamWOptimizer", state, {"weight_decay": 0}, "weight_decay must be a float, but it is an int"),
               ("AdamWOptimizer", state, {"adam_mode": 0.0}, "adam_mode must be an int, but it is a float"),
               ("AdamWOptimizer", state, {"epsilon": "small"}, "epsilon must be a float, but it is a string"),
               ("AdamWOptimizer", state, {"alpha": [0.5]}, "alpha must be a float, but it is a list of floats"),
               ("ConvGrad", [np.ones((1, 1, 4, 4), np.float32)] * 3, {"strides": 2}, "strides must be a list of ints"),
               ("ConvGrad", [np.ones((1, 1, 4, 4), np.float32)] * 3, {"pads": [1.0]}, "pads must be a list of ints"),
               ("SoftmaxCrossEntropyLossGrad", [one[0, :1], np.zeros((5, 0), np.float32), np.zeros(5, np.int64)], {},
                "not among the 0 classes"))  # fmt: skip
    for name, arrays, attributes, words in refused:
        outputs = ["w", "m", "v"] if name == "AdamWOptimizer" else ["d"]
        failures.refused(library, name, arrays, attributes, words, outputs, DOMAINS[1])
    whole = run_node(library, "AdamWOptimizer", state, ["w", "m", "v"], {}, "f32", domain=DOMAINS[1])
    for names in (["w"], ["w", "m"], ["", "m", ""], ["", "", "v"]):
        got = run_node(library, "AdamWOptimizer", state, names, {}, "f32", domain=DOMAINS[1])
        kept = [w for w, name in zip(whole, names) if name]
        failures.expect(all(np.array_equal(g, w) for g, w in zip(got, kept)), f"AdamWOptimizer with {names}")


def thread_count():
    return len(os.listdir("/proc/self/task"))


def test_threads(library, failures, draw):
    """A convolution of a gigabyte of products, from two callers: all on the session's threads."""
    arrays = [draw.uniform(-1, 1, shape).astype(np.float32) for shape in ((8, 64, 56, 56), (8, 64, 56, 56), (64, 64, 3, 3))]
    s = session(library, "ConvGrad", [a.shape for a in arrays], "f32", {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)},
                DOMAINS[0], 1)  # fmt: skip
    feed, most = {f"i{k}": a for k, a in enumerate(arrays)}, []
    s.run(None, feed)
    before = thread_count()
    callers = [threading.Thread(target=lambda: [s.run(None, feed) for _ in range(3)]) for _ in range(3)]
    for caller in callers:
        caller.start()
    while any(caller.is_alive() for caller in callers):
        most.append(thread_count())
        callers[0].join(0.01)
    failures.expect(max(most) <= before + len(callers), f"{max(most) - before} threads for {len(callers)} callers")
    until = time.monotonic() + 5  # a thread that is joined may take a moment to be gone
    while thread_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    failures.expect(thread_count() == before, f"{thread_count() - before} threads stay")


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
    for test in (test_conv, test_small_conv, test_volume_conv, test_many_weights, test_pointwise_conv, test_pools, test_pools_of_any_rank,
                 test_pools_by_value_info, test_norms,
                 test_wired_layer_norm, test_loss_and_others, test_slices, test_alignment, test_large, test_threads):
        test(library, failures, draw)
    test_edges(library, failures)
    test_attributes(library, failures)
    for failure in failures.list[:20]:
        print(failure)
    print(f"ONNX Runtime {ort.__version__}, seed {options.seed}")
    print(f"{failures.runs - len(failures.list)} passed, {len(failures.list)} failed")
    return 1 if failures.list else 0


if __name__ == "__main__":
    sys.exit(main())
