# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Local contrast normalization beside a formula on F.avg_pool2d."""
import torch.nn.functional as F
from torch_draw import Case, channels_last, channels_second


def compare(d):
    shape = d.image()
    window = [d.choice((1, 2, 3, 4, 5, 6, 9, 12, 30)) for _ in range(2)]
    beta = d.choice((0.5, 0.75, 1.0, 1.25, 3.0, d.number(-1.5, 3)))
    alpha, delta = d.choice((0, 1, d.number(0, 3))), d.number(0.2, 2)
    p0, pm, ps = d.choice(((1, 0, 1), (0, 0, 1), (d.number(-2, 2), d.number(-2, 2), d.number(0.2, 2))))
    fields = {"window": window, "alpha": alpha, "beta": beta, "delta": delta, "p0": p0, "pm": pm, "ps": ps}

    def normalized(x):
        if x.numel() == 0:
            return x + 0
        x = channels_second(x)
        (kh, kw) = window

        def mean(z):
            return F.avg_pool2d(F.pad(z, (kw // 2, (kw - 1) // 2, kh // 2, (kh - 1) // 2)), window, 1)

        middle = mean(x)
        variance = (mean(x * x) - middle * middle).clamp(min=0)
        return channels_last(pm + ps * (x - p0 * middle) * (delta + alpha * variance) ** -beta, len(shape))

    return Case(fields, {"x": d.array(shape)}, normalized)
