# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""The fields of a row of `retrograde bench` as torch has them, for kernels and formulas alike. A
function raises Skip where torch has no counterpart.
"""
import math

import torch


class Skip(Exception):
    """This row has no counterpart in torch."""


def numbers(text, kind=int):
    """A list, "1,2", as the fields have it."""
    return [kind(number) for number in text.split(",") if number]


def returns_view(op, fields, gradient):
    """Whether torch would answer with a view of what it is given, and write nothing: the time of a copy beside ours
    then says little about torch."""
    if op in ("reshape", "transpose"):
        return True
    if op == "slice":
        return not gradient
    if op == "concat":
        return gradient
    return op == "reduce" and gradient and fields["kind"] == "sum"


def image(tensor):
    """A batch (n, h, w, c), with its dimensions in torch's order."""
    if tensor.dim() != 4:
        raise Skip("torch is asked for batches of images alone")
    return tensor.permute(0, 3, 1, 2)


def as_nchw(tensor):
    """The same batch (n, h, w, c), in memory of torch's order."""
    return image(tensor).contiguous().permute(0, 2, 3, 1)


def image_like(make, y):
    """Another image of the size of y, in memory as it should be."""
    n, c, h, w = y.shape
    return image(make([n, h, w, c]))


def softmax_place(fields, shape):
    """Shape and axis, with what is normalized together as one dimension."""
    axis = int(fields["axis"]) % len(shape)
    if fields["flatten"] == "true":
        shape = shape[:axis] + [math.prod(shape[axis:])]
    return shape, axis, fields["kind"] == "log"


# a and b where they are not given.
DEFAULTS = {"relu": (0, 0), "tanh": (1, 1), "elu": (1, 0)}


def neuron_fields(fields):
    kind = fields["kind"]
    a, b = DEFAULTS.get(kind, (0, 0))
    a = a if fields["a"] == "none" else float(fields["a"])
    b = b if fields["b"] == "none" else float(fields["b"])
    if kind not in ("relu", "sigmoid", "tanh", "elu", "gelu"):
        raise Skip("torch is not asked for " + kind)
    return kind, a, b, fields["from_y"] == "true"


def pool_fields(fields):
    """window, stride, padding, dilation, ceil_mode, and whether the padding counts in a mean."""
    kind, clamp, ceil = fields["kind"], fields["edge"] == "clamp", fields["ceil_mode"] == "true"
    top, left, bottom, right = (
        int(fields["padding." + side]) for side in ("top", "left", "bottom", "right")
    )
    if kind == "l2" or fields["padding.policy"] != "explicit" or fields["output"] != "0,0":
        raise Skip("torch is asked for max and average with a given padding alone")
    if (top, left) != (bottom, right) or min(top, left) < 0:
        raise Skip("torch pads either side alike")
    if kind == "max" and not clamp and (top, left) != (0, 0):
        raise Skip("no maximum of torch is won by padding")
    counted = not clamp or fields["count_include_pad"] == "true"
    dilation = numbers(fields["dilation"])
    if kind == "average":
        if dilation != [1, 1] or fields["zero_pad"] != "0,0" or (ceil and not clamp):
            raise Skip("torch has no such mean")
    window, stride = numbers(fields["window"]), numbers(fields["stride"])
    return window, stride, [top, left], dilation, ceil, counted


def upsample_sizes(fields, shape):
    """Rows and columns of the input and of the output, and the scales."""
    if len(shape) != 4:
        raise Skip("torch is asked for batches of images alone")
    scales, output = numbers(fields["scale"], float), numbers(fields["output"])
    sizes = [out or math.floor(n * s) for n, s, out in zip(shape[1:3], scales, output)]
    scales = [out / n if given else s
              for n, s, out, given in zip(shape[1:3], scales, sizes, output)]
    return shape[1:3], sizes, scales


def pad_fields(fields):
    """The mode, its value, and the paddings of columns, rows, channels, images as torch has them."""
    if fields["fill"] == "true":
        raise Skip("torch does not pad with a tensor")
    before, after = numbers(fields["before"]), numbers(fields["after"])
    pads = [side[d] for d in (2, 1, 3, 0) for side in (before, after)]
    mode = fields["mode"]
    if mode == "mirror_edge":
        raise Skip("torch has no mirror with the edge")
    if mode not in ("zero", "constant") and (any(pads[4:]) or min(pads) < 0):
        raise Skip(f"torch's {mode} pads rows and columns alone")
    return mode, float(fields["value"]) if mode == "constant" else 0.0, pads


