# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Every operator of ONNX that `retrograde op` knows, with random attributes, beside ONNX Runtime, or a definition where the
inference build has no kernel; in all dtypes, and with channels last, too.

usage: onnx_names_test.py PROGRAM [--cases N] [--seed S] [--only NAME] [-v]

Needs onnx and onnxruntime; some gradients need onnxruntime-training (1.19.2). What is not installed is
skipped, and the last line says so. A case is a node with inputs; the program gets the same inputs as
NPY files and the same attributes as options, by ONNX's names.
"""
import argparse
import collections
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
    import onnx_names_defined
    import onnx_names_forms
    import onnx_names_odd
    from onnx import TensorProto, helper
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(1 if os.environ.get("CI") == "true" else 77)

DOMAINS = {"com.microsoft": 1}
OPSET = 17
# Before, a last window that begins in the padding was counted, too.
VERSION = tuple(int(n) for n in onnxruntime.__version__.split(".")[:2])
NEW_CEIL = VERSION >= (1, 21)
# Before, Conv with SAME_LOWER left the pixels of SAME_UPPER out where strides are wider than windows.
NEW_LOWER = VERSION >= (1, 20)


class Case:
    """A node: inputs by name in ONNX's order, attributes, outputs."""

    def __init__(self, op, inputs, outputs, attributes=None, domain="", numbers=(), opset=OPSET,
                 shapes=None, model_attributes=None, tolerance=2e-5):
        self.op, self.inputs, self.outputs = op, inputs, outputs
        self.attributes = attributes or {}
        self.domain, self.numbers, self.opset = domain, numbers, opset
        self.shapes = shapes or {}
        self.model_attributes = self.attributes if model_attributes is None else model_attributes
        self.tolerance = tolerance
        self.want = None  # results for inputs, by a definition


class Draw:
    def __init__(self, seed):
        self.r = np.random.default_rng(seed)

    def int(self, low, high):
        return int(self.r.integers(low, high + 1))

    def chance(self, p=0.5):
        return bool(self.r.random() < p)

    def pick(self, values):
        return values[self.int(0, len(values) - 1)]

    def array(self, *shape, scale=1.0):
        return (self.r.standard_normal(shape) * scale).astype(np.float32)

    def positive(self, *shape):
        return (self.r.random(shape) + 0.2).astype(np.float32)


GENERATORS = {}


def generator(*names):
    def add(function):
        for name in names:
            GENERATORS[name] = function
        return function
    return add


def shape_of(d, low=1, high=4):
    return [d.int(1, 5) for _ in range(d.int(low, high))]


# ---- softmax and activations ----

@generator("Softmax", "LogSoftmax")
def softmax(d, name):
    shape = shape_of(d)
    a = {"axis": d.int(-len(shape), len(shape) - 1)} if d.chance(0.7) else {}
    return Case(name, {"input": d.array(*shape, scale=3)}, ["output"], a)


@generator("SoftmaxGrad", "SoftmaxGrad_13", "LogSoftmaxGrad", "LogSoftmaxGrad_13")
def softmax_grad(d, name):
    shape = shape_of(d, 2)
    a = {"axis": d.int(-len(shape), len(shape) - 1)} if d.chance(0.7) else {}
    second = "X" if name.startswith("Log") else "Y"
    y = d.array(*shape) if second == "Y" else -d.positive(*shape)
    return Case(name, {"dY": d.array(*shape), second: y}, ["dX"], a, "com.microsoft")


@generator("Relu", "Sigmoid", "HardSwish", "Abs", "Softplus", "LeakyRelu", "HardSigmoid", "Elu", "Selu")
def activation(d, name):
    choices = {"LeakyRelu": ["alpha"], "HardSigmoid": ["alpha", "beta"], "Elu": ["alpha"],
               "Selu": ["alpha", "gamma"]}
    a = {k: round(d.int(1, 30) / 16, 4) for k in choices.get(name, []) if d.chance(0.6)}
    return Case(name, {"X": d.array(*shape_of(d), scale=3)}, ["Y"], a)


@generator("Tanh", "Softsign", "Exp", "Log")
def plain(d, name):
    x = d.positive(*shape_of(d)) if name == "Log" else d.array(*shape_of(d), scale=2)
    return Case(name, {"input": x}, ["output"])


