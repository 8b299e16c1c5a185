# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Neurons beside torch."""
import math

import torch
import torch.nn.functional as F
from torch_draw import Case

E = -1  # c of exponential and logarithm
SIGNED = {"linear": "a", "hard_sigmoid": "a", "tanh": "a", "softplus": "b", "exponential": "a", "swish": "a"}
FROM_Y = ("none", "linear", "sigmoid", "softsign", "exponential", "relu", "elu", "relun", "tanh", "softplus")

# The kind, its default a, b, c, torch's function if there is one, the formula, what x is drawn from.
KINDS = (
    ("none", (), None, lambda x: x * 1, (-5, 5)),
    ("relu", (0,), "F.leaky_relu", F.leaky_relu, (-5, 5)),
    ("linear", (1, 0), None, lambda x, a, b: a * x + b, (-5, 5)),
    ("sigmoid", (), "torch.sigmoid", torch.sigmoid, (-9, 9)),
    ("hard_sigmoid", (0.2, 0.5), "torch.clamp", lambda x, a, b: torch.clamp(a * x + b, 0, 1), (-5, 5)),
    ("tanh", (1, 1), "torch.tanh", lambda x, a, b: a * torch.tanh(b * x), (-3, 3)),
    ("absolute", (), "torch.abs", torch.abs, (-5, 5)),
    ("softplus", (1, 1), "F.softplus", lambda x, a, b: a * b * F.softplus(x, b, 40), (-5, 5)),
    ("softsign", (), "F.softsign", F.softsign, (-5, 5)),
    ("elu", (1,), "F.elu", F.elu, (-5, 5)),
    ("prelu", (), "F.prelu", None, ()),
    ("relun", (1, 6), "F.leaky_relu", lambda x, a, b: torch.clamp(F.leaky_relu(x, a), max=b), (-8, 8)),
    ("power", (1, 0, 1), "torch.pow", lambda x, a, b, c: torch.pow(a * x + b, c), (0.1, 3)),
    ("exponential", (1, 0, E), "torch.exp", lambda x, a, b, c: torch.exp(log_base(c) * (a * x + b)), (-2, 2)),
    ("logarithm", (1, 0, E), "torch.log", lambda x, a, b, c: torch.log(a * x + b) / log_base(c), (0.1, 5)),
    ("gelu", (), "F.gelu", F.gelu, (-5, 5)),
    ("gelu_tanh", (), "F.gelu", lambda x: F.gelu(x, approximate="tanh"), (-5, 5)),
    ("swish", (1,), None, lambda x, a: x * torch.sigmoid(a * x), (-5, 5)),
)


def log_base(c):
    return 1 if c == E else math.log(c)


def numbers(d, kind, defaults):
    """The default a, b, c, or others; and as fields, where they are to be given."""
    if d.maybe(0.3):
        return defaults, {}
    drawn = {name: d.number(0.2, 1.5) for name in "abc"[:len(defaults)]}
    for name in SIGNED.get(kind, ""):
        drawn[name] *= d.choice((-1, 1))
    if kind == "relun":
        drawn["b"] += 1
    if "c" in drawn:
        drawn["c"] = d.choice((2.0, 3.0, -1.0, 0.5) if kind == "power" else (E, 2.0, 0.5, drawn["c"] + 1))
    return tuple(drawn.values()), drawn


def compare(d):
    kind, defaults, how, function, span = d.cycle(KINDS)
    if kind == "prelu":
        return prelu(d)
    given, fields = numbers(d, kind, defaults)
    avoid = {"hard_sigmoid": lambda a, b: (-b / a, (1 - b) / a), "relun": lambda a, b: (b,)}.get(kind, lambda *_: ())
    # where the curve is flat, y does not tell the slope as exactly as x does, and in 16 bits hardly at all
    from_y = kind in FROM_Y and d.maybe(0.4)
    low, high = (max(span[0], -3), min(span[1], 3)) if from_y else span
    return Case({"kind": kind, **fields, **({"from_y": True} if from_y else {})},
                {"x": d.array(d.shape(0, 5), low, high, avoid(*given))}, lambda x: function(x, *given), how,
                size=0.1, dtypes=("f64", "f32") if from_y else None)


def prelu(d):
    shape = d.shape(1, 5)
    channels = shape[-1]
    return Case({"kind": "prelu"}, {"x": d.array(shape), "slope": d.array((channels,), 0.1, 0.9)},
                lambda x, slope: F.prelu(x.reshape(-1, channels), slope).reshape(shape) if channels > 0 else x + 0,
                "F.prelu")
