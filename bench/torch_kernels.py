# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Which of torch's own kernels stand for which op, by the op's name.

Each function is given the fields, the shapes of the inputs, a function that makes a tensor of a
shape, and the direction: whether it is the gradient, or the name of the input that it is for. It
returns a call without arguments, whose results go into tensors made before, where torch has such a
form. Images are (n, h, w, c) in memory, which torch calls channels_last, unless the row asks for
NCHW. Tensors of inputs are made first, in their order, then dy.
"""
import math

import torch
from torch_fields import (
    ARITHMETIC,
    Skip,
    arithmetic_kind,
    batch_norm_fields,
    conv_place,
    group_norm_place,
    image,
    image_like,
    lrn_fields,
    neuron_fields,
    neuron_kind,
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
    wanted,
)
from torch_training import adam, grad_norm, loss, rmsprop, sgd

aten = torch.ops.aten


# ---- softmax, neurons ----


def softmax(fields, shapes, make, gradient):
    shape, axis, log = softmax_place(fields, shapes[0])
    x = make(shape)
    if x.dim() == 4 and not x.is_contiguous():  # NCHW, of which torch knows channels as dimension 1
        x, axis = image(x), (0, 2, 3, 1)[axis]
    y = torch.empty_like(x)
    forward = torch._log_softmax if log else torch._softmax
    if not gradient:
        return lambda: forward(x, axis, False, out=y)
    forward(x, axis, False, out=y)
    dy, dx = x, torch.empty_like(x)  # x is no longer needed: any values will do
    if log:
        return lambda: torch._log_softmax_backward_data(dy, y, axis, x.dtype, out=dx)
    return lambda: torch._softmax_backward_data(dy, y, axis, x.dtype, grad_input=dx)


def neuron(fields, shapes, make, gradient):
    if fields["kind"] == "prelu":
        return prelu(shapes, make, gradient)
    kind, a, b, from_y = neuron_fields(fields)
    if kind == "tanh" and (a, b) != (1, 1):
        raise Skip("torch's tanh has no factors")
    if gradient and kind in ("sigmoid", "tanh") and not from_y:
        raise Skip(f"torch's gradient of {kind} reads y, not x")
    shape = shapes[0]
    x = make(shape)
    result = torch.empty_like(x)
    if not gradient:
        if kind == "elu":
            return lambda: aten.elu.out(x, a, out=result)
        if kind != "relu":
            out = {"sigmoid": aten.sigmoid.out, "tanh": aten.tanh.out, "gelu": aten.gelu.out}[kind]
            return lambda: out(x, out=result)
        if a == 0:
            return lambda: torch.clamp_min(x, 0, out=result)
        return lambda: aten.leaky_relu.out(x, a, out=result)
    dy = make(shape)
    if kind == "elu":
        return lambda: aten.elu_backward.grad_input(dy, a, 1, 1, from_y, x, grad_input=result)
    if kind == "gelu":
        return lambda: aten.gelu_backward.grad_input(dy, x, grad_input=result)
    if kind == "sigmoid":
        return lambda: aten.sigmoid_backward.grad_input(dy, x, grad_input=result)
    if kind == "tanh":
        return lambda: aten.tanh_backward.grad_input(dy, x, grad_input=result)
    if a == 0:
        return lambda: aten.threshold_backward.grad_input(dy, x, 0, grad_input=result)
    return lambda: aten.leaky_relu_backward.grad_input(dy, x, a, False, grad_input=result)


def prelu(shapes, make, gradient):
    """Channels are dimension 1 for torch."""
    x, slope = make(shapes[0]).movedim(-1, 1), make(shapes[1])
    if not gradient:
        return lambda: torch.prelu(x, slope)
    dy = make(shapes[0]).movedim(-1, 1)
    if not hasattr(aten, "_prelu_kernel_backward"):  # before 2.0
        return lambda: aten.prelu_backward(dy, x, slope)
    wide_slope = slope.view([1, -1] + [1] * (x.dim() - 2))
    rows = [d for d in range(x.dim()) if d != 1]

    def backward():
        dx, each = aten._prelu_kernel_backward(dy, x, wide_slope)
        return dx, each.sum(rows)

    return backward


# ---- images ----


def pool(fields, shapes, make, gradient):
    window, stride, padding, dilation, ceil, counted = pool_fields(fields)
    x = image(make(shapes[0]))
    if fields["kind"] == "max":
        place = (window, stride, padding, dilation, ceil)
        y, indices = aten.max_pool2d_with_indices(x, *place)
        if not gradient:
            forward = aten.max_pool2d_with_indices.out
            return lambda: forward(x, *place, out=y, indices=indices)
        dy, dx = image_like(make, y), torch.empty_like(x)
        backward = aten.max_pool2d_with_indices_backward.grad_input
        return lambda: backward(dy, x, *place, indices, grad_input=dx)
    place = (window, stride, padding, ceil, counted, None)
    y = aten.avg_pool2d(x, *place)
    if not gradient:
        return lambda: aten.avg_pool2d.out(x, *place, out=y)
    dy, dx = image_like(make, y), torch.empty_like(x)
    return lambda: aten.avg_pool2d_backward.grad_input(dy, x, *place, grad_input=dx)


def upsample(fields, shapes, make, gradient):
    _, output, scales = upsample_sizes(fields, shapes[0])
    nearest = fields["kind"] == "nearest"
    if nearest and (fields["grid"], fields["round"]) != ("asymmetric", "floor"):
        raise Skip("torch's nearest is asymmetric and rounds down")
    if not nearest and fields["grid"] == "asymmetric":
        raise Skip("torch's bilinear has no asymmetric grid")
    n, h, w, c = shapes[0]
    forward = aten.upsample_nearest2d if nearest else aten.upsample_bilinear2d
    backward = aten.upsample_nearest2d_backward if nearest else aten.upsample_bilinear2d_backward
    extra = [] if nearest else [fields["grid"] == "align_corners"]
    if not gradient:
        x = image(make(shapes[0]))
        place = (output, *extra, *scales)
        y = forward(x, *place)
        return lambda: forward.out(x, *place, out=y)
    dy = image(make([n, *output, c]))
    place = (output, [n, c, h, w], *extra, *scales)
    dx = backward(dy, *place)
    return lambda: backward.grad_input(dy, *place, grad_input=dx)


def pad(fields, shapes, make, gradient):
    mode, value, pads = pad_fields(fields)
    x = image(make(shapes[0]))
    if mode in ("zero", "constant"):
        y = aten.constant_pad_nd(x, pads, value)
        if not gradient:
            return lambda: aten.constant_pad_nd(x, pads, value)
        dy, back = image_like(make, y), [-side for side in pads]
        return lambda: aten.constant_pad_nd(dy, back)
    mirror = mode == "mirror"
    forward = aten.reflection_pad2d if mirror else aten.replication_pad2d
    backward = aten.reflection_pad2d_backward if mirror else aten.replication_pad2d_backward
    if not gradient:
        return lambda: forward(x, pads[:4])
    dy = image_like(make, forward(x, pads[:4]))
    return lambda: backward(dy, x, pads[:4])


# ---- dropout ----


def dropout(fields, shapes, make, gradient):
    keep, shape = float(fields["keep"]), shapes[0]
    same = [d % len(shape) for d in numbers(fields["broadcast"])]
    t = make(shape)  # x or dy
    if not same:
        if not gradient:
            return lambda: torch.native_dropout(t, 1 - keep, True)
        mask = torch.native_dropout(t, 1 - keep, True)[1]
        return lambda: aten.native_dropout_backward(t, mask, 1 / keep)
    if sorted(same) != [1, 2] or len(shape) != 4:
        raise Skip("torch drops elements or channels alone")
    t = image(t)
    if not gradient:
        return lambda: torch.feature_dropout(t, 1 - keep, True)
    noise = torch.empty_like(t[:, :, :1, :1]).bernoulli_(keep).div_(keep)
    dx = torch.empty_like(t)
    return lambda: torch.mul(t, noise, out=dx)


# ---- normalizations ----


def batch_norm(fields, shapes, make, gradient):
    """The kernel that torch would choose, which is cuDNN's for most batches on a GPU."""
    relu = batch_norm_fields(fields)
    x, gamma, beta, epsilon = norm_inputs(fields, shapes, make)
    x = image(x)
    enabled = torch.backends.cudnn.enabled

    def forward():
        results = aten._batch_norm_impl_index(x, gamma, beta, None, None, True, 0.1, epsilon,
                                              enabled)
        return (results[0].relu_(), *results[1:]) if relu else results

    if not gradient:
        return forward
    y, mean, s, reserve, kind = forward()
    dy = image_like(make, y)

    def backward():
        g = aten.threshold_backward(dy, y, 0) if relu else dy
        return aten._batch_norm_impl_index_backward(kind, x, g, gamma, None, None, mean, s, True,
                                                    epsilon, [True, True, True], reserve)

    return backward


