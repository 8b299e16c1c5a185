# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Losses beside torch's own, and beside formulas for those that torch does not have."""
import math

import numpy
import torch
import torch.nn.functional as F
from torch_draw import Case

REDUCTIONS = ("mean", "sum", "none", "sum_by_non_zero_weights")

# Kind, torch's function if it has one, predictions, labels. A function is given y, t, fields, reduction.
DENSE = {
    "mean_absolute": ("F.l1_loss", (-2, 2), (-2, 2), lambda y, t, f, r: F.l1_loss(y, t, reduction=r)),
    "mean_squared": ("F.mse_loss", (-2, 2), (-2, 2), lambda y, t, f, r: F.mse_loss(y, t, reduction=r)),
    "softmax_cross_entropy": (
        "F.cross_entropy", (-2, 2), (0.05, 0.95),
        lambda y, t, f, r: F.cross_entropy(classes_second(y), classes_second(t), reduction=r,
                                           label_smoothing=f.get("label_smoothing", 0.0))),
    "sigmoid_cross_entropy": (
        "F.binary_cross_entropy_with_logits", (-4, 4), (0, 1),
        lambda y, t, f, r: F.binary_cross_entropy_with_logits(y, smoothed(t, f), reduction=r)),
    "categorical_cross_entropy": (None, (0.05, 1), (0, 1), lambda y, t, f, r: reduced(-t * y.log(), r)),
    "hinge": (None, (-2, 2), None, lambda y, t, f, r: reduced((1 - (2 * t - 1) * y).clamp(min=0), r)),
    "huber": ("F.huber_loss", (-2, 2), (-2, 2), lambda y, t, f, r: F.huber_loss(y, t, reduction=r, delta=f["delta"])),
    "log": ("F.binary_cross_entropy", (0.05, 0.95), (0, 1), lambda y, t, f, r: log_loss(y, t, f["epsilon"], r)),
    "kullback_leibler": ("F.kl_div", (-3, -0.1), (0.05, 1),
                         lambda y, t, f, r: reduced(F.kl_div(y, t, reduction="none"), r)),
    "cosine_distance": (None, (-2, 2), (-2, 2), None),
}

CLASSES = {
    "softmax_cross_entropy": (
        "F.cross_entropy", (-4, 4),
        lambda y, t, f, r: F.cross_entropy(classes_second(y), t, reduction=r, ignore_index=f.get("ignored", -1),
                                           label_smoothing=f.get("label_smoothing", 0.0))),
    "categorical_cross_entropy": (
        "F.nll_loss", (0.05, 1),
        lambda y, t, f, r: F.nll_loss(classes_second(y.log()), t, reduction=r, ignore_index=f.get("ignored", -1))),
    "kullback_leibler": (
        "F.nll_loss", (-3, -0.1),
        lambda y, t, f, r: F.nll_loss(classes_second(y), t, reduction=r, ignore_index=f.get("ignored", -1))),
}


def classes_second(y):
    return y.movedim(-1, 1).contiguous() if y.dim() > 1 else y


def reduced(losses, reduction):
    return {"none": losses, "sum": losses.sum(), "mean": losses.mean()}[reduction]


def smoothed(t, fields):
    smoothing = fields.get("label_smoothing", 0.0)
    return t * (1 - smoothing) + smoothing / 2


def log_loss(y, t, epsilon, reduction):
    if epsilon == 0:
        return F.binary_cross_entropy(y, t, reduction=reduction)
    return reduced(-t * (y + epsilon).log() - (1 - t) * (1 - y + epsilon).log(), reduction)


def per_image(values, across, by_rows, rows):
    """Weighted losses, one for each label, added up by images; and what a mean divides by."""
    total = values.sum() if across else values.reshape(values.shape[0], -1).sum(1)
    return total, (rows if by_rows else values.numel()) // max(1, total.numel())


def dense(d):
    kind = d.cycle(tuple(DENSE))
    how, of_y, of_t, function = DENSE[kind]
    softmax, cosine = kind == "softmax_cross_entropy", kind == "cosine_distance"
    shape = d.shape(2 if softmax else 1, 5)
    while 0 in shape:  # a mean of nothing is NaN
        shape = d.shape(2 if softmax else 1, 5)
    fields = {"kind": kind, "reduction": "sum" if cosine else d.choice(REDUCTIONS), "across_batch": d.maybe(0.6)}
    if kind == "huber":
        fields["delta"] = d.number(0.3, 2)
    if kind == "log":
        fields["epsilon"] = d.choice((0, 0.01, 0.1))
    if kind.startswith("s") and d.maybe(0.4):
        fields["label_smoothing"] = d.number(0.05, 0.6)
    if d.maybe(0.4):
        fields["weight"] = d.number(0.2, 3)
    labels = d.numpy.randint(0, 2, shape).astype(float) if of_t is None else d.array(shape, *of_t)
    inputs = {"y": d.array(shape, *of_y, avoid=(0, 1, -1) if kind == "hinge" else ()), "labels": labels}
    if kind in ("mean_absolute", "huber"):  # away from kinks
        apart = d.array(shape, 0.1, 2, avoid=(fields.get("delta", 0),)) * d.choice((-1, 1))
        inputs["labels"] = inputs["y"] + apart
    if d.maybe(0.4):
        fields["weights"] = True
        inputs["weights"] = d.array(shape, 0.2, 2) * d.numpy.randint(0, 2, shape)
        inputs["weights"].flat[0] = 1
    return kind, fields, inputs, how, function, shape, softmax


