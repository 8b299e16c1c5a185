# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""sgd beside torch.optim.SGD, and MPS's form beside its formula."""
import torch
from torch_draw import Case
from torch_steps import Way, follow_all, optimizer_step, rules


def step(form, momentum, nesterov):
    """The new parameter and the new momentum, from g as it is used."""

    def torchs(p, g, m, rate):
        new, state = optimizer_step(torch.optim.SGD, p, g, {"momentum_buffer": m} if momentum else {}, lr=rate,
                                    momentum=momentum, nesterov=nesterov)
        return new, state.get("momentum_buffer")

    def mps(p, g, m, rate):
        if not momentum:
            return p - rate * g, None
        if nesterov:
            m = momentum * m + g
            return p - rate * (g + momentum * m), m
        m = momentum * m + rate * g
        return p - m, m

    return torchs if form == "torch" else mps


def compare(d):
    form = d.cycle(("mps", "torch"))
    momentum = d.choice((0, 0.5, 0.9))
    nesterov = momentum != 0 and d.maybe()
    scaled = d.maybe(0.3)
    shape = d.shape(0, 5)
    fields, prepare = rules(d)
    fields.update(form=form, momentum=momentum, nesterov=nesterov, scaled=scaled)
    inputs = {"parameter": d.array(shape), "gradient": d.array(shape)}
    if momentum:
        inputs["momentum"] = d.array(shape)
    inputs["rate"] = d.array((), 0.01, 0.5)
    if scaled:
        inputs["scale"] = d.array((), 0.1, 2)
    take = step(form, momentum, nesterov)

    def stepped(p, g, *rest):
        rest = list(rest)
        m = rest.pop(0) if momentum else None
        rate = float(rest.pop(0))
        g = prepare(g * rest[0] if scaled else g, p)
        new, m = take(p, g, m, rate)
        return (new, m) if momentum else new

    return Case(fields, inputs, stepped, "torch.optim.SGD" if form == "torch" else None,
                outputs=("new_parameter", "new_momentum") if momentum else ("new_parameter",), gradient=(),
                dtypes=("f64", "f32"))


def way(form, momentum, nesterov):
    take = step(form, momentum, nesterov)

    def both(p, g, moments, rate, t):
        new, m = take(p, g, moments[0] if momentum else None, rate)
        return new, [m] if momentum else []

    return Way({"form": form, "momentum": momentum, "nesterov": nesterov}, ["momentum"] if momentum else [], both)


def finish(program):
    """Twenty steps in every form."""
    return follow_all(program, "sgd", [way(form, *rest) for form in ("mps", "torch")
                                       for rest in ((0, False), (0.9, False), (0.9, True))])