@generator("Gelu")
def gelu(d, name):
    a = {"approximate": d.pick(["none", "tanh"])} if d.chance(0.7) else {}
    return Case(name, {"X": d.array(*shape_of(d), scale=2)}, ["Y"], a, opset=20)


@generator("FastGelu", "QuickGelu")
def runtime_gelu(d, name):
    shape = shape_of(d, 2)
    inputs = {"X": d.array(*shape, scale=2)}
    a = {}
    if name == "FastGelu" and d.chance():
        inputs["bias"] = d.array(shape[-1])
    if name == "QuickGelu" and d.chance():
        a = {"alpha": 1.25}
    return Case(name, inputs, ["Y"], a, "com.microsoft")


@generator("PRelu")
def prelu(d, name):
    n, c, h, w = (d.int(1, 4) for _ in range(4))
    slope = d.pick([[c, 1, 1], [1], [w], [c, h, w], [1, c, 1, 1], [h, 1], [c, 1, w]])
    return Case(name, {"X": d.array(n, c, h, w), "slope": d.array(*slope)}, ["Y"])


@generator("ReluGrad", "GeluGrad", "FastGeluGrad", "QuickGeluGrad")
def grad_of_x(d, name):
    shape = shape_of(d)
    a = {"alpha": 1.5} if name == "QuickGeluGrad" and d.chance() else {}
    return Case(name, {"dY": d.array(*shape), "X": d.array(*shape)}, ["dX"], a, "com.microsoft")


@generator("SigmoidGrad", "TanhGrad", "LeakyReluGrad")
def grad_of_y(d, name):
    shape = shape_of(d)
    a = {"alpha": 0.25} if name == "LeakyReluGrad" and d.chance() else {}
    return Case(name, {"dY": d.array(*shape), "Y": d.array(*shape)}, ["dX"], a, "com.microsoft")


# ---- arithmetic and products ----

def broadcast_pair(d):
    shape = shape_of(d)
    other = [1 if d.chance(0.3) else n for n in shape][d.int(0, len(shape) - 1):]
    return (shape, other) if d.chance() else (other, shape)


@generator("Add", "Sub", "Mul", "Div")
def arithmetic(d, name):
    a, b = broadcast_pair(d)
    return Case(name, {"A": d.array(*a), "B": d.positive(*b)}, ["C"])


@generator("DivGrad")
def div_grad(d, name):
    a, b = broadcast_pair(d)
    y = np.broadcast_shapes(a, b)
    return Case(name, {"dY": d.array(*y), "A": d.array(*a), "B": d.positive(*b)}, ["dA", "dB"], {},
                "com.microsoft")


@generator("Gemm")
def gemm(d, name):
    m, k, n = (d.int(1, 7) for _ in range(3))
    a = {x: 1 for x in ("transA", "transB") if d.chance()}
    a.update({x: round(d.int(1, 20) / 8, 3) for x in ("alpha", "beta") if d.chance()})
    inputs = {"A": d.array(*((k, m) if "transA" in a else (m, k))),
              "B": d.array(*((n, k) if "transB" in a else (k, n)))}
    if d.chance(0.7):
        inputs["C"] = d.array(*d.pick([[n], [1, n], [m, 1], [m, n], [1]]))
    return Case(name, inputs, ["Y"], a)


@generator("MatMul")
def matmul(d, name):
    m, k, n, s, t = (d.int(1, 5) for _ in range(5))
    a, b = d.pick([([m, k], [k, n]), ([s, m, k], [k, n]), ([s, m, k], [s, k, n]), ([k], [k, n]),
                   ([m, k], [k]), ([t, s, m, k], [s, k, n]), ([1, m, k], [s, k, n]), ([k], [k])])
    return Case(name, {"A": d.array(*a), "B": d.array(*b)}, ["Y"])


# ---- windows ----

