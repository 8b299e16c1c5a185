# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Transpose beside torch.permute."""
import torch
from torch_draw import Case


def compare(d):
    shape = d.shape(0, 8)
    order = list(range(len(shape)))
    d.shuffle(order)
    fields = {"order": [k - len(order) if d.maybe(0.2) else k for k in order]}
    if d.maybe(0.2) or not order:
        fields, order = {}, list(range(len(shape)))[::-1]
    return Case(fields, {"x": d.array(shape)}, lambda x: torch.permute(x, order), "torch.permute", exact=True,
                exact_gradient=True)
