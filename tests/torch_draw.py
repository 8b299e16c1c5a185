# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""What the comparisons with PyTorch are written with: random choices from a seed, and a case of an op."""
import random

import numpy
import torch
import torch.nn.functional as F


class Beyond(Exception):
    """Torch cannot express what was drawn; another one is drawn, and this is counted by its reason."""


class Case:
    """One call of an op and what torch has to say about it.

    fields   the op's fields as on the command line; a list is joined by commas
    inputs   names and arrays, in the order of the op's inputs. Real numbers are rounded to the dtype of the run,
             integers stay what they are
    torch    a function of the inputs, as tensors of f64, and of the states; gives the output or a tuple of outputs
    how      the name of torch's own function for this op, or None if `torch` is a formula of ours
    outputs  their names
    gradient names of the inputs whose gradients are compared; None: all that are real numbers
    zero     names of the inputs whose gradient may be 0 everywhere
    exact    whether every bit of the outputs must agree
    exact_gradient  and of the gradients
    states   names of tensors of the state that `torch` takes behind the inputs
    size     a size that outputs and gradients have by nature: smaller ones are compared as if they were so large
    dtypes   those to run; None: all
    """

    def __init__(self, fields, inputs, torch, how=None, outputs=("y",), gradient=None, zero=(), exact=False,
                 exact_gradient=False, states=(), size=0, dtypes=None):
        self.fields, self.inputs, self.torch, self.how, self.outputs = fields, inputs, torch, how, outputs
        real = [name for name, array in inputs.items() if array.dtype.kind == "f"]
        self.gradient = real if gradient is None else list(gradient)
        self.zero, self.exact, self.exact_gradient, self.states = zero, exact, exact_gradient, states
        self.size, self.dtypes = size, dtypes


class Draw(random.Random):
    """Random choices for case number `index`; the same for the same text."""

    def __init__(self, text, index):
        super().__init__()
        self.index = index
        self.restart(text)

    def restart(self, text):
        self.seed(text)
        self.numpy = numpy.random.RandomState(self.getrandbits(32))

    def cycle(self, choices):
        """The next one from case to case, so that a few cases have met all."""
        return choices[self.index % len(choices)]

    def maybe(self, share=0.5):
        return self.random() < share

    def number(self, low, high):
        """A number with few digits, as people write them."""
        return round(self.uniform(low, high), 3)

    def shape(self, low=1, high=5, most=2000):
        """A rank between low and high, dimensions that suit it; now and then one of them is 0."""
        rank = self.randint(low, high)
        while True:
            dims = [self.choice((1, 2, 3, 5, 7, 8, 9, 16, 17, 33, 64, 131)) for _ in range(rank)]
            if numpy.prod(dims, dtype=int) <= most:
                break
        if rank > 0 and self.maybe(0.04):
            dims[self.randrange(rank)] = 0
        return tuple(dims)

    def pair(self, low, high):
        return [self.randint(low, high), self.randint(low, high)]

    def image(self, most=14):
        """(n, h, w, c), now and then (h, w, c) or no image at all."""
        dims = [self.randint(1, 3), self.randint(1, most), self.randint(1, most),
                self.choice((1, 2, 3, 4, 7, 8, 9, 16, 17, 20))]
        if self.maybe(0.03):
            dims[0] = 0
        return tuple(dims[1:] if self.maybe(0.2) else dims)

    def array(self, shape, low=-2.0, high=2.0, avoid=()):
        """Numbers between low and high that keep away from those of `avoid`, by 1/50 or more."""
        values = self.numpy.uniform(low, high, shape)
        for _ in range(100):
            near = numpy.zeros(numpy.shape(values), bool)
            for place in avoid:
                near |= abs(values - place) < 0.02
            if not near.any():
                return numpy.asarray(values)
            values = numpy.where(near, self.numpy.uniform(low, high, shape), values)
        raise AssertionError("no numbers left between %g and %g" % (low, high))

    def grid(self, shape, step=0.125, steps=16):
        """Multiples of a step, exact in all dtypes and often equal to each other."""
        return self.numpy.randint(-steps, steps + 1, shape) * numpy.float64(step)

    def some(self, shape):
        """With equal elements or without."""
        return self.grid(shape) if self.maybe(0.3) else self.array(shape)


# ---- images ----


def channels_second(x):
    """(n, h, w, c) or (h, w, c) as torch has it: (n, c, h, w)."""
    return (x if x.dim() == 4 else x[None]).permute(0, 3, 1, 2)


def channels_last(y, rank):
    """And back."""
    y = y.permute(0, 2, 3, 1)
    return y if rank == 4 else y[0]


# ---- windows ----

ALIGNS = ("centered", "top_left", "bottom_right")
REMAINDERS = ("top_left", "top_right", "bottom_left", "bottom_right")


def by_policy(d, policy, size, spans, strides):
    """Windows that a policy of padding places, of rows and of columns: fields, how many there are of them, and the
    padding before and behind."""
    align, remainder = d.choice(ALIGNS), d.choice(REMAINDERS)
    counts, befores, afters = [], [], []
    for axis, (n, span, s) in enumerate(zip(size, spans, strides)):
        grown = n + {"valid": 1 - span, "full": span - 1}.get(policy, 0)
        count = -(-grown // s)
        if count < 1:
            raise Beyond("a window that does not fit")
        extra = (count - 1) * s + span - n
        first = remainder.startswith("top") if axis == 0 else remainder.endswith("left")
        before = {"centered": int((extra + first) / 2), "top_left": extra, "bottom_right": 0}[align]
        if policy.startswith("same_"):
            before = (max(extra, 0) + (policy == "same_lower")) // 2
        counts.append(count)
        befores.append(before)
        afters.append(extra - before)
    return {"padding.align": align, "padding.remainder": remainder}, counts, befores, afters


# ---- neurons that are part of another op ----

NEURONS = (
    ("relu", (0.1,), F.leaky_relu),
    ("linear", (1.5, -0.25), lambda z, a, b: a * z + b),
    ("sigmoid", (), torch.sigmoid),
    ("tanh", (1.25, 0.75), lambda z, a, b: a * torch.tanh(b * z)),
    ("elu", (1,), F.elu),
    ("softsign", (), F.softsign),
    ("gelu", (), F.gelu),
)


def neuron(d, share=0.4):
    """Fields of a group `neuron`, and its function; often there is none."""
    if not d.maybe(share):
        return {}, lambda z: z
    kind, given, function = d.choice(NEURONS)
    numbers = {"neuron." + name: value for name, value in zip("ab", given)}
    return {"neuron.kind": kind, **numbers}, lambda z: function(z, *given)
