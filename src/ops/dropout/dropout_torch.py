# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Dropout beside a formula: torch has other random numbers, so the mask is the program's own. What is checked of the
mask is that it looks random, and that it follows seed and step."""
import math
import os
import subprocess
import tempfile

import numpy
import torch
from torch_draw import Case

MASKS = []  # probability and bits of each mask that was drawn


def compare(d):
    shape = d.shape(1, 5, 20000)
    keep = d.choice((0.5, 0.9, 0.25, d.number(0.05, 0.95), 1.0))
    broadcast = d.sample(range(len(shape)), d.randint(0, len(shape) - 1)) if d.maybe(0.4) else []
    fields = {"keep": keep, "seed": d.randint(-(1 << 63), (1 << 63) - 1), "step": d.randint(0, 1 << 40)}
    inputs = {"x": d.array(shape)}
    if broadcast:
        fields["broadcast"] = [n - len(shape) if d.maybe() else n for n in broadcast]
    if d.maybe(0.3):
        fields["step_input"] = True
        inputs["step"] = numpy.int64(d.randint(0, 1 << 30)).reshape(())
    masked = [1 if n in broadcast else size for n, size in enumerate(shape)]

    def dropped(x, *rest):
        bits = numpy.unpackbits(rest[-1], bitorder="little")
        count = int(numpy.prod(masked))
        if bits[count:].any() or len(bits) >= count + 8:
            raise AssertionError("the mask has bits behind its end")
        MASKS.append((keep, bits[:count]))
        return torch.from_numpy(bits[:count].reshape(masked).astype(float)) * x / keep

    return Case(fields, inputs, dropped, gradient=("x",), states=("mask",))


def finish(program):
    """As many kept as the probability says, neighbours that know nothing of each other; seed and step count."""
    failures = []
    for name, each in (("are kept", lambda p, bits: (bits.sum(), len(bits) * p, len(bits) * p * (1 - p))),
                       ("have a neighbour kept like themselves", pairs)):
        got, want, variance = numpy.sum([each(p, bits.astype(int)) for p, bits in MASKS if p < 1], axis=0)
        sigmas = abs(got - want) / math.sqrt(variance)
        if sigmas > 5:
            failures.append("%d elements of all masks %s, %.0f are expected: %.1f sigma" % (got, name, want, sigmas))
    first = mask(program, seed=3, step=4)
    if (first != mask(program, seed=3, step=4)).any():
        failures.append("the same seed and step give another mask")
    for seed, step in ((4, 4), (3, 5), (4, 3), (3 + (1 << 32), 4), (3, 4 + (1 << 32))):
        same = (first == mask(program, seed=seed, step=step)).mean()
        if not 0.45 < same < 0.55:
            failures.append("seed %d, step %d: %g of the mask is that of another seed or step" % (seed, step, same))
    return failures


def pairs(p, bits):
    """Sum of products of neighbours, counted so that no element is in two of them."""
    half = len(bits) // 2
    both = bits[0:2 * half:2] * bits[1:2 * half:2]
    return both.sum(), half * p * p, half * p * p * (1 - p * p)


def mask(program, **fields):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.npy")
        numpy.save(path, numpy.ones(8000, "<f4"))
        options = [word for name, value in fields.items() for word in ("--" + name, str(value))]
        subprocess.run([program, "op", "dropout", *options, "x=" + path, "-o", "y=" + path + ".y"], check=True)
        return numpy.load(path + ".y") != 0
