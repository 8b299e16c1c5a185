# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Softmax beside torch."""
import math

import torch.nn.functional as F
from torch_draw import Case


def compare(d):
    kind = d.cycle(("plain", "log"))
    function = F.softmax if kind == "plain" else F.log_softmax
    shape = d.shape(1, 8)
    axis = d.randrange(-len(shape), len(shape))
    flatten = d.maybe(0.3)
    group = math.prod(shape[axis:]) if flatten else shape[axis]
    # where one element of few is nearly 1, y does not tell how nearly; and what is left of dy may be little
    wide, size = (4, 0) if group > 8 else (1, 0.1)
    return Case({"kind": kind, "axis": axis, "flatten": flatten}, {"x": d.array(shape, -wide, wide)},
                lambda x: function(x.flatten(axis), -1).reshape(shape) if flatten else function(x, axis),
                "F.softmax", size=size, zero=("x",) if group <= 1 else ())