def norm_inputs(fields, shapes, make):
    """x, gamma, beta; 16 bits go with parameters of 32, as in torch's mixed precision."""
    if fields["gamma"] != "true" or fields["beta"] != "true":
        raise Skip("torch is asked for gamma and beta alone")
    x = make(shapes[0])
    wide = x.dtype if x.dtype == torch.float64 else torch.float32
    return x, make(shapes[1]).to(wide), make(shapes[2]).to(wide), float(fields["epsilon"])


def norm_relu(fields):
    """Whether a relu follows."""
    kind = fields["neuron.kind"]
    if kind not in ("none", "relu") or fields["neuron.a"] not in ("none", "0"):
        raise Skip("torch is asked for relu alone")
    return kind == "relu"


def batch_norm_fields(fields):
    if fields["statistics"] != "own" or fields["phase"] != "whole":
        raise Skip("torch is asked for statistics of a whole batch alone")
    return norm_relu(fields)


def group_norm_place(fields, shape):
    """Groups, and whether an image is a single row: torch's layer normalization."""
    axis, groups = int(fields["axis"]) % len(shape), int(fields["groups"])
    if axis == len(shape) - 1 and groups == 1:
        return groups, True
    if axis != 1 or len(shape) != 4:
        raise Skip("torch is asked for batches of images, and for rows alone")
    return groups or shape[-1], False


def lrn_fields(fields):
    if fields["even_after"] == "true" and int(fields["window"]) % 2 == 0:
        raise Skip("torch's even windows reach further before a channel")
    return int(fields["window"]), *(float(fields[name]) for name in ("alpha", "beta", "delta"))


def slice_place(fields, shape):
    """A slice of Python for each dimension."""
    parts = []
    start, length, step = (numbers(fields[name]) for name in ("start", "length", "step"))
    for d, size in enumerate(shape):
        first = start[d] if d < len(start) else 0
        first += size if first < 0 else 0
        by = step[d] if d < len(step) else 1
        many = length[d] if d < len(length) else -1
        many = -(-(size - first) // by) if many < 0 else many
        parts.append(slice(first, first + (many - 1) * by + 1 if many else first, by))
    return tuple(parts)


def reshape_dims(fields, shape):
    dims = numbers(fields["dims"])
    keeps = fields["zero_keeps"] == "true"
    return [shape[d] if keeps and size == 0 else size for d, size in enumerate(dims)]


def transpose_order(fields, shape):
    order = numbers(fields["order"]) or range(len(shape))[::-1]
    return [d % len(shape) for d in order]


def neuron_kind(fields):
    kind = fields["neuron.kind"]
    if kind not in ("none", "relu"):
        raise Skip("torch is asked for contractions without a neuron or with relu alone")
    return kind


def wanted(gradient, inputs):
    """Which of x, w and b have a gradient here."""
    return [(gradient is True or gradient == name) and i < inputs for i, name in enumerate("xwb")]


def conv_place(fields, shape):
    top, left, bottom, right = (
        int(fields["padding." + side]) for side in ("top", "left", "bottom", "right")
    )
    if fields["padding.policy"] != "explicit" or fields["output"] != "0,0":
        raise Skip("torch is asked for convolutions with a given padding alone")
    if (top, left) != (bottom, right) or min(top, left) < 0:
        raise Skip("torch pads either side alike")
    groups = int(fields["groups"]) or shape[-1]
    return numbers(fields["stride"]), [top, left], numbers(fields["dilation"]), groups


def reduce_fields(fields, shape):
    dims = [d % len(shape) for d in numbers(fields["dims"])] or list(range(len(shape)))
    if float(fields["weight"]) != 1:
        raise Skip("torch's reductions have no factor")
    return fields["kind"], dims, fields["keep_dims"] == "true"


def arithmetic_kind(fields):
    defaults = {"primary_scale": 1, "secondary_scale": 1, "bias": 0}
    defaults.update(minimum=-math.inf, maximum=math.inf)
    if fields["kind"] == "compare" or any(float(fields[n]) != v for n, v in defaults.items()):
        raise Skip("torch is asked for plain arithmetic alone")
    return fields["kind"]


# The function, and the gradients of both operands before they are summed to their shapes.
ARITHMETIC = {
    "add": (torch.add, lambda dy, a, b: dy, lambda dy, a, b: dy),
    "subtract": (torch.sub, lambda dy, a, b: dy, lambda dy, a, b: -dy),
    "multiply": (torch.mul, lambda dy, a, b: dy * b, lambda dy, a, b: dy * a),
    "divide": (torch.div, lambda dy, a, b: dy / b, lambda dy, a, b: -dy * a / (b * b)),
}
