# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""grad_norm beside torch.linalg.vector_norm, whose square it is."""
import torch
from torch_draw import Case


def compare(d):
    factor = d.choice((1, d.number(-2, 2)))
    x = d.array(d.shape(0, 6, most=20000))
    return Case({"factor": factor}, {"gradient": x}, lambda x: factor * torch.linalg.vector_norm(x) ** 2,
                "torch.linalg.vector_norm", outputs=("squares",), gradient=())