def group_norm(fields, shapes, make, gradient):
    """Instances are groups of one channel. Parameters have the dtype of x where torch wants that."""
    if norm_relu(fields):
        raise Skip("torch is asked for groups without a neuron")
    groups, rows = group_norm_place(fields, shapes[0])
    x, gamma, beta, epsilon = norm_inputs(fields, shapes, make)
    if rows:
        return layer_norm(x, gamma, beta, epsilon, make, gradient)
    n, c, h, w = image(x).shape
    x, gamma, beta = image(x), gamma.to(x.dtype), beta.to(x.dtype)
    place = (n, c, h * w, groups)
    forward = torch.native_group_norm
    if not gradient:
        return lambda: forward(x, gamma, beta, n, c, h * w, groups, epsilon)
    return by_autograd(lambda *t: forward(*t, n, c, h * w, groups, epsilon)[0], make,
                       x, gamma, beta)


def by_autograd(forward, make, *inputs):
    """As torch's own gradient calls its kernels, which may copy images to another layout first."""
    for t in inputs:
        t.requires_grad_()
    with torch.enable_grad():
        y = forward(*inputs)
    dy = image_like(make, y)
    return lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True)


def layer_norm(x, gamma, beta, epsilon, make, gradient):
    length = [x.shape[-1]]
    gamma, beta = gamma.to(x.dtype), beta.to(x.dtype)
    if not gradient:
        return lambda: torch.native_layer_norm(x, length, gamma, beta, epsilon)
    _, mean, s = torch.native_layer_norm(x, length, gamma, beta, epsilon)
    dy, wants = make(list(x.shape)), [True, True, True]
    return lambda: aten.native_layer_norm_backward(dy, x, length, mean, s, gamma, beta, wants)


