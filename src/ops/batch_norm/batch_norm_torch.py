# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Batch normalization beside F.batch_norm; beside a formula for gradients of statistics, which torch does not have, and
for channels of fewer than two elements, which it refuses."""
import math

import torch
import torch.nn.functional as F
from torch_draw import Case, neuron


def compare(d):
    statistics = d.cycle(("own", "returned", "running", "given"))
    shape = d.shape(1, 5)
    shape = shape if shape[-1] > 0 else (*shape[:-1], 3)
    channels, count = shape[-1], math.prod(shape[:-1])
    # of few elements little is left of dx, and s may be anything
    few = count < 8
    epsilon = d.choice((0.1, 1.0, d.number(0.1, 1)) if few else (1e-5, 1e-3, d.number(0.01, 1)))
    offset = 100 if not few and statistics != "given" and d.maybe(0.2) else 0
    fields, function = neuron(d, 0 if offset else 0.4)  # 16 bits: z is 0 often, where relu has a kink
    fields.update({"statistics": statistics, "epsilon": epsilon})
    inputs = {"x": d.array(shape, offset - 2, offset + 2)}
    for name in ("gamma", "beta"):
        fields[name] = d.maybe(0.7)
        if fields[name]:
            inputs[name] = d.array((channels,))
    if statistics in ("running", "given"):
        inputs["mean"], inputs["variance"] = d.array((channels,)), d.array((channels,), 0.2, 2)
    momentum, unbiased = 0.9, False
    if statistics == "running":
        momentum = fields["momentum"] = d.choice((0.9, 0.0, 1.0, d.number(0, 1)))
        unbiased = fields["unbiased"] = d.maybe()
    given = statistics == "given"
    by_torch = d.maybe() if given else count > 1
    norm = Norm(list(inputs), count, epsilon, statistics, momentum, unbiased, by_torch, function)
    outputs = ("y", "new_mean", "new_variance") if statistics in ("returned", "running") else ("y",)
    wide = statistics == "returned" and len(inputs) == 1  # f32 beside 16 bits, which is not what the test writes
    return Case(fields, inputs, norm, "F.batch_norm" if by_torch else None, outputs,
                [name for name in inputs if not (given and by_torch and name in ("mean", "variance"))],
                ("x", "gamma", "mean", "variance") if count < 2 or momentum == 0 else (), size=1 if few else 0.1,
                dtypes=("f64", "f32") if wide else None)


class Norm:
    """A function of the inputs. torch's running averages have no gradient: those of a formula stand for them, and must
    be equal to them."""

    def __init__(self, names, count, epsilon, statistics, momentum, unbiased, by_torch, function):
        self.names, self.count, self.epsilon, self.statistics = names, count, epsilon, statistics
        self.momentum, self.unbiased, self.by_torch, self.function = momentum, unbiased, by_torch, function

    def __call__(self, *tensors):
        t = dict(zip(self.names, tensors))
        x = t["x"].reshape(self.count, t["x"].shape[-1])
        mean, variance = (t["mean"], t["variance"]) if self.statistics == "given" else self.moments(x)
        if self.by_torch:
            z = self.torchs(x, t)
        else:
            z = (x - mean) / (variance + self.epsilon).sqrt() * t.get("gamma", 1) + t.get("beta", 0)
        y = self.function(z).reshape(t["x"].shape)
        if self.statistics == "running":
            return (y, *self.averages(x, t, mean, variance))
        return (y, mean, variance) if self.statistics == "returned" else y

    def torchs(self, x, t):
        given = (t["mean"], t["variance"]) if self.statistics == "given" else (None, None)
        return F.batch_norm(x, *given, t.get("gamma"), t.get("beta"), self.statistics != "given", 0, self.epsilon)

    @staticmethod
    def moments(x):
        if x.shape[0] == 0:
            return x.sum(0), x.sum(0)
        return x.mean(0), x.var(0, unbiased=False)

    def averages(self, x, t, mean, variance):
        if self.count == 0:
            return t["mean"] + 0, t["variance"] + 0
        if self.unbiased:
            variance = variance * (self.count / max(self.count - 1, 1))
        new = [self.momentum * t["mean"] + (1 - self.momentum) * mean,
               self.momentum * t["variance"] + (1 - self.momentum) * variance]
        if self.by_torch and self.unbiased:
            torchs = [t["mean"].detach().clone(), t["variance"].detach().clone()]
            F.batch_norm(x.detach(), *torchs, None, None, True, 1 - self.momentum, self.epsilon)
            for ours, theirs in zip(new, torchs):
                torch.testing.assert_close(ours.detach(), theirs)
        return new
