# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Group, instance and layer normalization beside torch's; beside a formula where torch wants more elements."""
import math

import torch
import torch.nn.functional as F
from torch_draw import Case, neuron


def compare(d):
    kind = d.cycle(("group", "instance", "layer"))
    shape = d.shape(1, 5)
    shape = shape if shape[-1] > 0 else (*shape[:-1], 4)
    rank, channels = len(shape), shape[-1]
    axis = d.choice((rank - 1, d.randrange(rank)) if kind == "layer" else (min(1, rank - 1), d.randrange(rank)))
    groups = {"instance": channels, "layer": 1}.get(kind) or d.choice(
        [n for n in range(1, channels + 1) if channels % n == 0])
    count = math.prod(shape[axis:-1]) * (channels // groups)
    # of few elements little is left of dx, and s may be anything
    few = count < 8
    epsilon = d.choice((0.1, 1.0, d.number(0.1, 1)) if few else (1e-5, 1e-3, d.number(0.01, 1)))
    offset = 100 if not few and d.maybe(0.2) else 0
    fields, function = neuron(d, 0 if offset else 0.4)  # 16 bits: z is 0 often, where relu has a kink
    fields.update({"groups": 0 if kind == "instance" and d.maybe() else groups, "epsilon": epsilon,
                   "axis": axis - rank if d.maybe() else axis})
    if d.maybe(0.2):
        fields["image_gradients"] = True
    inputs = {"x": d.array(shape, offset - 2, offset + 2)}
    for name in ("gamma", "beta"):
        fields[name] = d.maybe(0.7)
        if fields[name]:
            inputs[name] = d.array((channels,))
    images = math.prod(shape[:axis])
    rows = (images, math.prod(shape[axis:-1]), channels)
    how = {"group": "F.group_norm" if images * count > 1 else None,
           "instance": "F.instance_norm" if count > 1 else None, "layer": "F.layer_norm"}[kind]
    how = how if math.prod(shape) > 0 else None

    def normalized(*tensors):
        t = dict(zip(inputs, tensors))
        x, gamma, beta = t["x"].reshape(rows), t.get("gamma"), t.get("beta")
        if how is None:
            z = formula(x, groups, gamma, beta, epsilon)
        elif kind == "layer":
            z = layer(x, gamma, beta, epsilon)
        elif kind == "instance":
            z = F.instance_norm(x.transpose(1, 2), None, None, gamma, beta, True, 0, epsilon).transpose(1, 2)
        else:
            gamma = torch.ones_like(x[0, 0]) if gamma is None else gamma  # some versions of torch fail without
            z = F.group_norm(x.transpose(1, 2), groups, gamma, beta, epsilon).transpose(1, 2)
        return function(z).reshape(shape)

    return Case(fields, inputs, normalized, how, zero=("x", "gamma") if count < 2 else (), size=1 if few else 0.1)


def layer(x, gamma, beta, epsilon):
    """Parameters of torch's are of all elements of an image, not of channels."""
    if x.shape[1] == 1:
        return F.layer_norm(x, x.shape[2:], gamma, beta, epsilon)
    z = F.layer_norm(x, x.shape[1:], None, None, epsilon)
    return z * (1 if gamma is None else gamma) + (0 if beta is None else beta)


def formula(x, groups, gamma, beta, epsilon):
    if x.numel() > 0:
        apart = x.reshape(*x.shape[:2], groups, -1)
        middle = apart.mean((1, 3), keepdim=True)
        variance = ((apart - middle) ** 2).mean((1, 3), keepdim=True)
        x = ((apart - middle) / (variance + epsilon).sqrt()).reshape(x.shape)
    return x * (1 if gamma is None else gamma) + (0 if beta is None else beta)
