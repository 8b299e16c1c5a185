# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Gram matrices beside torch.matmul."""
from torch_draw import Case


def compare(d):
    shape = d.image()
    alpha = d.choice((1.0, 0.5, d.number(-1, 1)))
    fields = {} if alpha == 1 else {"alpha": alpha}

    def gram(x):
        pixels = x.reshape(*x.shape[:-3], x.shape[-3] * x.shape[-2], x.shape[-1])
        return alpha * (pixels.transpose(-1, -2) @ pixels)

    return Case(fields, {"x": d.array(shape)}, gram, "torch.matmul", zero=("x",) if alpha == 0 else ())
