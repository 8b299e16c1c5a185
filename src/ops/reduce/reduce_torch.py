# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Reductions beside torch."""
import torch
from torch_draw import Case


def grouped(x, dims):
    """The reduced dimensions last, as one, in row-major order."""
    dims = sorted(n % x.dim() for n in dims) if x.dim() > 0 else []
    kept = [n for n in range(x.dim()) if n not in dims]
    return x.permute(*kept, *dims).reshape([x.shape[n] for n in kept] + [-1]) if x.dim() > 0 else x.reshape(1)


def compare(d):
    kind = d.cycle(("sum", "mean", "min", "max", "arg_min", "arg_max"))
    shape = d.shape(0, 6)
    while 0 in shape:  # the mean of nothing is NaN, and the others refuse
        shape = d.shape(0, 6)
    dims = sorted(d.sample(range(len(shape)), d.randint(0, len(shape))))
    every = dims or list(range(len(shape)))  # none: all
    kept = [1 if n in every else size for n, size in enumerate(shape)]
    keep = d.maybe()
    given = [n - len(shape) if d.maybe(0.3) else n for n in dims]
    d.shuffle(given)
    fields = {"kind": kind, "keep_dims": keep, "dims": given} if given else {"kind": kind, "keep_dims": keep}
    weight = 1.0
    if kind in ("sum", "mean") and d.maybe(0.5):
        weight = fields["weight"] = d.number(0.2, 3)

    def reduced(x):
        if kind in ("sum", "mean"):
            function = torch.sum if kind == "sum" else torch.mean
            return weight * (function(x, every, keepdim=keep) if every else x.reshape(()))
        groups = grouped(x, every)
        winner = torch.argmin(groups, -1) if kind.endswith("min") else torch.argmax(groups, -1)
        y = winner if kind.startswith("arg") else groups.gather(-1, winner[..., None])[..., 0]
        return y.reshape(kept) if keep else y

    return Case(fields, {"x": d.some(shape)}, reduced, "torch.sum, mean, argmax", exact=kind not in ("sum", "mean"),
                gradient=() if kind.startswith("arg") else None, exact_gradient=kind in ("min", "max"))
