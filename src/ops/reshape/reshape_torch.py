# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Reshape beside torch's."""
import torch
from torch_draw import Case


def factors(d, count):
    """Dimensions with this product."""
    dims = []
    while count > 1 and len(dims) < 6:
        divisors = [n for n in range(1, count + 1) if count % n == 0]
        dims.append(d.choice(divisors))
        count //= dims[-1]
    dims.insert(d.randint(0, len(dims)), count)
    return dims


def compare(d):
    shape = d.shape(0, 6)
    count = 1
    for n in shape:
        count *= n
    dims = [0, d.randint(1, 5)] if count == 0 else factors(d, count)
    fields, target = {"dims": list(dims)}, list(dims)
    if d.maybe(0.4) and count > 0:
        target[d.randrange(len(target))] = -1
        fields["dims"] = list(target)
    if count > 0 and shape and shape[0] == dims[0] and -1 not in target[:1] and d.maybe(0.5):
        fields.update(zero_keeps=True, dims=[0] + target[1:])
    return Case(fields, {"x": d.array(shape)}, lambda x: torch.reshape(x, target), "torch.reshape", exact=True,
                exact_gradient=True)
