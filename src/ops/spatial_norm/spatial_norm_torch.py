# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Spatial normalization beside a formula on F.avg_pool2d."""
import torch.nn.functional as F
from torch_draw import Case, channels_last, channels_second


def compare(d):
    shape = d.image()
    window = [d.choice((1, 2, 3, 4, 5, 6, 9, 12, 30)) for _ in range(2)]
    alpha, delta = d.number(0, 3), d.number(0.2, 2)
    beta = d.choice((0.5, 0.75, 1.0, 1.25, 3.0, d.number(-1.5, 3)))

    def normalized(x):
        if x.numel() == 0:
            return x + 0
        x = channels_second(x)
        (kh, kw) = window
        padded = F.pad(x * x, (kw // 2, (kw - 1) // 2, kh // 2, (kh - 1) // 2))
        return channels_last(x * (delta + alpha * F.avg_pool2d(padded, window, 1)) ** -beta, len(shape))

    return Case({"window": window, "alpha": alpha, "beta": beta, "delta": delta}, {"x": d.some(shape)}, normalized)
