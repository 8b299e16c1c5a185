# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""rmsprop beside torch.optim.RMSprop, and MPS's form beside its formula."""
import torch
from torch_draw import Case
from torch_steps import Way, follow_all, optimizer_step, rules

STATES = {"velocity": "square_avg", "mean": "grad_avg", "momentum": "momentum_buffer"}


def names_of(momentum, centered):
    return ["velocity"] + (["mean"] if centered else []) + (["momentum"] if momentum else [])


def step(form, decay, epsilon, momentum, centered):
    names = names_of(momentum, centered)

    def torchs(p, g, moments, rate):
        state = {"step": torch.zeros(()), **{STATES[name]: m for name, m in zip(names, moments)}}
        new, state = optimizer_step(torch.optim.RMSprop, p, g, state, lr=rate, alpha=decay, eps=epsilon,
                                    momentum=momentum, centered=centered)
        return new, [state[STATES[name]] for name in names]

    def mps(p, g, moments, rate):
        m = dict(zip(names, moments))
        m["velocity"] = decay * m["velocity"] + (1 - decay) * g * g
        square = m["velocity"]
        if centered:
            m["mean"] = decay * m["mean"] + (1 - decay) * g
            square = square - m["mean"] ** 2
        by = rate * g / (square.sqrt() + epsilon)
        if momentum:
            by = m["momentum"] = momentum * m["momentum"] + by
        return p - by, [m[name] for name in names]

    return torchs if form == "torch" else mps


def compare(d):
    form = d.cycle(("mps", "torch"))
    momentum, centered = d.choice((0, 0.5, 0.9)), d.maybe(0.4)
    decay, epsilon, scaled = d.number(0.5, 0.99), d.choice((1e-8, 0.1)), d.maybe(0.3)
    shape = d.shape(0, 5)
    names = names_of(momentum, centered)
    fields, prepare = rules(d)
    fields.update(form=form, momentum=momentum, centered=centered, decay=decay, epsilon=epsilon, scaled=scaled)
    inputs = {"parameter": d.array(shape), "gradient": d.array(shape)}
    for name in names:  # velocity is well above the square of the mean
        inputs[name] = d.array(shape, *{"velocity": (2, 4), "mean": (-0.5, 0.5)}.get(name, (-2, 2)))
    inputs["rate"] = d.array((), 0.01, 0.5)
    if scaled:
        inputs["scale"] = d.array((), 0.1, 1.5)
    take = step(form, decay, epsilon, momentum, centered)

    def stepped(p, g, *rest):
        moments, rest = list(rest[:len(names)]), rest[len(names):]
        g = prepare(g * rest[1] if scaled else g, p)
        new, moments = take(p, g, moments, float(rest[0]))
        return (new, *moments)

    return Case(fields, inputs, stepped, "torch.optim.RMSprop" if form == "torch" else None,
                outputs=("new_parameter", *("new_" + name for name in names)), gradient=(), dtypes=("f64", "f32"))


def way(form, momentum, centered):
    decay, epsilon = 0.9, 1e-8
    take = step(form, decay, epsilon, momentum, centered)
    fields = {"form": form, "momentum": momentum, "centered": centered, "decay": decay, "epsilon": epsilon}
    return Way(fields, names_of(momentum, centered), lambda p, g, moments, rate, t: take(p, g, moments, rate))


def finish(program):
    """Twenty steps in every form."""
    return follow_all(program, "rmsprop", [way(form, momentum, centered) for form in ("mps", "torch")
                                           for momentum in (0, 0.9) for centered in (False, True)])
