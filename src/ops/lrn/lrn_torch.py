# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Local response normalization beside torch's, whose even windows reach further before a channel."""
import torch.nn.functional as F
from torch_draw import Case


def compare(d):
    shape = d.shape(1, 6)
    window = d.choice((1, 2, 3, 4, 5, 6, 9, 10, 24, 70))
    alpha, delta = d.number(0, 3), d.number(0.2, 2)
    beta = d.choice((0.5, 0.75, 1.0, 1.25, 3.0, d.number(-1.5, 3)))
    after = d.maybe(0.3)

    def normalized(x):
        pixels = (x.flip(-1) if after else x).reshape(-1, shape[-1], 1) if x.numel() > 0 else x + 0
        y = F.local_response_norm(pixels, window, alpha, beta, delta).reshape(shape) if x.numel() > 0 else pixels
        return y.flip(-1) if after else y

    return Case({"window": window, "alpha": alpha, "beta": beta, "delta": delta, "even_after": after},
                {"x": d.some(shape)}, normalized, "F.local_response_norm")
