# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Products of stacks of matrices beside torch.matmul."""
import torch
from torch_draw import Case


def compare(d):
    sizes = (1, 2, 5, 16, 17, 33, 67)
    rows, inner, columns = d.choice(sizes), d.choice(sizes + (131,)), d.choice(sizes)
    stack = d.choice(((), (3,), (2, 3), (4, 1, 2)))
    fields = {"transpose_a": d.maybe(0.5), "transpose_b": d.maybe(0.5), "alpha": d.choice((1.0, 0.5, d.number(0.1, 2)))}

    def operand(first, second, transposed):
        missing = d.randint(0, len(stack)) if d.maybe(0.4) else 0
        dims = [1 if d.maybe(0.2) else n for n in stack[missing:]]
        return d.array((*dims, second, first) if transposed else (*dims, first, second))

    arrays = {"a": operand(rows, inner, fields["transpose_a"]), "b": operand(inner, columns, fields["transpose_b"])}

    def matmul(a, b):
        a = a.transpose(-1, -2) if fields["transpose_a"] else a
        b = b.transpose(-1, -2) if fields["transpose_b"] else b
        return fields["alpha"] * torch.matmul(a, b)

    return Case(fields, arrays, matmul, "torch.matmul", size=0.1)
