# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Operators of ONNX Runtime's training build by their definitions in f64, for onnx_names_test.py: the inference build has no
kernels of them. Forms that the training build lacks are here, too: without saved statistics, of any shape of these, with an
axis of 0, single results."""
import math

import numpy as np

DEFINED = {}


def defined(*names):
    def add(function):
        for name in names:
            DEFINED.setdefault(name, []).append(function)
        return function
    return add


def some(d, names):
    """All results, or some of them."""
    return list(names) if d.chance() else [name for name in names if d.chance()] or [d.pick(names)]


def f64(inputs):
    return {name: np.asarray(value, np.float64) for name, value in inputs.items()}


ERF = np.vectorize(math.erf, otypes=[np.float64])
BY_X = {
    "ReluGrad": lambda x, a: x > 0,
    "GeluGrad": lambda x, a: (1 + ERF(x / np.sqrt(2))) / 2 + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi),
    "FastGeluGrad": lambda x, a: fast_gelu_slope(x),
    "QuickGeluGrad": lambda x, a: swish_slope(x, a.get("alpha", 1.702)),
}
BY_Y = {
    "SigmoidGrad": lambda y, a: y * (1 - y),
    "TanhGrad": lambda y, a: 1 - y * y,
    "LeakyReluGrad": lambda y, a: np.where(y > 0, 1, a.get("alpha", 0.01)),
}


def fast_gelu_slope(x):
    b = np.sqrt(2 / np.pi)
    t = np.tanh(b * (x + 0.044715 * x ** 3))
    return (1 + t) / 2 + x / 2 * (1 - t * t) * b * (1 + 3 * 0.044715 * x * x)


def swish_slope(x, alpha):
    z = 1 / (1 + np.exp(-alpha * x))
    return z + alpha * x * z * (1 - z)


def softmax_slope(name, dy, y, axis):
    """Of all dimensions from the axis on, or of the axis alone."""
    axes = (axis,) if name.endswith("_13") else tuple(range(axis, dy.ndim))
    if name.startswith("Log"):
        return dy - np.exp(y) * dy.sum(axes, keepdims=True)
    return y * (dy - (dy * y).sum(axes, keepdims=True))


def summed_to(x, shape):
    x = x.sum(tuple(range(x.ndim - len(shape))))
    return x.sum(tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)


def sliced(x, given):
    """The view of x that starts, ends, axes and steps select."""
    at = [slice(None)] * x.ndim
    for start, end, axis, step in zip(*(given[key].tolist() for key in ("starts", "ends", "axes", "steps"))):
        at[axis] = slice(start, end, step)
    return x[tuple(at)]


def simple(name, case, g):
    """Results of an operator for inputs g, by their names."""
    a = case.attributes
    if "Softmax" in name:
        y = g["X" if name.startswith("Log") else "Y"]
        return {"dX": softmax_slope(name, g["dY"], y, a.get("axis", -1 if name.endswith("_13") else 1) % y.ndim)}
    if name in BY_X:
        return {"dX": g["dY"] * BY_X[name](g["X"], a)}
    if name in BY_Y:
        return {"dX": g["dY"] * BY_Y[name](g["Y"], a)}
    if name == "DivGrad":
        dy, left, right = g["dY"], g["A"], g["B"]
        return {"dA": summed_to(dy / right, left.shape), "dB": summed_to(-dy * left / right ** 2, right.shape)}
    if name == "SliceGrad":
        dx = np.zeros(np.asarray(g["shape"], np.int64))
        sliced(dx, {key: np.asarray(g[key], np.int64) for key in ("starts", "ends", "axes", "steps")})[...] = g["dY"]
        return {"dX": dx}
    if name == "ConcatTraining":
        return {"concat_result": np.concatenate(list(g.values()), a["axis"]),
                "per_input_length": np.array([x.shape[a["axis"]] for x in g.values()])}
    x, keep = g["X"], a.get("momentum", 0.9)  # BatchNormInternal
    axes, wide = tuple(i for i in range(x.ndim) if i != 1), [1, -1] + [1] * (x.ndim - 2)
    mean, variance = x.mean(axes), x.var(axes)
    inverse = 1 / np.sqrt(variance + a.get("epsilon", 1e-5))
    return {"Y": (x - mean.reshape(wide)) * (inverse * g["scale"]).reshape(wide) + g["B"].reshape(wide),
            "running_mean": keep * g["input_mean"] + (1 - keep) * mean,
            "running_var": keep * g["input_var"] + (1 - keep) * variance, "saved_mean": mean, "saved_inv_std": inverse}


SIMPLE = (*BY_X, *BY_Y, "SoftmaxGrad", "SoftmaxGrad_13", "LogSoftmaxGrad", "LogSoftmaxGrad_13", "DivGrad", "SliceGrad",
          "ConcatTraining", "BatchNormInternal")


def make(Case, generators, windows, forward):
    """Registers all. `generators` draw cases by name, `windows` draws an image with attributes of a window over it,
    `forward` runs a case."""

    @defined(*SIMPLE)
    def drawn(d, name):
        case = generators[name](d, name)
        case.want = lambda given: [simple(name, case, f64(given))[key] for key in case.outputs]
        return case

    def case_of(name, inputs, outputs, attributes, want, **more):
        case = Case(name, inputs, outputs, attributes, **more)
        case.want = lambda given: [want(given)[key] for key in outputs]
        return case

    def scattered(indices, dy, shape, columns):
        """Where each maximum came from: a position in (n, c, d…), or with rows the fastest."""
        dx, pixels = np.zeros(shape), int(np.prod(shape[2:]))
        for index, value in zip(indices.flat, dy.flat):
            image, at = divmod(int(index), pixels)
            if columns:
                at = at % shape[2] * shape[-1] + at // shape[2]
            dx.reshape(-1, pixels)[image, at] += value
        return dx

    @defined("MaxPoolGrad")
    def max_pool_grad(d, name):
        a, x = windows(d, name)
        if x.size == 0:
            raise ValueError("nothing is pooled")
        if d.chance(0.3):
            a["storage_order"] = 1
        y, indices = forward(Case("MaxPool", {"X": x}, ["Y", "Indices"], a))
        if y.size == 0 or (y <= np.finfo(np.float32).min).any():
            raise ValueError("a window that has padding alone")
        inputs = {"dY": d.array(*y.shape), "Indices": indices}
        columns = a.get("storage_order") == 1 and x.ndim == 4
        if d.chance():
            inputs["X"] = x
        else:
            a = dict(a, shape=list(x.shape))
        return case_of(name, inputs, ["dX"], a,
                       lambda given: {"dX": scattered(indices, given["dY"], x.shape, columns)})

    @defined("AveragePoolGrad")
    def average_pool_grad(d, name):
        a, x = windows(d, name)
        a.pop("dilations", None)
        if d.chance():
            a["count_include_pad"] = d.int(0, 1)
        x = x[:1, :1]
        pixels = x.size
        if pixels == 0:
            raise ValueError("nothing is pooled")
        basis = np.eye(pixels, dtype=np.float32).reshape(pixels, 1, *x.shape[2:])
        slopes = forward(Case("AveragePool", {"X": basis}, ["Y"], a, opset=19))[0]  # of each pixel
        shape = [d.int(1, 2), d.int(1, 3)]
        inputs = {"dY": d.array(*shape, *slopes.shape[2:])}
        if slopes.size == 0:
            raise ValueError("no window fits")

        def want(given):
            dy = given["dY"].reshape(*shape, -1)
            return {"dX": (dy @ slopes.reshape(pixels, -1).T.astype(np.float64)).reshape(*shape, *x.shape[2:])}
        if d.chance():
            inputs["X"] = np.zeros([*shape, *x.shape[2:]], np.float32)
        else:
            a = dict(a, shape=[*shape, *x.shape[2:]])
        return case_of(name, inputs, ["dX"], a, want, tolerance=1e-4)

    def normalized_grad(x, t, mean, inverse, axes):
        """Of the normalized x and of x, for the gradient t of the normalized x."""
        z = (x - mean) * inverse
        return z, inverse * (t - t.mean(axes, keepdims=True) - z * (t * z).mean(axes, keepdims=True))

    @defined("LayerNormalizationGrad")
    def layer_norm_grad(d, name):
        shape = [d.int(1, 5) for _ in range(d.int(1, 5))]
        axis, epsilon = d.int(-len(shape), len(shape) - 1), d.pick([1e-5, 0.1])
        first = axis % len(shape)
        axes, lead = tuple(range(first, len(shape))), tuple(range(first))
        inputs = {"Y_grad": d.array(*shape), "X": d.array(*shape) * 2 + 1, "scale": d.array(*shape[first:])}
        inputs = {key: np.asarray(value, np.float32) for key, value in inputs.items()}
        saved = d.chance()
        if saved:
            x = inputs["X"].astype(np.float64)
            mean, inverse = x.mean(axes, keepdims=True), 1 / np.sqrt(x.var(axes, keepdims=True) + epsilon)
            kept = d.pick([mean.shape, mean.shape[:first], (mean.size,)])
            inputs["mean"], inputs["inv_std_dev"] = (v.reshape(kept).astype(np.float32) for v in (mean, inverse))

        def want(given):
            g = f64(given)
            mean, inverse = g["X"].mean(axes, keepdims=True), 1 / np.sqrt(g["X"].var(axes, keepdims=True) + epsilon)
            if saved:
                mean, inverse = g["mean"].reshape(mean.shape), g["inv_std_dev"].reshape(mean.shape)
            z, dx = normalized_grad(g["X"], g["Y_grad"] * g["scale"], mean, inverse, axes)
            return {"X_grad": dx, "scale_grad": (g["Y_grad"] * z).sum(lead), "bias_grad": g["Y_grad"].sum(lead)}
        return case_of(name, inputs, some(d, ["X_grad", "scale_grad", "bias_grad"]), {"axis": axis, "epsilon": epsilon},
                       want, tolerance=3e-4)

    @defined("BatchNormalizationGrad")
    def batch_norm_grad(d, name):
        channels, epsilon = d.int(1, 4), d.pick([1e-5, 0.01])
        shape = [d.int(2, 4), channels] + [d.int(1, 3) for _ in range(d.int(0, 3))]
        axes, wide = tuple(i for i in range(len(shape)) if i != 1), [1, channels] + [1] * (len(shape) - 2)
        x = (d.array(*shape) * 2 + 1).astype(np.float32)
        inputs = {"dY": d.array(*shape), "X": x, "scale": d.array(channels)}
        saved = d.chance()
        if saved:  # the mean of other images, too
            inputs["mean"] = (x.mean(axes) + (d.array(channels) if d.chance() else 0)).astype(np.float32)
            inputs["variance"] = (1 / np.sqrt(x.var(axes) + epsilon)).astype(np.float32)

        def want(given):
            g = f64(given)
            mean, inverse = g["X"].mean(axes), 1 / np.sqrt(g["X"].var(axes) + epsilon)
            if saved:
                mean, inverse = g["mean"], g["variance"]
            z, dx = normalized_grad(g["X"], g["dY"] * g["scale"].reshape(wide), mean.reshape(wide),
                                    inverse.reshape(wide), axes)
            return {"X_grad": dx, "scale_grad": (g["dY"] * z).sum(axes), "bias_grad": g["dY"].sum(axes)}
        return case_of(name, inputs, some(d, ["X_grad", "scale_grad", "bias_grad"]),
                       {"epsilon": epsilon} if epsilon != 1e-5 or d.chance() else {}, want, tolerance=3e-4)

    @defined("SoftmaxCrossEntropyLossGrad")
    def cross_entropy_grad(d, name):
        n, c, rest = d.int(1, 4), d.int(2, 6), [d.int(1, 3) for _ in range(d.int(0, 4))]
        labels = d.r.integers(0, c, [n] + rest).astype(d.pick([np.int64, np.int32]))
        reduction, ignored = d.pick(["none", "sum", "mean"]), None
        a = {"reduction": reduction} if reduction != "mean" or d.chance() else {}
        if d.chance():
            ignored = a["ignore_index"] = d.pick([-1, 0, c - 1, -100])
            labels[d.r.random(labels.shape) < 0.3] = ignored
        scores = d.array(n, c, *rest)
        log_prob = (scores - np.log(np.exp(scores).sum(1, keepdims=True))).astype(np.float32)
        dy = d.array(*([n] + rest if reduction == "none" else []))
        inputs = {"dY": np.asarray(dy, np.float32), "log_prob": log_prob, "label": labels}
        if d.chance():
            inputs["weight"] = d.positive(c)
        at = np.where((labels >= 0) & (labels < c), labels, 0)

        def want(given):
            g = f64(given)
            weights = g["weight"][at] if "weight" in g else np.ones(labels.shape)
            weights = np.where(labels == ignored, 0, weights) if ignored is not None else weights
            slope = np.exp(g["log_prob"]) - np.moveaxis(np.eye(c)[at], -1, 1)
            dy = g["dY"] if reduction != "none" else np.expand_dims(g["dY"], 1)
            whole = weights.sum() if reduction == "mean" else 1
            return {"d_logits": slope * np.expand_dims(weights, 1) * dy / (whole if whole != 0 else 1)}
        return case_of(name, inputs, ["d_logits"], a, want)

    @defined("DropoutGrad")
    def dropout_grad(d, name):
        shape = [d.int(1, 5) for _ in range(d.int(1, 4))]
        ratio = d.pick([0.25, 0.5, 0.875])
        mask = d.r.random(shape) < 0.6
        inputs = {"dY": d.array(*shape), "mask": mask}
        if ratio != 0.5 or d.chance():
            inputs["ratio"] = np.float32(ratio)
        return case_of(name, inputs, ["dX"], {}, lambda given: {"dX": np.where(mask, given["dY"] / (1 - ratio), 0)},
                       numbers=("ratio",))

    def optimizer_inputs(d, names):
        shape = [d.int(1, 4) for _ in range(d.int(1, 3))]
        one = (lambda v, t: np.array([v], t)) if d.chance() else (lambda v, t: np.asarray(v, t))
        time = d.pick([0, 1, 5])
        values = {key: d.positive(*shape) if key == "H" else d.array(*shape) for key in names}
        return {"R": one(0.125, np.float32), "T": one(time, np.int64), **values}, time

    @defined("Adam")
    def adam(d, name):
        inputs, time = optimizer_inputs(d, "XGVH")
        a = {"alpha": 0.9, "beta": 0.999, "epsilon": 1e-6, "norm_coefficient": 0.0, "norm_coefficient_post": 0.0}
        given = {key: value for key, value in (("alpha", 0.75), ("beta", 0.875), ("epsilon", 1e-3),
                                               ("norm_coefficient", 0.125), ("norm_coefficient_post", 0.25)) if d.chance()}
        a.update(given)

        def want(given):
            X, G, V, H = (f64(given)[key] for key in "XGVH")
            G = G + a["norm_coefficient"] * X
            V, H = a["alpha"] * V + (1 - a["alpha"]) * G, a["beta"] * H + (1 - a["beta"]) * G * G
            rate = 0.125 * (np.sqrt(1 - a["beta"] ** time) / (1 - a["alpha"] ** time) if time > 0 else 1)
            X = (1 - a["norm_coefficient_post"]) * (X - rate * V / (np.sqrt(H) + a["epsilon"]))
            return {"X_new": X, "V_new": V, "H_new": H}
        return case_of(name, inputs, some(d, ["X_new", "V_new", "H_new"]), given, want, tolerance=1e-4)

    @defined("Momentum")
    def momentum(d, name):
        inputs, time = optimizer_inputs(d, "XGV")
        a = {"alpha": d.pick([0.875, 0.5]), "beta": d.pick([1.0, 0.5]), "norm_coefficient": d.pick([0.0, 0.125]),
             "mode": d.pick(["standard", "nesterov"])}
        if a["mode"] == "nesterov" and time > 0:
            a["beta"] = 1.0

        def want(given):
            X, G, V = (f64(given)[key] for key in "XGV")
            G = G + a["norm_coefficient"] * X
            V = a["alpha"] * V + (a["beta"] if time > 0 else 1) * G
            return {"X_new": X - 0.125 * (V if a["mode"] == "standard" else G + a["alpha"] * V), "V_new": V}
        return case_of(name, inputs, some(d, ["X_new", "V_new"]), a, want, numbers=("T",), tolerance=1e-4)
