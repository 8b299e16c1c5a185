# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Concatenation beside torch.cat."""
import torch
import torch.nn.functional as F
from torch_draw import Case


def compare(d):
    shape = list(d.shape(1, 5, 800))
    axis = d.randrange(-len(shape), len(shape))
    sources = d.randint(1, 8)
    multiple = d.choice((1, 1, 4, 3))
    inputs = {}
    for i in range(sources):
        shape[axis] = d.randint(0 if d.maybe(0.05) else 1, 9)
        inputs["x%d" % i] = d.array(shape)

    def cat(*x):
        return torch.cat([rounded_up(part, axis, multiple) for part in x], axis)

    return Case({"sources": sources, "axis": axis, "multiple": multiple}, inputs, cat, "torch.cat", exact=True,
                exact_gradient=True)


def rounded_up(x, axis, multiple):
    missing = -x.shape[axis] % multiple
    return F.pad(x.movedim(axis, -1), (0, missing)).movedim(-1, axis)