class Window:
    """Attributes of a window over images that it fits."""

    def __init__(self, d, spatial=None, dilate=True, auto=True, ceil=False, same_wide=True, stride=3):
        self.spatial = spatial or d.pick([1, 2, 2])
        s = range(self.spatial)
        self.size = [d.int(5, 9) for _ in s]
        self.kernel = [d.int(1, 3) for _ in s]
        self.a = {}
        if d.chance():
            self.a["strides"] = [d.int(1, stride) for _ in s]
        if dilate and d.chance(0.3):
            self.a["dilations"] = [d.int(1, 2) for _ in s]
        # ONNX Runtime's operators differ from each other where SAME leaves pixels out.
        strides = self.a.get("strides", [1] * self.spatial)
        wide = all(k >= s for k, s in zip(self.kernel, strides))
        if auto and "dilations" not in self.a and (wide or not same_wide and NEW_LOWER) and d.chance(0.3):
            self.a["auto_pad"] = d.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
        elif d.chance():
            self.a["pads"] = [d.int(0, self.kernel[i % self.spatial] - 1)
                              for i in range(2 * self.spatial)]
        if ceil and "auto_pad" not in self.a and d.chance() and NEW_CEIL:
            self.a["ceil_mode"] = 1
            if d.chance(0.2):  # less than one window, which is then partial
                self.size[-1] = d.int(1, 2)


