# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""What torch.compile is given for which op, by the op's name: the formula, written out.

Each function is given what those of torch_kernels are given, and returns a function and its
arguments. Forward passes also return what their gradients need, as small as it can be.
"""
import math

import torch
from torch_fields import (
    ARITHMETIC,
    Skip,
    arithmetic_kind,
    batch_norm_fields,
    group_norm_place,
    image,
    image_like,
    lrn_fields,
    neuron_fields,
    norm_inputs,
    norm_relu,
    numbers,
    pad_fields,
    pool_fields,
    reduce_fields,
    reshape_dims,
    transpose_order,
    slice_place,
    softmax_place,
    upsample_sizes,
)

aten = torch.ops.aten


def wide(tensor):
    """16 bits are computed in 32."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


# ---- softmax, neurons ----


def softmax_formula(fields, shapes, make, gradient):
    shape, axis, log = softmax_place(fields, shapes[0])
    x = make(shape)
    forward = torch.log_softmax if log else torch.softmax
    if not gradient:
        return (lambda x: forward(x, axis)), (x,)

    def plain_gradient(dy, y):
        g, p = wide(dy), wide(y)
        return ((g - (g * p).sum(axis, keepdim=True)) * p).to(dy.dtype)

    def log_gradient(dy, y):
        g, p = wide(dy), wide(y)
        return (g - torch.exp(p) * g.sum(axis, keepdim=True)).to(dy.dtype)

    return (log_gradient if log else plain_gradient), (x, forward(x, axis))


def neuron_formula(fields, shapes, make, gradient):
    if fields["kind"] == "prelu":
        return prelu_formula(shapes, make, gradient)
    shape = shapes[0]
    kind, a, b, from_y = neuron_fields(fields)

    def function(x):
        if kind == "relu":
            return torch.relu(x) if a == 0 else torch.where(x > 0, x, a * x)
        if kind == "elu":
            return torch.where(x > 0, x, a * torch.expm1(x))
        if kind == "gelu":
            return torch.nn.functional.gelu(x)
        return torch.sigmoid(x) if kind == "sigmoid" else a * torch.tanh(b * x)

    def forward(x):
        return function(wide(x)).to(x.dtype)

    def gelu_slope(x):
        bell = torch.exp(-x * x / 2) * (2 * math.pi) ** -0.5
        return (1 + torch.erf(x * 0.5**0.5)) / 2 + x * bell

    def backward(dy, read):
        g, r = wide(dy), wide(read)
        if kind == "relu":
            return torch.where(r > 0, g, a * g).to(dy.dtype)
        if kind == "elu":
            return torch.where(r > 0, g, g * (r + a if from_y else a * torch.exp(r))).to(dy.dtype)
        if kind == "gelu":
            return (g * gelu_slope(r)).to(dy.dtype)
        y = r if from_y else function(r)
        slope = y * (1 - y) if kind == "sigmoid" else b * (a - y * y / a)
        return (g * slope).to(dy.dtype)

    return (backward, (make(shape), make(shape))) if gradient else (forward, (make(shape),))


def prelu_formula(shapes, make, gradient):
    x, slope = make(shapes[0]), make(shapes[1])
    rows = list(range(len(shapes[0]) - 1))

    def forward(x, slope):
        v = wide(x)
        return torch.where(v > 0, v, wide(slope) * v).to(x.dtype)

    def backward(dy, x, slope):
        g, v = wide(dy), wide(x)
        dx = torch.where(v > 0, g, wide(slope) * g)
        return dx.to(x.dtype), torch.where(v > 0, 0, g * v).sum(rows).to(slope.dtype)

    return (backward, (make(shapes[0]), x, slope)) if gradient else (forward, (x, slope))


# ---- images ----