def lrn(fields, shapes, make, gradient):
    """torch has no kernel of its own: squares, a mean pooling, a power; backwards by autograd."""
    place = lrn_fields(fields)
    x = image(make(shapes[0]))
    forward = torch.nn.functional.local_response_norm
    if not gradient:
        return lambda: forward(x, *place)
    return by_autograd(lambda x: forward(x, *place), make, x)


# ---- other shapes ----


def slice_op(fields, shapes, make, gradient):
    """A view, copied; backwards as aten.slice_backward for all dimensions at once."""
    place = slice_place(fields, shapes[0])
    if not gradient:
        view = make(shapes[0])[place]
        y = torch.empty(view.shape, dtype=view.dtype, device=view.device)
        return lambda: y.copy_(view)
    dx = make(shapes[0])
    view = dx[place]
    dy = make(list(view.shape))

    def backward():
        dx.zero_()
        view.copy_(dy)
        return dx

    return backward


def concat(fields, shapes, make, gradient):
    if fields["multiple"] != "1":
        raise Skip("torch puts nothing between sources")
    axis = int(fields["axis"]) % len(shapes[0])
    xs = [make(shape) for shape in shapes]
    y = torch.cat(xs, axis)
    if not gradient:
        return lambda: torch.cat(xs, axis, out=y)
    parts = make(list(y.shape)).split([shape[axis] for shape in shapes], axis)
    return lambda: [dx.copy_(part) for dx, part in zip(xs, parts)]  # x is not needed: any tensor