def conv_shapes(d, transposed=False, **options):
    w = Window(d, **options)
    groups = d.pick([1, 1, 2, 3])
    inside, outside = groups * d.int(1, 2), groups * d.int(1, 2)
    x = d.array(d.int(1, 2), inside, *w.size)
    weights = [inside, outside // groups] if transposed else [outside, inside // groups]
    a = dict(w.a)
    if groups > 1:
        a["group"] = groups
    return w, a, x, d.array(*weights, *w.kernel), outside


@generator("Conv")
def conv(d, name):
    w, a, x, weights, outside = conv_shapes(d, same_wide=False, stride=6)
    inputs = {"X": x, "W": weights}
    if d.chance():
        inputs["B"] = d.array(outside)
    if d.chance(0.7):
        a["kernel_shape"] = w.kernel
    return Case(name, inputs, ["Y"], a)


@generator("ConvTranspose")
def conv_transpose(d, name):
    w, a, x, weights, outside = conv_shapes(d, True)
    a["kernel_shape"] = w.kernel
    inputs = {"X": x, "W": weights}
    if d.chance():
        inputs["B"] = d.array(outside)
    strides = a.get("strides", [1] * w.spatial)
    if d.chance(0.3) and "auto_pad" not in a:
        a["output_padding"] = [d.int(0, s - 1) for s in strides]
    elif d.chance(0.3) and "pads" not in a and a.get("auto_pad") != "VALID":
        dilations = a.get("dilations", [1] * w.spatial)
        a["output_shape"] = [(n - 1) * s + (k - 1) * l + 1 - d.int(0, 2 if k > 2 else 0)
                             for n, s, k, l in zip(w.size, strides, w.kernel, dilations)]
    return Case(name, inputs, ["Y"], a)


def forward_shape(case):
    session = session_of(case, {n: v for n, v in case.inputs.items()})
    return session.run(None, case.inputs)


@generator("ConvGrad")
def conv_grad(d, name):
    w, a, x, weights, outside = conv_shapes(d, auto=False)
    a["kernel_shape"] = w.kernel
    y = forward_shape(Case("Conv", {"X": x, "W": weights}, ["Y"], a))[0]
    return Case(name, {"dY": d.array(*y.shape), "X": x, "W": weights}, ["dX", "dW", "dB"], a,
                "com.microsoft")


def pool_case(d, name, **options):
    w = Window(d, **options)
    a = dict(w.a)
    a["kernel_shape"] = w.kernel
    return w, a, d.array(d.int(1, 2), d.int(1, 3), *w.size)


@generator("MaxPool")
def max_pool(d, name):
    _, a, x = pool_case(d, name, ceil=True)
    outputs = ["Y"]
    if d.chance():
        outputs.append("Indices")
        if d.chance(0.3):
            a["storage_order"] = 1
    return Case(name, {"X": x}, outputs, a)


@generator("AveragePool")
def average_pool(d, name):
    _, a, x = pool_case(d, name, ceil=True)
    if d.chance():
        a["count_include_pad"] = 1
    return Case(name, {"X": x}, ["Y"], a, opset=19)


@generator("LpPool")
def lp_pool(d, name):
    _, a, x = pool_case(d, name, ceil=False, same_wide=False)
    if d.chance():
        a["p"] = d.int(1, 3)
    return Case(name, {"X": x}, ["Y"], a, opset=18)


@generator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(d, name):
    a = {"p": d.int(1, 3)} if name == "GlobalLpPool" and d.chance() else {}
    spatial = [d.int(1, 5) for _ in range(d.int(1, 3))]
    return Case(name, {"X": d.array(d.int(1, 3), d.int(1, 3), *spatial)}, ["Y"], a)


@generator("MaxPoolGrad")
def max_pool_grad(d, name):
    _, a, x = pool_case(d, name, dilate=False, auto=False)
    y, indices = forward_shape(Case("MaxPool", {"X": x}, ["Y", "Indices"], a))
    return Case(name, {"dY": d.array(*y.shape), "Indices": indices}, ["dX"],
                dict(a, shape=list(x.shape)), "", opset=9, shapes={"dX": x.shape},
                model_attributes=a)


@generator("AveragePoolGrad")
def average_pool_grad(d, name):
    _, a, x = pool_case(d, name, dilate=False, auto=False)
    if d.chance():
        a["count_include_pad"] = 1
    y = forward_shape(Case("AveragePool", {"X": x}, ["Y"], a))[0]
    return Case(name, {"dY": d.array(*y.shape)}, ["dX"], dict(a, shape=list(x.shape)), "", opset=9,
                shapes={"dX": x.shape}, model_attributes=a)


@generator("Resize")
def resize(d, name):
    spatial = d.pick([1, 2, 2])
    x = d.array(d.int(1, 2), d.int(1, 3), *[d.int(2, 6) for _ in range(spatial)])
    a = {"mode": d.pick(["nearest", "linear"])}
    a["coordinate_transformation_mode"] = d.pick(["half_pixel", "pytorch_half_pixel",
                                                  "align_corners", "asymmetric"])
    if a["mode"] == "nearest":
        a["nearest_mode"] = d.pick(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    inputs = {"X": x}
    if d.chance():
        inputs["scales"] = np.array([1, 1] + [d.pick([0.5, 1.5, 2, 3, 0.75]) for _ in range(spatial)],
                                    np.float32)
        if any(int(n * s) == 0 for n, s in zip(x.shape, inputs["scales"])):
            inputs["scales"] = np.array([1, 1] + [2] * spatial, np.float32)
    else:
        inputs["sizes"] = np.array(list(x.shape[:2]) + [d.int(1, 9) for _ in range(spatial)], np.int64)
    return Case(name, inputs, ["Y"], a, opset=18, numbers=("scales", "sizes"), tolerance=1e-4)


# ---- normalizations ----

@generator("BatchNormalization")
def batch_norm(d, name):
    c = d.int(1, 4)
    x = d.array(d.int(2, 3), c, *[d.int(1, 4) for _ in range(d.int(0, 3))])
    a = {"epsilon": 0.001} if d.chance() else {}
    inputs = {"X": x, "scale": d.array(c), "B": d.array(c), "input_mean": d.array(c),
              "input_var": d.positive(c)}
    return Case(name, inputs, ["Y"], a)


@generator("BatchNormInternal")
def batch_norm_internal(d, name):
    case = batch_norm(d, name)
    case.attributes = dict(case.attributes, training_mode=1)
    if d.chance():
        case.attributes["momentum"] = 0.75
    case.model_attributes = case.attributes
    return Case(name, case.inputs, ["Y", "running_mean", "running_var", "saved_mean",
                                    "saved_inv_std"], case.attributes, "com.microsoft",
                tolerance=1e-4)


@generator("BatchNormalizationGrad")
def batch_norm_grad(d, name):
    c = d.int(1, 4)
    shape = [d.int(2, 3), c] + [d.int(2, 4) for _ in range(d.int(1, 2))]
    x = d.array(*shape)
    axes = tuple(i for i in range(len(shape)) if i != 1)
    mean = x.mean(axes) + (d.array(c) if d.chance(0.3) else 0)
    inverse = 1 / np.sqrt(x.var(axes) + 1e-3)
    a = {"epsilon": 0.001}
    return Case(name, {"dY": d.array(*shape), "X": x, "scale": d.array(c),
                       "mean": mean.astype(np.float32), "variance": inverse.astype(np.float32)},
                ["X_grad", "scale_grad", "bias_grad"], a, "com.microsoft", tolerance=1e-4)


@generator("LayerNormalization")
def layer_norm(d, name):
    shape = [d.int(1, 5) for _ in range(d.int(1, 4))]
    axis = d.int(0, len(shape) - 1)
    a = {"epsilon": 0.001} if d.chance() else {}
    a["axis"] = axis - (len(shape) if d.chance() else 0)
    inputs = {"X": d.array(*shape), "Scale": d.array(*shape[axis:])}
    if d.chance(0.7):
        inputs["B"] = d.array(*shape[axis:])
    return Case(name, inputs, ["Y", "Mean", "InvStdDev"][:d.pick([1, 3])], a, tolerance=1e-4)


@generator("LayerNormalizationGrad")
def layer_norm_grad(d, name):
    shape = [d.int(2, 5) for _ in range(d.int(2, 4))]
    axis = d.int(1, len(shape) - 1)
    x = d.array(*shape)
    axes = tuple(range(axis, len(shape)))
    mean = x.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    return Case(name, {"Y_grad": d.array(*shape), "X": x, "scale": d.array(*shape[axis:]),
                       "mean": mean.astype(np.float32), "inv_std_dev": inverse.astype(np.float32)},
                ["X_grad", "scale_grad", "bias_grad"], {"axis": axis}, "com.microsoft",
                tolerance=1e-4)


@generator("GroupNormalization")
def group_norm(d, name):
    groups = d.int(1, 3)
    c = groups * d.int(1, 3)
    x = d.array(d.int(1, 3), c, *[d.int(2, 4) for _ in range(d.int(1, 2))])
    a = {"num_groups": groups}
    if d.chance():
        a["epsilon"] = 0.01
    return Case(name, {"X": x, "scale": d.array(c), "bias": d.array(c)}, ["Y"], a, opset=21,
                tolerance=1e-4)


@generator("InstanceNormalization")
def instance_norm(d, name):
    c = d.int(1, 4)
    x = d.array(d.int(1, 3), c, *[d.int(2, 5) for _ in range(d.int(1, 3))])
    a = {"epsilon": 0.01} if d.chance() else {}
    return Case(name, {"input": x, "scale": d.array(c), "B": d.array(c)}, ["output"], a,
                tolerance=1e-4)


@generator("LRN")
def lrn(d, name):
    a = {"size": d.pick([1, 3, 5])}
    for key, values in (("alpha", [0.1, 0.5]), ("beta", [0.5, 0.75]), ("bias", [1, 2.0])):
        if d.chance():
            a[key] = d.pick(values)
    return Case(name, {"X": d.array(d.int(1, 2), d.int(1, 7), d.int(1, 4), d.int(1, 4))}, ["Y"], a)


# ---- losses and dropout ----

def loss_inputs(d):
    n, c = d.int(1, 4), d.int(2, 5)
    rest = [d.int(1, 3) for _ in range(d.int(0, 3))]
    labels = d.r.integers(0, c, [n] + rest).astype(d.pick([np.int64, np.int32]))
    a = {"reduction": d.pick(["none", "sum", "mean"])} if d.chance(0.8) else {}
    if d.chance(0.4):
        a["ignore_index"] = d.pick([-1, 0, 7])
        labels[d.r.random(labels.shape) < 0.2] = a["ignore_index"]
        labels.flat[0] = 1
    weights = d.positive(c) if d.chance() else None
    return n, c, rest, labels, a, weights


@generator("SoftmaxCrossEntropyLoss")
def cross_entropy(d, name):
    n, c, rest, labels, a, weights = loss_inputs(d)
    inputs = {"scores": d.array(n, c, *rest), "labels": labels}
    if weights is not None:
        inputs["weights"] = weights
    return Case(name, inputs, ["output", "log_prob"][:d.int(1, 2)], a)


@generator("NegativeLogLikelihoodLoss")
def nll(d, name):
    n, c, rest, labels, a, weights = loss_inputs(d)
    inputs = {"input": d.array(n, c, *rest), "target": labels}
    if weights is not None:
        inputs["weight"] = weights
    return Case(name, inputs, ["loss"], a)


@generator("SoftmaxCrossEntropyLossGrad")
def cross_entropy_grad(d, name):
    n, c, rest, labels, a, weights = loss_inputs(d)
    x = d.array(n, c, *rest)
    log_prob = x - np.log(np.exp(x).sum(1, keepdims=True))
    shape = labels.shape if a.get("reduction") == "none" else ()
    inputs = {"dY": d.array(*shape), "log_prob": log_prob.astype(np.float32), "label": labels}
    inputs["dY"] = np.asarray(inputs["dY"], np.float32)
    if weights is not None:
        inputs["weight"] = weights
    return Case(name, inputs, ["d_logits"], a, "com.microsoft")


@generator("Dropout")
def dropout(d, name):
    inputs = {"data": d.array(*shape_of(d))}
    if d.chance():
        inputs["ratio"] = np.float32(0.25)
    return Case(name, inputs, ["output", "mask"][:d.int(1, 2)], numbers=("ratio",))


@generator("DropoutGrad")
def dropout_grad(d, name):
    shape = shape_of(d)
    ratio = d.pick([0.25, 0.5, 0.75])
    return Case(name, {"dY": d.array(*shape), "mask": d.r.random(shape) < 0.6,
                       "ratio": np.float32(ratio)}, ["dX"], {}, "com.microsoft",
                numbers=("ratio",))


# ---- shapes ----

@generator("Reshape")
def reshape(d, name):
    shape = [d.int(1, 4) for _ in range(3)]
    to = d.pick([[-1], [0, -1], [shape[1], shape[0] * shape[2]], [shape[2], 1, -1], [0, 0, 0]])
    return Case(name, {"data": d.array(*shape), "shape": np.array(to, np.int64)}, ["reshaped"],
                numbers=("shape",))


def slice_inputs(d, shape):
    axes = [i for i in range(len(shape)) if d.chance(0.7)] or [0]
    starts, ends, steps = [], [], []
    for axis in axes:
        n = shape[axis]
        first = d.int(0, n - 1)
        last = d.int(first + 1, n + 2)
        starts.append(first - n if d.chance(0.3) else first)
        ends.append(last)
        steps.append(d.int(1, 2))
    numbers = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    return {k: np.array(v, np.int64) for k, v in numbers.items()}


@generator("Slice")
def slice_(d, name):
    shape = [d.int(2, 6) for _ in range(d.int(1, 3))]
    numbers = slice_inputs(d, shape)
    return Case(name, {"data": d.array(*shape), **numbers}, ["output"], numbers=tuple(numbers))


@generator("SliceGrad")
def slice_grad(d, name):
    shape = [d.int(2, 6) for _ in range(d.int(1, 3))]
    numbers = slice_inputs(d, shape)
    x = np.zeros(shape, np.float32)
    y = forward_shape(Case("Slice", {"data": x, **numbers}, ["output"]))[0]
    inputs = {"dY": d.array(*y.shape), "shape": np.array(shape, np.int64), **numbers}
    return Case(name, inputs, ["dX"], {}, "com.microsoft", numbers=("shape", *numbers))


@generator("Concat", "ConcatTraining")
def concat(d, name):
    shape = [d.int(1, 4) for _ in range(d.int(1, 3))]
    axis = d.int(0, len(shape) - 1)
    inputs = {}
    for i in range(d.int(1, 4)):
        shape[axis] = d.int(1, 4)
        inputs[f"inputs{i}"] = d.array(*shape)
    return Case(name, inputs, ["concat_result"], {"axis": axis - (len(shape) if d.chance() else 0)},
                "" if name == "Concat" else "com.microsoft")


@generator("Split")
def split(d, name):
    count = d.int(1, 4)
    parts = [d.int(1, 3) for _ in range(count)]
    axis = d.int(0, 1)
    shape = [3, 4]
    shape[axis] = sum(parts)
    inputs = {"input": d.array(*shape)}
    a = {"axis": axis}
    if d.chance():
        inputs["split"] = np.array(parts, np.int64)
    else:
        a["num_outputs"] = count
        shape[axis] = count * 2 - (1 if d.chance(0.3) and count > 1 else 0)
        inputs["input"] = d.array(*shape)
    return Case(name, inputs, [f"outputs{i}" for i in range(count)], a, opset=18,
                numbers=("split",))


@generator("Pad")
def pad(d, name):
    rank = d.pick([1, 2, 3, 4, 5, 6])
    shape = [d.int(3, 5) if rank < 5 else d.int(2, 3) for _ in range(rank)]
    mode = d.pick(["constant", "reflect", "edge", "wrap"])
    pads = [d.int(0, min(2, n - 1)) for n in shape + shape]
    for at in [i for i in range(rank) if d.chance(0.3)]:
        pads[at] = pads[rank + at] = 0
    inputs = {"data": d.array(*shape), "pads": np.array(pads, np.int64)}
    if mode == "constant" and d.chance():
        inputs["constant_value"] = np.float32(1.5)
    return Case(name, inputs, ["output"], {"mode": mode} if mode != "constant" else {}, opset=19,
                numbers=("pads", "constant_value"))


@generator("Transpose")
def transpose(d, name):
    shape = shape_of(d)
    order = [int(i) for i in d.r.permutation(len(shape))]
    return Case(name, {"data": d.array(*shape)}, ["transposed"], {"perm": order} if d.chance() else {})


@generator("ReduceSum", "ReduceMean", "ReduceMin", "ReduceMax")
def reduce(d, name):
    shape = shape_of(d)
    inputs = {"data": d.array(*shape)}
    a = {"keepdims": 0} if d.chance() else {}
    if d.chance(0.7):
        axes = [i for i in range(len(shape)) if d.chance()] or [len(shape) - 1]
        inputs["axes"] = np.array(axes, np.int64)
    elif d.chance(0.3):
        a["noop_with_empty_axes"] = 1
    return Case(name, inputs, ["reduced"], a, opset=18, numbers=("axes",))


@generator("ArgMin", "ArgMax")
def arg_reduce(d, name):
    shape = shape_of(d)
    a = {"axis": d.int(-len(shape), len(shape) - 1)} if d.chance(0.7) else {}
    if d.chance():
        a["keepdims"] = 0
    return Case(name, {"data": d.array(*shape)}, ["reduced"], a)


# ---- running ----

WINDOWS = ("MaxPool", "AveragePool", "LpPool")
ODD = {}
onnx_names_odd.make(Case, ODD)


def any_window(d, name):
    """The attributes of a pooling, and an image."""
    _, a, x = pool_case(d, name, ceil=True)
    return a, x


DEFINED = onnx_names_defined.DEFINED
onnx_names_defined.make(Case, GENERATORS, any_window, lambda case: session_of(case, case.inputs).run(None, case.inputs))

TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int64": TensorProto.INT64, "int32": TensorProto.INT32,
         "bool": TensorProto.BOOL}
# Results that are no f32.
RESULT_TYPES = {"Indices": TensorProto.INT64, "per_input_length": TensorProto.INT64, "mask": TensorProto.BOOL}


def session_of(case, inputs):
    all_names = {"Resize": ["X", "roi", "scales", "sizes"], "Dropout": ["data", "ratio", "training_mode"],
                 "Pad": ["data", "pads", "constant_value", "axes"], "Slice": ["data", "starts", "ends", "axes", "steps"], "Conv": ["X", "W", "B"]}
    names = [n if n in inputs else "" for n in all_names.get(case.op, inputs)]
    while names and names[-1] == "":
        names.pop()
    node = helper.make_node(case.op, names, case.outputs, domain=case.domain,
                            **case.model_attributes)
    values = [helper.make_tensor_value_info(n, TYPES[str(np.asarray(v).dtype)],
                                            list(np.asarray(v).shape)) for n, v in inputs.items()]
    integer = case.op in ("ArgMin", "ArgMax")
    kind = TYPES[str(np.asarray(next(iter(inputs.values()))).dtype)]
    results = [helper.make_tensor_value_info(
        n, TensorProto.INT64 if integer else RESULT_TYPES.get(n, kind),
        case.shapes.get(n)) for n in case.outputs]
    graph = helper.make_graph([node], "g", values, results)
    model = helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", case.opset), helper.make_opsetid("com.microsoft", 1)])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options,
                                        providers=["CPUExecutionProvider"])


