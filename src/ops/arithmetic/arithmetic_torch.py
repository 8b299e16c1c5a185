# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Arithmetic beside torch: broadcasting, scales, bias, bounds, comparisons."""
import math

import numpy
import torch
from torch_draw import Case

COMPARISONS = {"equal": lambda a, b, t: torch.isclose(a, b, 0, t), "less": lambda a, b, t: torch.lt(a, b),
               "not_equal": lambda a, b, t: ~torch.isclose(a, b, 0, t),
               "less_or_equal": lambda a, b, t: torch.le(a, b), "greater": lambda a, b, t: torch.gt(a, b),
               "greater_or_equal": lambda a, b, t: torch.ge(a, b)}


def shapes(d):
    """Two shapes that fit together."""
    whole = d.shape(0, 5)
    two = []
    for _ in range(2):
        dims = [1 if d.maybe(0.25) else n for n in whole]
        two.append(tuple(dims[d.randint(0, len(dims)) if d.maybe(0.3) else 0:]))
    return two


def compare(d):
    kind = d.cycle(("add", "subtract", "multiply", "divide", "compare", "maximum", "minimum", "mask"))
    first, second = shapes(d)
    if kind == "compare":
        asked = d.choice(sorted(COMPARISONS))
        threshold = d.choice((0.0, 0.125, 0.5))
        return Case({"kind": kind, "comparison": asked, "threshold": threshold},
                    {"a": d.grid(first), "b": d.grid(second)},
                    lambda a, b: COMPARISONS[asked](a, b, threshold).double(), "torch.lt, …", gradient=(), exact=True)
    function = {"add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.div,
                "maximum": torch.maximum, "minimum": torch.minimum,
                "mask": lambda a, b: torch.where(b == 0, torch.zeros((), dtype=a.dtype), a)}[kind]
    p, s, bias = (1.0, 1.0, 0.0) if d.maybe(0.3) else (d.choice((0.5, 2.0, -1.0)), d.choice((0.5, -2.0)), 0.25)
    low, high = -math.inf, math.inf
    fields = {"kind": kind, "primary_scale": p, "secondary_scale": s, "bias": bias}
    if d.maybe(0.5):  # numbers for which no rounding decides on which side of a bound a result lies
        low, high = d.choice(((-0.5, 1.0), (-math.inf, 0.75), (-1.25, math.inf), (-0.25, 0.25)))
        a, b = d.grid(first), d.grid(second)
        b = d.numpy.choice((-2.0, -1.0, -0.5, 0.5, 1.0, 4.0), second) if kind == "divide" else b
        fields.update({name: value for name, value in (("minimum", low), ("maximum", high)) if math.isfinite(value)})
    else:
        a, b = d.array(first), d.array(second, 0.5, 2) * d.numpy.choice((-1.0, 1.0), second)
    bounded = math.isfinite(low) or math.isfinite(high)

    def formula(a, b):
        r = function(p * a, s * b) + bias
        return torch.clamp(r, low, high) if bounded else r

    if kind == "mask":
        b = d.numpy.choice((0.0, 1.0, -2.0), second)
        return Case(fields, {"a": a, "b": numpy.asarray(b)}, formula, "torch.where", gradient=("a",))
    return Case(fields, {"a": a, "b": numpy.asarray(b)}, formula, "torch." + kind)

