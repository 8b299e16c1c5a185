# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Calls at the edges of what an operator of ONNX allows, for onnx_names_test.py: scalars, empty tensors, NaN and
infinities, f64, axes from the end, dimensions of one, windows that hardly fit, attributes that are seldom given."""
import numpy as np

ODD = {}


def odd(*names):
    def add(function):
        for name in names:
            ODD.setdefault(name, []).append(function)
        return function
    return add


def any_shape(d, low=0, high=6, empty=0.15):
    """Of any rank, with dimensions of 1 and sometimes none."""
    shape = [d.pick([1, 1, 2, 3, 5]) for _ in range(d.int(low, high))]
    if shape and d.chance(empty):
        shape[d.int(0, len(shape) - 1)] = 0
    return shape


def special(d, shape, scale=3.0):
    """Some of the elements are what arithmetic has to take care of."""
    x = np.asarray(d.array(*shape, scale=scale), np.float32)
    flat = x.reshape(-1)
    for i in range(flat.size):
        if d.chance(0.2):
            flat[i] = d.pick([0, -0.0, np.inf, -np.inf, np.nan, 90, -90, 1e-30, -1e30, 20, -20])
    return flat.reshape(shape)


def typed(d, x):
    return x.astype(np.float64) if d.chance(0.3) else x


def axis_of(d, rank):
    return d.int(-rank, rank - 1)


def make(make_case, odd_tests):
    """Registers all; `make_case` is the class of the caller."""
    Case = make_case

    @odd("Relu", "Sigmoid", "Abs", "Softplus", "LeakyRelu", "HardSigmoid", "Elu", "Selu", "HardSwish")
    def activation(d, name):
        a = {"LeakyRelu": {"alpha": d.pick([0.0, -0.5, 2.0])}, "HardSigmoid": {"alpha": d.pick([0.25, -1.0, 0.0])},
             "Elu": {"alpha": d.pick([0.0, 2.5])}}.get(name, {}) if d.chance() else {}
        return Case(name, {"X": typed(d, special(d, any_shape(d)))}, ["Y"], a)

    @odd("Tanh", "Softsign", "Exp", "Log")
    def plain(d, name):
        return Case(name, {"input": typed(d, special(d, any_shape(d)))}, ["output"])

    @odd("Gelu")
    def gelu(d, name):
        return Case(name, {"X": typed(d, special(d, any_shape(d)))}, ["Y"],
                    {"approximate": d.pick(["none", "tanh"])}, opset=20)

    @odd("ReluGrad", "GeluGrad", "FastGeluGrad", "QuickGeluGrad")
    def grad_of_x(d, name):
        shape = any_shape(d)
        return Case(name, {"dY": d.array(*shape), "X": d.array(*shape, scale=d.pick([1, 9, 40]))},
                    ["dX"], {}, "com.microsoft")

    @odd("SigmoidGrad", "TanhGrad", "LeakyReluGrad")
    def grad_of_y(d, name):
        shape = any_shape(d)
        return Case(name, {"dY": d.array(*shape), "Y": special(d, shape)}, ["dX"], {}, "com.microsoft")

    @odd("PRelu")
    def prelu(d, name):
        shape = any_shape(d, 1, 5)
        slope = [1 if d.chance(0.3) else n for n in shape][d.int(0, len(shape)):]
        return Case(name, {"X": special(d, shape), "slope": d.array(*slope)}, ["Y"])

    @odd("Softmax", "LogSoftmax")
    def softmax(d, name):
        shape = any_shape(d, 1)
        opset = d.pick([11, 13, 17])
        a = {"axis": axis_of(d, len(shape))} if d.chance(0.8) else {}
        if opset < 13 and not -len(shape) <= a.get("axis", 1) < len(shape):
            a["axis"] = 0
        case = Case(name, {"input": typed(d, d.array(*shape, scale=d.pick([1, 30, 200])))}, ["output"],
                    dict(a, opset=12) if opset == 11 else a, opset=opset, model_attributes=a)
        return case

    @odd("SoftmaxGrad", "SoftmaxGrad_13", "LogSoftmaxGrad", "LogSoftmaxGrad_13")
    def softmax_grad(d, name):
        shape = any_shape(d, 1)
        second = "X" if name.startswith("Log") else "Y"
        return Case(name, {"dY": d.array(*shape), second: special(d, shape, 1) if d.chance(0.3) else d.array(*shape)},
                    ["dX"], {"axis": axis_of(d, len(shape))}, "com.microsoft")

    @odd("Add", "Sub", "Mul", "Div")
    def arithmetic(d, name):
        shape = any_shape(d)
        other = [1 if d.chance(0.4) else n for n in shape]
        this = [1 if n == o and d.chance(0.2) else n for n, o in zip(shape, other)]
        other = other[d.int(0, len(other)):]
        a, b = special(d, this), special(d, other)
        if d.chance(0.3):
            a, b = a.astype(np.float64), b.astype(np.float64)
        return Case(name, {"A": a, "B": b} if d.chance() else {"A": b, "B": a}, ["C"])

    @odd("DivGrad")
    def div_grad(d, name):
        shape = any_shape(d, empty=0)
        other = [1 if d.chance(0.4) else n for n in shape][d.int(0, len(shape)):]
        return Case(name, {"dY": d.array(*shape), "A": d.array(*shape), "B": d.positive(*other)}, ["dA", "dB"][:d.int(1, 2)],
                    {}, "com.microsoft")

    @odd("Gemm")
    def gemm(d, name):
        m, k, n = (d.pick([0, 1, 1, 2, 5]) if i != 1 else d.pick([1, 3]) for i in range(3))
        a = {x: d.int(0, 1) for x in ("transA", "transB") if d.chance()}
        a.update({x: d.pick([0.0, -1.0, 0.5]) for x in ("alpha", "beta") if d.chance()})
        inputs = {"A": d.array(*((k, m) if a.get("transA") else (m, k))),
                  "B": d.array(*((n, k) if a.get("transB") else (k, n)))}
        if d.chance(0.7):
            inputs["C"] = np.asarray(d.array(*d.pick([[], [1], [n], [m, 1], [1, 1], [m, n]])), np.float32)
        return Case(name, {key: typed(d, v) if False else v for key, v in inputs.items()}, ["Y"], a)

    @odd("MatMul")
    def matmul(d, name):
        m, n, k = d.pick([0, 1, 2, 4]), d.pick([0, 1, 3]), d.pick([1, 1, 4])  # sums of nothing are not set there
        left, right = any_shape(d, 0, 2, 0.1), any_shape(d, 0, 2, 0)
        right = [l if d.chance(0.7) else 1 for l in left] if d.chance() else right
        a, b = left + [m, k], right + [k, n]
        a = a[-1:] if d.chance(0.1) else a
        b = b[-2:-1] if d.chance(0.1) else b
        return Case(name, {"A": d.array(*a), "B": d.array(*b)}, ["Y"])

    def window(d, spatial, dilate=True):
        size = [d.int(1, 8) for _ in range(spatial)]
        kernel = [d.int(1, 4) for _ in range(spatial)]
        a = {"kernel_shape": kernel}
        if d.chance(0.7):
            a["strides"] = [d.int(1, 4) for _ in range(spatial)]
        if dilate and d.chance(0.4):
            a["dilations"] = [d.int(1, 3) for _ in range(spatial)]
        kind = d.int(0, 3)
        if kind == 0:
            a["auto_pad"] = d.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
        elif kind > 1:
            a["pads"] = [d.int(0, max(0, kernel[i % spatial] - (1 if kind == 2 else 0))) for i in range(2 * spatial)]
            if d.chance(0.3):
                a["auto_pad"] = "NOTSET"
        return size, a

    @odd("Conv")
    def conv(d, name):
        spatial = d.pick([1, 2])
        size, a = window(d, spatial)
        group = d.pick([1, 1, 2, 4])
        if d.chance() or group > 1:
            a["group"] = group
        cin, cout = group * d.pick([1, 1, 3]), group * d.pick([1, 2])
        inputs = {"X": d.array(d.pick([0, 1, 3]), cin, *size), "W": d.array(cout, cin // group, *a["kernel_shape"])}
        if d.chance():
            inputs["B"] = d.array(cout)
        if d.chance(0.3):
            a.pop("kernel_shape")
        return Case(name, inputs, ["Y"], a)

    @odd("ConvTranspose")
    def conv_transpose(d, name):
        spatial = d.pick([1, 2])
        size, a = window(d, spatial)
        group = d.pick([1, 1, 2])
        a["group"] = group
        cin, cout = group * d.pick([1, 3]), d.pick([1, 2])
        strides, dilations = (a.get(k, [1] * spatial) for k in ("strides", "dilations"))
        if d.chance(0.4):
            a["output_padding"] = [d.int(0, s - 1) for s in strides]
        if d.chance(0.4):
            a["output_shape"] = [max(1, (n - 1) * s + (k - 1) * l + 1 + d.int(-2, 1)) for n, s, k, l in
                                 zip(size, strides, a["kernel_shape"], dilations)]
            a.pop("pads", None)
        inputs = {"X": d.array(d.pick([1, 2]), cin, *size), "W": d.array(cin, cout, *a["kernel_shape"])}
        if d.chance():
            inputs["B"] = d.array(cout * group)
        return Case(name, inputs, ["Y"], a)

    def pooled(d, name, ceil=True, **options):
        spatial = d.pick([1, 2])
        size, a = window(d, spatial, **options)
        if "pads" in a:
            a["pads"] = [min(p, a["kernel_shape"][i % spatial] - 1) for i, p in enumerate(a["pads"])]
        if ceil and d.chance():
            a["ceil_mode"] = d.int(0, 1)
        return a, d.array(d.pick([0, 1, 2]), d.int(1, 5), *size)

    @odd("MaxPool")
    def max_pool(d, name):
        a, x = pooled(d, name)
        if d.chance(0.3):
            x = np.round(x)  # equal maxima
        if d.chance(0.2):
            x = np.where(d.r.random(x.shape) < 0.2, np.float32(np.inf), x)
        outputs = ["Y", "Indices"][:d.int(1, 2)]
        if d.chance(0.3):
            a["storage_order"] = d.int(0, 1)
        return Case(name, {"X": typed(d, x)}, outputs, a)

    @odd("AveragePool")
    def average_pool(d, name):
        a, x = pooled(d, name)
        if a.get("auto_pad", "NOTSET").startswith("SAME"):
            a.pop("strides", None)  # with dilations and pixels left out both, ONNX Runtime counts otherwise
        if d.chance():
            a["count_include_pad"] = d.int(0, 1)
        return Case(name, {"X": x}, ["Y"], a, opset=19 if "dilations" in a else d.pick([11, 19]))

    @odd("LpPool")
    def lp_pool(d, name):
        a, x = pooled(d, name)
        if d.chance():
            a["p"] = d.int(1, 4)
        return Case(name, {"X": x}, ["Y"], a, opset=18)

    @odd("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
    def global_pool(d, name):
        a = {"p": d.int(1, 4)} if name == "GlobalLpPool" and d.chance() else {}
        x = d.array(d.pick([0, 1, 2]), d.int(1, 3), *[d.pick([1, 4]) for _ in range(d.int(1, 4))])
        return Case(name, {"X": x}, ["Y"], a)

    @odd("Resize")
    def resize(d, name):
        spatial = d.pick([1, 2, 2])
        x = d.array(1, d.int(1, 2), *[d.int(1, 6) for _ in range(spatial)])
        a = {"mode": d.pick(["nearest", "linear"]),
             "coordinate_transformation_mode": d.pick(["half_pixel", "pytorch_half_pixel", "align_corners",
                                                       "asymmetric", "half_pixel_symmetric"])}
        if a["mode"] == "nearest":
            a["nearest_mode"] = d.pick(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
        inputs = {"X": x}
        every = d.chance(0.7)
        if not every:
            a["axes"] = [i - (2 + spatial if d.chance() else 0) for i in range(2, 2 + spatial)]
        ones = [1, 1] if every else []
        if d.chance():
            scales = [d.pick([0.3, 0.51, 1.0, 1.25, 1.7, 2.6, 3.3]) for _ in range(spatial)]
            scales = [s if int(n * s) > 0 else 2.0 for s, n in zip(scales, x.shape[2:])]
            inputs["scales"] = np.array(ones + scales, np.float32)
        else:
            inputs["sizes"] = np.array((list(x.shape[:2]) if every else []) + [d.int(1, 9) for _ in range(spatial)],
                                       np.int64)
            if "axes" in a and d.chance():
                a["axes"] = list(range(2, 2 + spatial))  # with axes from the end ONNX Runtime changes nothing
                a["keep_aspect_ratio_policy"] = d.pick(["stretch", "not_larger", "not_smaller"])
                if a["keep_aspect_ratio_policy"] != "stretch":  # a scale that leaves no part of a pixel
                    inputs["sizes"] = np.array([n * 2 for n in x.shape[2:]], np.int64)
                    inputs["sizes"][d.int(0, spatial - 1)] *= d.pick([1, 2] if a["keep_aspect_ratio_policy"] ==
                                                                     "not_larger" else [1])
        cut = any(n * s != int(n * s) for n, s in zip(x.shape[-spatial:], inputs.get("scales", [])[-spatial:]))
        cut = cut or a["mode"] == "nearest"  # there f32 and f64 round to other pixels
        if cut and a["coordinate_transformation_mode"] == "half_pixel_symmetric":
            a["coordinate_transformation_mode"] = "half_pixel"
        return Case(name, inputs, ["Y"], a, opset=19, numbers=("scales", "sizes"), tolerance=1e-4)

    @odd("BatchNormalization")
    def batch_norm(d, name):
        c = d.int(1, 4)
        x = d.array(d.pick([0, 1, 3]), c, *[d.int(1, 3) for _ in range(d.int(0, 4))])
        a = {"epsilon": d.pick([0.0, 0.1])} if d.chance() else {}
        outputs = ["Y"]
        if d.chance() and x.size:
            a["training_mode"] = 1
            outputs += ["running_mean", "running_var"]
            if d.chance():
                a["momentum"] = d.pick([0.0, 0.5, 1.0])
        inputs = {"X": x, "scale": d.array(c), "B": d.array(c), "input_mean": d.array(c), "input_var": d.positive(c)}
        return Case(name, inputs, outputs, a, opset=d.pick([14, 15, 17]), tolerance=1e-4)

    @odd("LayerNormalization")
    def layer_norm(d, name):
        shape = any_shape(d, 1, 5, 0)
        axis = axis_of(d, len(shape))
        a = {"axis": axis, "epsilon": d.pick([1e-3, 0.1])}
        if d.chance(0.3):
            a["stash_type"] = 1
        tail = shape[axis % len(shape):]
        inputs = {"X": d.array(*shape) * 3 + 2, "Scale": d.array(*tail)}
        if d.chance():
            inputs["B"] = d.array(*tail)
        return Case(name, {k: np.asarray(v, np.float32) for k, v in inputs.items()},
                    ["Y", "Mean", "InvStdDev"][:d.pick([1, 2, 3])], a, tolerance=1e-4)

    @odd("GroupNormalization")
    def group_norm(d, name):
        groups = d.pick([1, 2, 4])
        c = groups * d.int(1, 2)
        x = d.array(d.int(1, 2), c, *[d.int(1, 3) for _ in range(d.int(0, 3))]) + 1
        return Case(name, {"X": x, "scale": d.array(c), "bias": d.array(c)}, ["Y"],
                    {"num_groups": groups, "epsilon": 0.1}, opset=21, tolerance=1e-4)

    @odd("InstanceNormalization")
    def instance_norm(d, name):
        c = d.int(1, 3)
        x = d.array(d.pick([1, 2]), c, *[d.pick([1, 2, 5]) for _ in range(d.int(1, 4))]) + 1
        return Case(name, {"input": x, "scale": d.array(c), "B": d.array(c)}, ["output"], {"epsilon": 0.1},
                    tolerance=1e-4)

    @odd("LRN")
    def lrn(d, name):
        a = {"size": d.pick([1, 3, 5, 7, 9]), "alpha": d.pick([2.5, 1.0, 1e-4]), "beta": d.pick([2.0, 1.0, 0.3]),
             "bias": d.pick([0.5, 1.0, 3.0])}
        return Case(name, {"X": d.array(d.pick([0, 1, 2]), d.int(1, 9), d.int(1, 3), d.int(1, 3))}, ["Y"], a)

    def labels_of(d):
        n, c, rest = d.int(1, 3), d.pick([1, 2, 6]), [d.int(1, 3) for _ in range(d.int(0, 4))]
        labels = d.r.integers(0, c, [n] + rest).astype(d.pick([np.int64, np.int32]))
        a = {"reduction": d.pick(["none", "sum", "mean"])}
        if d.chance():
            a["ignore_index"] = d.pick([-100, -1, 0, c - 1, 255] if c > 1 else [-100, 255])
            labels[d.r.random(labels.shape) < 0.3] = a["ignore_index"]
            labels.flat[0] = 1 if c > 1 and a["ignore_index"] != 1 else labels.flat[0]
        zero = 0.2 if a["reduction"] != "mean" else 0  # a mean of nothing is 0 here, and NaN there
        weights = np.where(d.r.random(c) < zero, 0, d.positive(c)).astype(np.float32) if d.chance() else None
        return [n, c] + rest, labels, a, weights

    @odd("SoftmaxCrossEntropyLoss")
    def cross_entropy(d, name):
        shape, labels, a, weights = labels_of(d)
        inputs = {"scores": d.array(*shape, scale=d.pick([1, 40])), "labels": labels}
        if weights is not None:
            inputs["weights"] = weights
        return Case(name, inputs, ["output", "log_prob"][:d.int(1, 2)], a)

    @odd("NegativeLogLikelihoodLoss")
    def nll(d, name):
        shape, labels, a, weights = labels_of(d)
        inputs = {"input": d.array(*shape), "target": labels}
        if weights is not None:
            inputs["weight"] = weights
        return Case(name, inputs, ["loss"], a)

    odd_tests.update(ODD)
    make_shapes(Case)
    odd_tests.update(ODD)


def make_shapes(Case):
    """Operators that move elements, and reductions."""

    @odd("Reshape")
    def reshape(d, name):
        shape = any_shape(d, 0, 5)
        count = int(np.prod(shape))
        to = [[-1] if count else list(shape), [1, 1, count], [0] * len(shape), [count], shape[::-1],
              [1, -1, 1] if count else [0, count]]
        if count == 1:
            to += [[], [1]]
        if count == 0:
            to = [list(shape), list(shape[::-1])]
        pick = d.pick(to)
        a = {"allowzero": 1} if count == 0 or d.chance(0.1) and 0 not in pick else {}
        return Case(name, {"data": d.array(*shape), "shape": np.array(pick, np.int64)}, ["reshaped"], a,
                    numbers=("shape",))

    @odd("Slice")
    def slice_(d, name):
        shape = any_shape(d, 1, 5, 0.1)
        axes = [i for i in range(len(shape)) if d.chance(0.6)] or [0]
        starts = [d.pick([0, 1, -1, -2, -100, 3, 2**31]) for _ in axes]
        ends = [d.pick([0, 1, -1, 2, 100, 2**63 - 1, -100]) for _ in axes]
        numbers = {"starts": starts, "ends": ends, "axes": [x - (len(shape) if d.chance() else 0) for x in axes]}
        if d.chance():
            numbers["steps"] = [d.pick([1, 2, 3, -1, -2, -3]) for _ in axes]
        if len(axes) == len(shape) and d.chance(0.3):
            numbers["axes"] = None
            numbers.pop("steps", None)
        numbers = {k: np.array(v, np.int64) for k, v in numbers.items() if v is not None}
        return Case(name, {"data": d.array(*shape), **numbers}, ["output"], numbers=tuple(numbers))

    @odd("Concat", "ConcatTraining")
    def concat(d, name):
        shape = any_shape(d, 1, 5, 0)
        axis = axis_of(d, len(shape))
        inputs = {}
        for i in range(d.pick([1, 2, 3, 5])):
            shape[axis] = d.pick([0, 1, 2, 3])
            inputs[f"inputs{i}"] = d.array(*shape)
        outputs = ["concat_result", "per_input_length"][:d.int(1, 2) if name == "ConcatTraining" else 1]
        return Case(name, inputs, outputs, {"axis": axis}, "" if name == "Concat" else "com.microsoft")

    @odd("Split")
    def split(d, name):
        shape = any_shape(d, 1, 4, 0)
        axis = axis_of(d, len(shape))
        parts = [d.pick([0, 1, 2]) for _ in range(d.int(1, 4))]
        shape[axis] = sum(parts)
        inputs, a = {"input": d.array(*shape), "split": np.array(parts, np.int64)}, {"axis": axis}
        if d.chance(0.4):
            shape[axis] = d.int(len(parts), 9)
            inputs, a["num_outputs"] = {"input": d.array(*shape)}, len(parts)
        return Case(name, inputs, [f"outputs{i}" for i in range(len(parts))], a, opset=18, numbers=("split",))

    @odd("Pad")
    def pad(d, name):
        shape = any_shape(d, 1, 4, 0)
        mode = d.pick(["constant", "constant", "reflect", "edge", "wrap", "wrap"])
        low = -1 if d.chance(0.4) else 0
        axes = sorted(set(d.int(0, len(shape) - 1) for _ in range(3))) if d.chance(0.4) else list(range(len(shape)))
        pads = [d.int(low if shape[x] > 2 else 0, 2 if mode != "reflect" else min(2, shape[x] - 1)) for x in axes + axes]
        inputs = {"data": d.array(*shape), "pads": np.array(pads, np.int64)}
        if mode == "constant" and d.chance():
            inputs["constant_value"] = np.float32(d.pick([1.5, -np.inf]))
        if axes != list(range(len(shape))):
            inputs["axes"] = np.array([x - (len(shape) if d.chance() else 0) for x in axes], np.int64)
        if mode == "wrap":
            inputs["pads"] = np.where(inputs["pads"] > 1, d.pick([2, 3, 7, 12]), inputs["pads"])
        return Case(name, inputs, ["output"], {"mode": mode}, opset=19, numbers=("pads", "constant_value", "axes"))

    @odd("Transpose")
    def transpose(d, name):
        shape = any_shape(d, 0, 6)
        order = [int(i) for i in d.r.permutation(len(shape))]
        return Case(name, {"data": d.array(*shape)}, ["transposed"], {"perm": order} if d.chance(0.8) and order else {})

    @odd("ReduceSum", "ReduceMean", "ReduceMin", "ReduceMax")
    def reduce(d, name):
        shape = any_shape(d, 0, 6, 0.2 if name in ("ReduceMin", "ReduceMax") else 0)
        inputs = {"data": typed(d, special(d, shape) if d.chance(0.3) else d.array(*shape))}
        inputs["data"] = np.asarray(inputs["data"])
        if name in ("ReduceMin", "ReduceMax"):  # NaN wins or loses there, by the shape
            inputs["data"] = np.nan_to_num(inputs["data"], nan=1, posinf=np.inf, neginf=-np.inf)
        a = {"keepdims": d.int(0, 1)} if d.chance() else {}
        if shape and d.chance(0.7):
            below = len(shape) if 0 not in shape else 0  # of no elements ONNX Runtime overlooks axes from the end
            axes = [i - (below if d.chance() else 0) for i in range(len(shape)) if d.chance()]
            inputs["axes"] = np.array(axes, np.int64)
        if d.chance(0.3):
            a["noop_with_empty_axes"] = d.int(0, 1)
        return Case(name, inputs, ["reduced"], a, opset=18, numbers=("axes",))

    @odd("ArgMin", "ArgMax")
    def arg_reduce(d, name):
        shape = any_shape(d, 1, 5, 0)
        a = {"axis": axis_of(d, len(shape))} if d.chance(0.8) else {}
        if d.chance():
            a["keepdims"] = d.int(0, 1)
        if d.chance():
            a["select_last_index"] = d.int(0, 1)
        return Case(name, {"data": typed(d, np.round(d.array(*shape)))}, ["reduced"], a)

    @odd("Dropout")
    def dropout(d, name):
        inputs = {"data": d.array(*any_shape(d))}
        if d.chance():
            inputs["ratio"] = np.float32(d.pick([0.0, 0.25, 0.9]))
            if d.chance():
                inputs["training_mode"] = np.array(False)
        return Case(name, inputs, ["output", "mask"][:d.int(1, 2)], numbers=("ratio",))