def text_of(value):
    return ",".join(repr(v) for v in value) if isinstance(value, (list, tuple)) else str(value)


def run_program(program, case, form, folder, draw):
    command = [program, "op", case.op, *form.options()]
    for key, value in form.attributes(case).items():
        command += [f"--{key}", text_of(value)]
    for key, value in case.inputs.items():
        if key in case.numbers and draw.chance():
            command += [f"--{key}", text_of(np.atleast_1d(value).tolist())]
            continue
        np.save(os.path.join(folder, f"{key}.npy"), form.arranged(case, key, np.asarray(value)))
        command.append(f"{key}={folder}/{key}.npy")
    for name in case.outputs:
        command += ["-o", f"{name}={folder}/out_{name}.npy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return command, None, done.stderr.strip()
    return command, [form.restored(case, n, np.load(os.path.join(folder, f"out_{n}.npy"))) for n in case.outputs], ""


def difference(case, want, have, tolerance):
    for name, a, b in zip(case.outputs, want, have):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape:
            return f"{name} is {list(b.shape)} instead of {list(a.shape)}"
        if a.dtype.kind != "f":
            if not np.array_equal(a.astype(np.int64), b.astype(np.int64)):
                return f"{name} differs"
            continue
        if case.op == "MaxPool":  # of a window that has padding alone
            a = np.where(a <= np.finfo(a.dtype).min, -np.inf, a)
        finite = np.abs(a[np.isfinite(a)])
        scale = max(1.0, float(finite.max(initial=0)))
        if not np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            return f"{name} differs by {np.nanmax(np.abs(a - b)):.3g}"
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--cases", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("-v", action="store_true")
    options = parser.parse_args()
    counts = collections.OrderedDict()
    absent, failures = [], 0
    for name in [*GENERATORS, *(n for n in DEFINED if n not in GENERATORS)]:
        if options.only and name != options.only:
            continue
        passed = refused = 0
        for i in range(options.cases):
            draw = Draw([options.seed, sum(map(ord, name)), i])
            with tempfile.TemporaryDirectory() as folder:
                try:
                    # 1.19.2 is there for its gradients; some of its other kernels crash at the edges.
                    makers = [GENERATORS[name]] if name in GENERATORS else []
                    makers += ODD.get(name, []) if NEW_CEIL or name.endswith("Grad") else []
                    makers += DEFINED.get(name, [])
                    case = makers[i % len(makers)](draw, name)
                    if not NEW_CEIL and any(np.asarray(v).size == 0 for v in case.inputs.values()):
                        raise ValueError("1.19.2 crashes where its gradients get empty tensors")
                    form = onnx_names_forms.Form(draw, case)
                    given = form.rounded(case)
                    want = case.want(given) if case.want else session_of(case, given).run(None, {
                        k: np.asarray(v) for k, v in given.items()})
                except Exception as error:  # no kernel, or attributes that the peer refuses
                    text = str(error).splitlines()[0]
                    refused += 1
                    if options.v:
                        print(f"{name} {i}: ONNX Runtime refuses: {text}")
                    continue
                if case.op.endswith("Loss") and np.isnan(want[0]).any():
                    refused += 1  # a mean of no labels is 0 here
                    continue
                if case.op in WINDOWS and any(0 in np.asarray(v).shape[2:] for v in want):
                    refused += 1  # a window that fits nowhere is refused here
                    continue
                command, have, sentence = run_program(options.program, case, form, folder, draw)
                wrong = sentence or difference(case, want, have, form.tolerance(case))
                if wrong:
                    failures += 1
                    shapes = {k: list(np.asarray(v).shape) for k, v in case.inputs.items()}
                    print(f"FAILED {name} seed {options.seed} case {i}: {wrong}\n"
                          f"  {' '.join(command)}\n  {shapes}")
                else:
                    passed += 1
        counts[name] = passed
        if passed == 0 and refused == options.cases:
            absent.append(name)
    for name, passed in counts.items():
        if options.v:
            print(f"{name}: {passed} of {options.cases}")
    print(f"{sum(counts.values())} cases of {len(counts) - len(absent)} operators agree with definitions and "
          f"ONNX Runtime {onnxruntime.__version__}, {failures} do not")
    if absent:
        print(f"skipped, because this ONNX Runtime has no kernel: {', '.join(absent)}")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
