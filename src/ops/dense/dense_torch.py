# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Fully connected layers beside F.linear."""
import math

import torch.nn.functional as F
from torch_draw import Case, neuron


def compare(d):
    inputs = d.choice(((d.choice((1, 2, 7, 16, 17, 33, 131, 300)),), (2, 3), (3, 2, 5), (1, 1, 9)))
    rows = d.choice(((), (1,), (5,), (13,), (2, 3), (97,), (0,)))
    out = d.choice((1, 2, 5, 16, 17, 33, 67))
    layout = d.cycle(("out_in", "in_out"))
    alpha = d.choice((1.0, 0.5, d.number(0.1, 2)))
    fields, function = neuron(d)
    fields.update({"layout": layout, "bias": d.maybe(0.7), "alpha": alpha})
    size = 1 / math.sqrt(math.prod(inputs))  # z keeps the size of x
    w = (out, *inputs) if layout == "out_in" else (*inputs, out)
    arrays = {"x": d.array((*rows, *inputs)), "w": d.array(w, -2 * size, 2 * size)}
    if fields["bias"]:
        arrays["b"] = d.array((out,))

    def dense(x, w, b=None):
        w = w.reshape(out, -1) if layout == "out_in" else w.reshape(-1, out).T
        y = function(F.linear(x.reshape(*rows, w.shape[1]), alpha * w, b))
        return y.reshape(*rows, *[1] * (len(inputs) - 1), out)

    # a y of 16 bits near 1 tells little of a slope near 0
    bends = fields.get("neuron.kind") in ("sigmoid", "tanh", "softsign")
    return Case(fields, arrays, dense, "F.linear", zero=("x", "w", "b") if 0 in rows else (), size=0.1,
                dtypes=("f64", "f32") if bends else None)
