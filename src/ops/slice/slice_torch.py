# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Slices beside torch's indexing."""
from torch_draw import Case


def compare(d):
    shape = d.shape(0, 6)
    start, length, step, cut = [], [], [], []
    for n in shape:
        first, by = d.randint(0, n if d.maybe(0.02) else max(n - 1, 0)), d.choice((1, 1, 2, 3))
        most = -(-(n - first) // by)
        count = d.randint(min(most, 1), most)
        cut.append(slice(first, first + (count - 1) * by + 1 if count > 0 else first, by))
        start.append(first - n if n > first and d.maybe(0.3) else first)
        length.append(-1 if count == most and d.maybe(0.5) else count)
        step.append(by)
    fields = {}
    if shape and d.maybe(0.8):
        fields = {"start": start, "length": length, "step": step}
    else:
        cut = [slice(None)] * len(shape)
    return Case(fields, {"x": d.array(shape)}, lambda x: x[tuple(cut)], "x[start:stop:step]", exact=True,
                exact_gradient=True)