def compare_dense(d):
    kind, fields, inputs, how, function, shape, softmax = dense(d)
    reduction, across = fields["reduction"], fields["across_batch"]
    weight, weighted = fields.get("weight", 1.0), "weights" in inputs
    plain = not weighted and (across or reduction == "none") and reduction in ("none", "sum", "mean")
    rows = int(numpy.prod(shape[:-1]))

    def each(y, t):
        if kind == "cosine_distance":
            return -y * t
        if not softmax:
            return function(y, t, fields, "none")
        t = t * (1 - fields.get("label_smoothing", 0.0)) + fields.get("label_smoothing", 0.0) / shape[-1]
        return -t * F.log_softmax(y, -1)

    def loss(y, t, *rest):
        if plain and kind != "cosine_distance" and not (softmax and reduction == "none"):
            return weight * function(y, t, fields, reduction)
        values = weight * each(y, t) * (rest[0] if weighted else 1)
        if reduction == "none":
            return values
        total, divisor = per_image(values, across, softmax, rows)
        if kind == "cosine_distance":
            return total + weight * (shape[0] if across else 1)
        if reduction == "sum":
            return total
        if reduction == "mean":
            return total / divisor
        non_zero = (rest[0] != 0) if weighted else torch.ones(shape)
        count = per_image(non_zero.to(y.dtype), across, False, 0)[0]
        return torch.where(count > 0, total / count.clamp(min=1), torch.zeros_like(total))

    return case_of(d, fields, inputs, loss, how, math.sqrt(numpy.prod(shape)) if reduction == "sum" else 0)


def compare_classes(d):
    kind = d.choice(tuple(CLASSES))
    how, of_y, function = CLASSES[kind]
    shape = d.shape(2, 4)
    while 0 in shape:
        shape = d.shape(2, 4)
    reduction, across = d.choice(REDUCTIONS), d.maybe(0.6)
    fields = {"kind": kind, "labels": "classes", "reduction": reduction, "across_batch": across}
    if kind == "softmax_cross_entropy" and d.maybe(0.4):
        fields["label_smoothing"] = d.number(0.05, 0.6)
    labels = d.numpy.randint(0, shape[-1], shape[:-1]).astype(d.choice((numpy.int32, numpy.int64)))
    if d.maybe(0.4):
        fields["ignored"] = d.choice((-100, shape[-1] + 3, 0))
        labels[d.numpy.randint(0, 3, shape[:-1]) == 0] = fields["ignored"]
        labels.flat[0] = shape[-1] - 1
    inputs = {"y": d.array(shape, *of_y), "labels": labels}
    if d.maybe(0.4):
        fields["weights"] = True
        inputs["weights"] = d.array(shape[:-1], 0.2, 2)
    weighted, ignored = "weights" in inputs, fields.get("ignored")

    def loss(y, t, *rest):
        t = t.long()
        if across and not weighted and ignored is None and reduction in ("none", "sum", "mean"):
            return function(y, t, fields, reduction)
        some = ignored is None or bool((t != ignored).any())
        if across and not weighted and reduction == "sum_by_non_zero_weights" and some:
            return function(y, t, fields, "mean")
        values = function(y, t, fields, "none") * (rest[0] if weighted else 1)
        if reduction == "none":
            return values
        total, divisor = per_image(values, across, True, values.numel())
        if reduction != "sum_by_non_zero_weights":
            return total if reduction == "sum" else total / divisor
        counts = (t != ignored).to(y.dtype) if ignored is not None else torch.ones(t.shape, dtype=y.dtype)
        count = per_image(counts, across, False, 0)[0]
        return torch.where(count > 0, total / count.clamp(min=1), torch.zeros_like(total))

    return case_of(d, fields, inputs, loss, how, 0)


def case_of(d, fields, inputs, loss, how, size):
    """As it is, or as one pass that gives the gradient of y, too."""
    if not d.maybe(0.25):
        gradient = [name for name in ("y", "labels") if inputs[name].dtype.kind == "f"]
        return Case(fields, inputs, loss, how, ("loss",), gradient, size=size)

    def both(y, *rest):
        y = y.detach().requires_grad_()
        value = loss(y, *rest)
        return value.detach(), torch.autograd.grad(value.sum(), y)[0]

    return Case({**fields, "gradient_output": True}, inputs, both, how, ("loss", "gradient"), (), size=size)


def compare(d):
    return compare_classes(d) if d.index % 3 == 0 else compare_dense(d)