def reshape(fields, shapes, make, gradient):
    view = make(shapes[0]).view(reshape_dims(fields, shapes[0]))
    if not gradient:
        y = torch.empty_like(view)
        return lambda: y.copy_(view)
    dy = make(list(view.shape))
    return lambda: view.copy_(dy)


def transpose(fields, shapes, make, gradient):
    view = make(shapes[0]).permute(transpose_order(fields, shapes[0]))
    if not gradient:
        y = make(list(view.shape))
        return lambda: y.copy_(view)
    dy = make(list(view.shape))
    return lambda: view.copy_(dy)


# ---- contractions ----


def conv(fields, shapes, make, gradient):
    """y is x w + b; weights are (out, kh, kw, in) in memory, as images are."""
    stride, padding, dilation, groups = conv_place(fields, shapes[0])
    kind = neuron_kind(fields)
    x, w = image(make(shapes[0])), image(make(shapes[1]))
    b = make(shapes[2]) if len(shapes) > 2 else None

    def forward():
        y = torch.conv2d(x, w, b, stride, padding, dilation, groups)
        return y.relu_() if kind == "relu" else y

    if not gradient:
        return forward
    y = forward()
    dy = image_like(make, y)
    mask, sizes = wanted(gradient, len(shapes)), None if b is None else [len(b)]
    place = (stride, padding, dilation, False, [0, 0], groups, mask)

    def backward():
        dz = aten.threshold_backward(dy, y, 0) if kind == "relu" else dy
        return aten.convolution_backward(dz, x, w, sizes, *place)

    return backward


def dense(fields, shapes, make, gradient):
    kind, alpha = neuron_kind(fields), float(fields["alpha"])
    inputs, first = len(shapes[1]) - 1, fields["layout"] == "out_in"
    rows = math.prod(shapes[0][: len(shapes[0]) - inputs])
    out = shapes[1][0 if first else -1]
    x = make(shapes[0]).view(rows, -1)
    w = make(shapes[1]).view(out, -1).t() if first else make(shapes[1]).view(-1, out)
    b = make(shapes[2]) if len(shapes) > 2 else None

    def forward():
        y = torch.addmm(b, x, w, alpha=alpha) if b is not None else torch.mm(x, w)
        y = y.mul_(alpha) if b is None and alpha != 1 else y
        return y.relu_() if kind == "relu" else y

    if not gradient:
        return forward
    y = forward()
    dy = make(list(y.shape))
    for_x, for_w, for_b = wanted(gradient, len(shapes))

    def scaled(product):
        return product.mul_(alpha) if alpha != 1 else product

    def backward():
        dz = aten.threshold_backward(dy, y, 0) if kind == "relu" else dy
        dx = scaled(torch.mm(dz, w.t())) if for_x else None
        dw = scaled(torch.mm(dz.t(), x) if first else torch.mm(x.t(), dz)) if for_w else None
        return dx, dw, dz.sum(0) if for_b else None

    return backward


def gram(fields, shapes, make, gradient):
    """Pixels are rows: y = x' x, dx = x (dy + dy')."""
    alpha, channels = float(fields["alpha"]), shapes[0][-1]
    x = make(shapes[0]).view(math.prod(shapes[0][:-3]), -1, channels)
    y = torch.bmm(x.transpose(1, 2), x)
    if not gradient:
        return lambda: torch.baddbmm(y, x.transpose(1, 2), x, beta=0, alpha=alpha, out=y)
    dy, dx = make(list(y.shape)), torch.empty_like(x)
    return lambda: torch.baddbmm(
        dx, x, dy + dy.transpose(1, 2), beta=0, alpha=alpha, out=dx
    )


