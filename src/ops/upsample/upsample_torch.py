# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Upsampling beside F.interpolate, and beside matrices of weights where torch has no such grid or rounding."""
import math
from fractions import Fraction

import numpy
import torch
import torch.nn.functional as F
from torch_draw import Beyond, Case, channels_last, channels_second


def place(o, grid, n, out, scale):
    """Where output o looks, exactly; `scale` None: by the sizes."""
    ratio = Fraction(n, out) if scale is None else 1 / Fraction(scale)
    if grid == "align_corners":
        u = Fraction(o * (n - 1), out - 1) if out > 1 else Fraction(0)
    elif grid == "half_pixel":
        u = (o + Fraction(1, 2)) * ratio - Fraction(1, 2)
    else:
        u = o * ratio
    return min(max(u, 0), n - 1)


def nearest(u, rounding):
    return {"floor": math.floor(u), "ceil": math.ceil(u), "prefer_floor": math.ceil(u - Fraction(1, 2)),
            "prefer_ceil": math.floor(u + Fraction(1, 2))}[rounding]


def weights(kind, grid, rounding, n, out, scale):
    """(out, n): how much of each input goes into each output."""
    w = numpy.zeros((out, n))
    for o in range(out):
        u = place(o, grid, n, out, scale)
        if kind == "nearest":
            w[o, nearest(u, rounding)] = 1
        else:
            i = math.floor(u)
            w[o, i] = 1 - (u - i)
            if u > i:
                w[o, i + 1] = u - i
    return torch.from_numpy(w)


def torch_rounds(n, out, scale, shift):
    """Whether f32, in which torch looks for the nearest pixel, finds another one than exact arithmetic."""
    ratio = numpy.float32(n / out if scale is None else 1 / scale)
    exact = Fraction(n, out) if scale is None else 1 / Fraction(scale)
    for o in range(out):
        place = numpy.float32(o + shift)
        found = {math.floor(place * ratio), math.floor(float(place) * float(ratio))}  # by torch's version
        if found != {math.floor((o + Fraction(shift)) * exact)}:
            return True
    return False


def sizes(d, kind, grid, size):
    """Rows and columns of the output, the scales if they are given, and the field that says so."""
    if d.maybe(0.5):
        out = [d.randint(1, 20), d.randint(1, 20)]
        return out, [None, None], {"output": out}
    scale = [d.choice((2.0, 3.0, 0.5, 1.5, d.number(0.4, 3.5))) for _ in range(2)]
    out = [math.floor(n * s) for n, s in zip(size, scale)]
    if 0 in out:
        raise Beyond("an output without pixels")
    shift = Fraction(1, 2) if grid == "half_pixel" else 0
    for s, count in zip(scale, out):
        places = [(o + shift) / Fraction(s) for o in range(count)]
        if kind == "nearest" and any(0 < abs(2 * u - round(2 * u)) < 1e-9 for u in places):
            raise Beyond("places that lie on the border of two pixels but for rounding")
    return out, scale, {"scale": scale}


def interpolate(kind, grid, rounding):
    """What F.interpolate is to be told; None if it has no such thing."""
    if kind == "bilinear":
        return None if grid == "asymmetric" else {"mode": "bilinear", "align_corners": grid == "align_corners"}
    name = {("asymmetric", "floor"): "nearest", ("half_pixel", "prefer_ceil"): "nearest-exact"}.get((grid, rounding))
    return name and {"mode": name}


def check_torch(mode, size, out, scale):
    """Raises Beyond where torch does not do what was asked for."""
    short_cuts = (1,) if mode == "bilinear" else (1, 2)
    shift = 0.5 if mode == "nearest-exact" else 0
    for n, o, s in zip(size, out, scale):
        if s is not None and o / n in short_cuts and o != n * s:
            raise Beyond("a scale that torch passes over, as the output has the size of x or twice that")
        if mode != "bilinear" and torch_rounds(n, o, s, shift):
            raise Beyond("pixels that torch, in f32, takes from another place")


def compare(d):
    kind = d.cycle(("nearest", "bilinear"))
    shape = d.image(9)
    size = shape[-3:-1]
    grid = d.choice(("asymmetric", "half_pixel", "align_corners"))
    rounding = d.choice(("floor", "ceil", "prefer_floor", "prefer_ceil"))
    if kind == "nearest" and d.maybe(0.6):  # those that torch has
        grid, rounding = d.choice((("asymmetric", "floor"), ("half_pixel", "prefer_ceil")))
    out, scale, field = sizes(d, kind, grid, size)
    fields = {"kind": kind, "grid": grid, **field, **({"round": rounding} if kind == "nearest" else {})}
    how = interpolate(kind, grid, rounding)
    if how:
        check_torch(how["mode"], size, out, scale)
        how.update({"size": tuple(out)} if scale[0] is None else {"scale_factor": tuple(scale)})
        return Case(fields, {"x": d.array(shape)},
                    lambda x: channels_last(F.interpolate(channels_second(x), **how), len(shape)), "F.interpolate",
                    exact=kind == "nearest")
    rows, columns = (weights(kind, grid, rounding, n, o, s) for n, o, s in zip(size, out, scale))
    return Case(fields, {"x": d.array(shape)},
                lambda x: torch.einsum("ph,...hwc,qw->...pqc", rows, x, columns), exact=kind == "nearest")