def pool_formula(fields, shapes, make, gradient):
    """torch's own ops, which it compiles. Winners are kept as numbers of taps, in one byte each, as
    torch.compile keeps them between a forward pass and its gradient."""
    window, stride, padding, dilation, ceil, counted = pool_fields(fields)
    x = image(make(shapes[0]))
    columns = x.shape[3]

    def corner(y, axis):
        """Where each window begins along an axis of the image."""
        begin = torch.arange(y.shape[axis + 2], device=y.device) * stride[axis] - padding[axis]
        return begin.view([-1, 1] if axis == 0 else [1, -1])

    def mean(x):
        return aten.avg_pool2d(x, window, stride, padding, ceil, counted, None)

    def mean_gradient(dy, x):
        return aten.avg_pool2d_backward(dy, x, window, stride, padding, ceil, counted, None)

    def winner(x):
        y, index = aten.max_pool2d_with_indices(x, window, stride, padding, dilation, ceil)
        row = (index // columns - corner(y, 0)) // dilation[0]
        column = (index % columns - corner(y, 1)) // dilation[1]
        return y, (row * window[1] + column).to(torch.uint8)

    def winner_gradient(dy, x, tap):
        tap = tap.to(torch.int64)
        row = corner(dy, 0) + tap // window[1] * dilation[0]
        column = corner(dy, 1) + tap % window[1] * dilation[1]
        place = (window, stride, padding, dilation, ceil)
        return aten.max_pool2d_with_indices_backward(dy, x, *place, row * columns + column)

    if fields["kind"] == "average":
        y = mean(x)
        return (mean_gradient, (image_like(make, y), x)) if gradient else (mean, (x,))
    if window[0] * window[1] > 255:
        raise Skip("torch is asked for winners of a byte alone")
    if not gradient:
        return winner, (x,)
    y, tap = winner(x)
    return winner_gradient, (image_like(make, y), x, tap)


def weights(fields, count, out, scale):
    """The pixels that an output pixel is made of, {input: weight} for each, along one axis."""
    rows = []
    for o in range(out):
        if fields["grid"] == "align_corners":
            u = o * (count - 1) / (out - 1) if out > 1 else 0
        else:
            half = 0.5 if fields["grid"] == "half_pixel" else 0
            u = (o + half) / scale - half
        u = min(max(u, 0), count - 1)
        if fields["kind"] == "nearest":
            rounds = {"floor": math.floor(u), "ceil": math.ceil(u),
                      "prefer_floor": math.ceil(u - 0.5), "prefer_ceil": math.floor(u + 0.5)}
            rows.append({rounds[fields["round"]]: 1.0})
        else:
            i = math.floor(u)
            rows.append({i: 1 - (u - i), i + 1: u - i} if u > i else {i: 1.0})
    return rows


def transposed(rows, count):
    columns = [{} for _ in range(count)]
    for o, row in enumerate(rows):
        for i, weight in row.items():
            columns[i][o] = weight
    return columns


def tables(rows, like):
    """Index and weight of tap k of every pixel: two lists of vectors."""
    most = max(len(row) for row in rows)
    padded = [list(row.items()) + [(next(iter(row), 0), 0.0)] * (most - len(row)) for row in rows]
    index = torch.tensor([[i for i, _ in row] for row in padded], device=like.device)
    weight = torch.tensor([[w for _, w in row] for row in padded], dtype=wide(like).dtype,
                          device=like.device)
    return list(index.t().contiguous()), list(weight.t().contiguous())


def total(taps):
    result = taps[0]
    for tap in taps[1:]:
        result = result + tap
    return result


def upsample_formula(fields, shapes, make, gradient):
    """Each pixel gathers the few that it depends on, along rows and then along columns."""
    n, h, w, c = shapes[0]
    before, after, scales = upsample_sizes(fields, shapes[0])
    axes = [weights(fields, *sizes) for sizes in zip(before, after, scales)]
    if gradient:
        axes = [transposed(rows, count) for rows, count in zip(axes, before)]
    t = make([n, *after, c] if gradient else shapes[0])

    def gather(t, rows, columns):
        v = wide(t)
        taps = [v[:, i] * f[:, None, None] for i, f in zip(rows[0], rows[1])]
        v = total(taps)
        taps = [v[:, :, i] * f[:, None] for i, f in zip(columns[0], columns[1])]
        return total(taps).to(t.dtype)

    return gather, (t, tables(axes[0], t), tables(axes[1], t))


def pad_formula(fields, shapes, make, gradient):
    """torch's own ops, which it compiles."""
    mode, value, pads = pad_fields(fields)
    x = image(make(shapes[0]))

    def forward(x):
        if mode in ("zero", "constant"):
            return torch.nn.functional.pad(x, pads, "constant", value)
        return torch.nn.functional.pad(x, pads[:4], "reflect" if mode == "mirror" else "replicate")

    def backward(dy, x):
        if mode in ("zero", "constant"):
            return aten.constant_pad_nd(dy, [-side for side in pads])
        if mode == "mirror":
            return aten.reflection_pad2d_backward(dy, x, pads[:4])
        return aten.replication_pad2d_backward(dy, x, pads[:4])

    return (backward, (image_like(make, forward(x)), x)) if gradient else (forward, (x,))


# ---- dropout ----


def dropout_formula(fields, shapes, make, gradient):
    keep, shape = float(fields["keep"]), shapes[0]
    same = [d % len(shape) for d in numbers(fields["broadcast"])]
    mask_shape = [1 if d in same else size for d, size in enumerate(shape)]
    t = make(shape)

    def backward(dy, mask):
        return torch.where(mask, wide(dy) * (1 / keep), 0).to(dy.dtype)

    def forward(x):
        mask = torch.rand(mask_shape, device=x.device) < keep
        return backward(x, mask), mask

    return (backward, (t, forward(t)[1])) if gradient else (forward, (t,))


# ---- normalizations ----


def norm_formula(x, gamma, beta, epsilon, relu, dims, split, make, gradient):
    """Statistics over `dims` of x seen as `split`; parameters belong to the last dimensions."""
    shape = list(x.shape)
    rows = [d for d in range(len(shape) - 1)]

    def statistics(v):
        variance, mean = torch.var_mean(v, dims, unbiased=False, keepdim=True)
        return mean, torch.rsqrt(variance + epsilon)

    def forward(x, gamma, beta):
        v = wide(x).view(split)
        mean, s = statistics(v)
        z = ((v - mean) * s).view(shape) * gamma + beta
        return (torch.relu(z) if relu else z).to(x.dtype), mean, s

    def backward(dy, x, gamma, beta, mean, s):
        xh = ((wide(x).view(split) - mean) * s).view(shape)
        g = wide(dy)
        g = torch.where(xh * gamma + beta > 0, g, 0) if relu else g
        h, hat = (g * gamma).view(split), xh.view(split)
        dx = s * (h - h.mean(dims, keepdim=True) - hat * (h * hat).mean(dims, keepdim=True))
        return dx.view(shape).to(x.dtype), (g * xh).sum(rows), g.sum(rows)

    if not gradient:
        return forward, (x, gamma, beta)
    return backward, (make(shape), x, gamma, beta, *statistics(wide(x).view(split)))


def batch_norm_formula(fields, shapes, make, gradient):
    relu = batch_norm_fields(fields)
    x, gamma, beta, epsilon = norm_inputs(fields, shapes, make)
    dims = list(range(x.dim() - 1))
    return norm_formula(x, gamma, beta, epsilon, relu, dims, list(x.shape), make, gradient)


def group_norm_formula(fields, shapes, make, gradient):
    relu, (groups, _) = norm_relu(fields), group_norm_place(fields, shapes[0])
    x, gamma, beta, epsilon = norm_inputs(fields, shapes, make)
    axis = int(fields["axis"]) % x.dim()
    split = [*x.shape[:-1], groups, x.shape[-1] // groups]
    dims = [*range(axis, x.dim() - 1), x.dim()]
    return norm_formula(x, gamma, beta, epsilon, relu, dims, split, make, gradient)


def lrn_formula(fields, shapes, make, gradient):
    window, alpha, beta, delta = lrn_fields(fields)
    before, after = window // 2, (window - 1) // 2
    channels = shapes[0][-1]

    def around(v, before, after):
        """Sums over channels k - before to k + after."""
        v = torch.nn.functional.pad(v, [before, after])
        return total([v[..., k : k + channels] for k in range(before + after + 1)])

    def base(v):
        return delta + alpha / window * around(v * v, before, after)

    def forward(x):
        v = wide(x)
        return (v * base(v) ** -beta).to(x.dtype)

    def backward(dy, x):
        g, v = wide(dy), wide(x)
        power = base(v) ** -beta
        rest = around(g * v * power / base(v), after, before)
        return (g * power - 2 * alpha * beta / window * v * rest).to(x.dtype)

    x = make(shapes[0])
    return (backward, (make(shapes[0]), x)) if gradient else (forward, (x,))


# ---- other shapes ----


def slice_formula(fields, shapes, make, gradient):
    place, shape = slice_place(fields, shapes[0]), shapes[0]
    if any(part.step != 1 for part in place):
        raise Skip("torch.compile is asked for slices without gaps")
    starts = [part.start for part in place]
    sizes = [part.stop - part.start for part in place]
    pads = []
    for start, size, whole in reversed(list(zip(starts, sizes, shape))):
        pads += [start, whole - start - size]

    def forward(x):
        for d, start in enumerate(starts):
            x = x.narrow(d, start, sizes[d])
        return x.clone(memory_format=torch.contiguous_format)

    def backward(dy):
        return aten.constant_pad_nd(dy, pads)

    return (backward, (make(sizes),)) if gradient else (forward, (make(shape),))


def concat_formula(fields, shapes, make, gradient):
    if fields["multiple"] != "1":
        raise Skip("torch puts nothing between sources")
    axis = int(fields["axis"]) % len(shapes[0])
    sizes = [shape[axis] for shape in shapes]
    xs = [make(shape) for shape in shapes]

    def forward(*xs):
        return torch.cat(xs, axis)

    def backward(dy):
        return [part.clone(memory_format=torch.contiguous_format) for part in dy.split(sizes, axis)]

    return (backward, (make(list(forward(*xs).shape)),)) if gradient else (forward, xs)


def reshape_formula(fields, shapes, make, gradient):
    to = shapes[0] if gradient else reshape_dims(fields, shapes[0])
    t = make(shapes[0])
    t = t.view(reshape_dims(fields, shapes[0])) if gradient else t
    return (lambda t: t.view(to).clone()), (t,)


def transpose_formula(fields, shapes, make, gradient):
    order = transpose_order(fields, shapes[0])
    back = sorted(range(len(order)), key=order.__getitem__)
    t = make([shapes[0][d] for d in order] if gradient else shapes[0])
    return (lambda t: t.permute(back if gradient else order).contiguous()), (t,)


# ---- sums ----


def reduce_formula(fields, shapes, make, gradient):
    kind, dims, keep = reduce_fields(fields, shapes[0])
    shape = shapes[0]
    count = math.prod(shape[d] for d in dims)
    x = make(shape)

    def forward(x):
        if kind in ("sum", "mean"):
            return (torch.sum if kind == "sum" else torch.mean)(wide(x), dims, keep).to(x.dtype)
        return (torch.amax if kind == "max" else torch.amin)(x, dims, keep)

    def spread(dy):
        part = dy if kind == "sum" else (wide(dy) / count).to(dy.dtype)
        return part.expand(shape).clone(memory_format=torch.contiguous_format)

    def select(dy, x):
        find = torch.argmax if kind == "max" else torch.argmin
        number = torch.arange(shape[dims[0]], device=x.device)
        number = number.view([-1] + [1] * (len(shape) - dims[0] - 1))
        return torch.where(number == find(x, dims[0], keepdim=True), dy, 0)

    if kind in ("arg_min", "arg_max"):
        raise Skip("torch.compile is asked for values alone")
    if not gradient:
        return forward, (x,)
    dy = make([1 if d in dims else size for d, size in enumerate(shape)])
    if kind in ("sum", "mean"):
        return spread, (dy,)
    if len(dims) > 1:
        raise Skip("torch finds a winner along one dimension alone")
    return select, (dy, x)


def arithmetic_formula(fields, shapes, make, gradient):
    function, *parts = ARITHMETIC[arithmetic_kind(fields)]
    operands = [make(shape) for shape in shapes]

    def forward(a, b):
        return function(wide(a), wide(b)).to(a.dtype)

    def backward(dy, a, b):
        g = [part(wide(dy), wide(a), wide(b)) for part in parts]
        return [t.sum_to_size(shape).to(dy.dtype).clone() for t, shape in zip(g, shapes)]

    if not gradient:
        return forward, operands
    return backward, (make(list(forward(*operands).shape)), *operands)


FORMULAS = {
    "softmax": softmax_formula,
    "neuron": neuron_formula,
    "pool": pool_formula,
    "upsample": upsample_formula,
    "pad": pad_formula,
    "dropout": dropout_formula,
    "batch_norm": batch_norm_formula,
    "group_norm": group_norm_formula,
    "lrn": lrn_formula,
    "slice": slice_formula,
    "concat": concat_formula,
    "reshape": reshape_formula,
    "transpose": transpose_formula,
    "reduce": reduce_formula,
    "arithmetic": arithmetic_formula,
}
