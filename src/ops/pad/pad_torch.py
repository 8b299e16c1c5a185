# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Padding beside F.pad; mirrored edges, mirrors that repeat and fills by channel beside formulas."""
import numpy
import torch
import torch.nn.functional as F
from torch_draw import Beyond, Case

NAMES = {"zero": "constant", "constant": "constant", "clamp": "replicate", "mirror": "reflect"}


def along(x, axis, before, after, mode):
    """F.pad of one axis, with cropping where a padding is negative."""
    moved = x.movedim(axis, -1)
    flat = moved.reshape(1, -1, moved.shape[-1])
    flat = F.pad(flat, (max(before, 0), max(after, 0)), NAMES[mode])
    flat = flat[..., max(-before, 0):flat.shape[-1] - max(-after, 0)]
    return flat.reshape(*moved.shape[:-1], -1).movedim(-1, axis)


def mirrored(x, axis, before, after, edge):
    """To and fro by indices: with the edge twice, or once."""
    n = x.shape[axis]
    period = 2 * n if edge else max(2 * n - 2, 1)
    i = numpy.arange(-before, n + after) % period
    i = numpy.where(i < n, i, period - 1 - i if edge else period - i)
    return x.index_select(axis, torch.from_numpy(i))


def filled(x, fill, before, after):
    pads = [n for pair in reversed(list(zip(before, after))) for n in pair]
    inside = F.pad(torch.ones_like(x), pads) > 0
    return torch.where(inside, F.pad(x, pads), fill)


def compare(d):
    mode = d.cycle(("zero", "constant", "clamp", "mirror", "mirror_edge", "mirror", "constant"))
    shape = d.image(9)
    while 0 in shape and mode not in ("zero", "constant"):
        shape = d.image(9)
    repeat = mode.startswith("mirror") and d.maybe(0.3)
    before, after = [0] * 4, [0] * 4
    for axis in range(4 - len(shape), 4):
        n = shape[axis - 4]
        most = n - 1 if mode == "mirror" else n
        most = min(most, 6) if mode.startswith("mirror") and not repeat else 6
        if axis in (1, 2) or d.maybe(0.3):
            before[axis], after[axis] = d.randint(-min(n // 3, 3), most), d.randint(-min(n // 3, 3), most)
    if 0 in shape:
        raise Beyond("no images: F.pad, or its gradient, refuses")
    fields = {"mode": mode, "before": before, "after": after}
    used = list(zip(range(len(shape)), before[4 - len(shape):], after[4 - len(shape):]))
    x = d.array(shape)
    if mode == "constant" and d.maybe(0.5):
        channels = shape[-1] + before[3] + after[3]
        front, back = before[4 - len(shape):], after[4 - len(shape):]
        return Case({**fields, "fill": True}, {"x": x, "fill": d.array((channels,))},
                    lambda x, fill: filled(x, fill, front, back), exact=True)
    if repeat or mode == "mirror_edge":
        if repeat:
            fields["repeat"] = True

        def pad(x):
            for axis, front, back in used:
                x = mirrored(x, axis, front, back, mode == "mirror_edge")
            return x

        return Case(fields, {"x": x}, pad, exact=True)
    value = d.choice((0.5, -2.0, 0.0)) if mode == "constant" else 0.0
    if mode == "constant":
        fields["value"] = value
    if mode in ("zero", "constant"):
        pads = [n for _, front, back in reversed(used) for n in (front, back)]
        return Case(fields, {"x": x}, lambda x: F.pad(x, pads, "constant", value), "F.pad", exact=True)

    def pad(x):
        for axis, front, back in used:
            x = along(x, axis, front, back, mode)
        return x

    return Case(fields, {"x": x}, pad, "F.pad", exact=True)