def matmul(fields, shapes, make, gradient):
    alpha = float(fields["alpha"])
    a, b = (
        t.transpose(-1, -2) if fields[name] == "true" else t
        for t, name in zip((make(shapes[0]), make(shapes[1])), ("transpose_a", "transpose_b"))
    )
    if any(t.shape[:-2] != a.shape[:-2] for t in (a, b)):
        raise Skip("torch is asked for stacks of one shape")

    def scaled(product):
        return product.mul_(alpha) if alpha != 1 else product

    if not gradient:
        return lambda: scaled(torch.matmul(a, b))
    dy = make([*a.shape[:-1], b.shape[-1]])

    def backward():
        da = scaled(torch.matmul(dy, b.transpose(-1, -2)))
        return da, scaled(torch.matmul(a.transpose(-1, -2), dy))

    return backward


# ---- sums ----


def reduce(fields, shapes, make, gradient):
    kind, dims, keep = reduce_fields(fields, shapes[0])
    x = make(shapes[0])
    if kind in ("arg_min", "arg_max"):
        if len(dims) > 1:
            raise Skip("torch finds a winner along one dimension alone")
        find = torch.argmin if kind == "arg_min" else torch.argmax
        return lambda: find(x, dims[0], keep)
    if kind in ("min", "max") and len(dims) == 1 and not gradient and fields["state"] == "true":
        find = torch.max if kind == "max" else torch.min
        made = find(x, dims[0], keep)
        return lambda: find(x, dims[0], keep, out=tuple(made))
    forward = {"sum": torch.sum, "mean": torch.mean, "min": torch.amin, "max": torch.amax}[kind]
    y = forward(x, dims, True)
    if not gradient:
        y = forward(x, dims, keep)
        return lambda: forward(x, dims, keep, out=y)
    dy, dx = make(list(y.shape)), torch.empty_like(x)
    if kind == "sum":
        return lambda: dx.copy_(dy.expand_as(x))
    if kind == "mean":
        return lambda: torch.div(dy.expand_as(x), x.numel() // y.numel(), out=dx)
    return winner_gradient(kind, dims, x, y, dy, dx)


def winner_gradient(kind, dims, x, y, dy, dx):
    """Along one dimension torch.max and torch.min keep the winners, and backward scatters; amax and
    amin share among equals."""
    if len(dims) == 1:
        winners = (torch.max if kind == "max" else torch.min)(x, dims[0], keepdim=True)[1]
        return lambda: dx.zero_().scatter_(dims[0], winners, dy)

    def share():
        equal = x == y
        return torch.mul(dy / equal.sum(dims, keepdim=True), equal, out=dx)

    return share


def arithmetic(fields, shapes, make, gradient):
    forward, *parts = ARITHMETIC[arithmetic_kind(fields)]
    operands = [make(shape) for shape in shapes]
    y = forward(*operands)
    if not gradient:
        return lambda: forward(*operands, out=y)
    dy = make(list(y.shape))

    def one(part, shape):
        result = part(dy, *operands).sum_to_size(shape)
        return result.clone() if result.data_ptr() == dy.data_ptr() else result

    return lambda: [one(part, shape) for part, shape in zip(parts, shapes)]


KERNELS = {
    "softmax": softmax,
    "neuron": neuron,
    "pool": pool,
    "upsample": upsample,
    "pad": pad,
    "dropout": dropout,
    "batch_norm": batch_norm,
    "group_norm": group_norm,
    "lrn": lrn,
    "slice": slice_op,
    "concat": concat,
    "reshape": reshape,
    "transpose": transpose,
    "reduce": reduce,
    "arithmetic": arithmetic,
    "loss": loss,
    "conv": conv,
    "dense": dense,
    "gram": gram,
    "matmul": matmul,
    "sgd": sgd,
    "rmsprop": rmsprop,
    "adam": adam,
    "grad_norm": grad_norm,
}
