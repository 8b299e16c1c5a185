# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""adam beside torch.optim.Adam and AdamW, and MPS's form beside its formula."""
import numpy
import torch
from torch_draw import Case
from torch_steps import Way, follow_all, optimizer_step, rules

STATES = {"momentum": "exp_avg", "velocity": "exp_avg_sq", "maximum": "max_exp_avg_sq"}


def names_of(amsgrad):
    return ["momentum", "velocity"] + (["maximum"] if amsgrad else [])


def step(form, beta1, beta2, epsilon, decay, amsgrad):
    names = names_of(amsgrad)

    def torchs(p, g, moments, rate, t):
        state = {"step": torch.tensor(float(t - 1)), **{STATES[name]: m for name, m in zip(names, moments)}}
        new, state = optimizer_step(torch.optim.AdamW, p, g, state, lr=rate, betas=(beta1, beta2), eps=epsilon,
                                    weight_decay=decay, amsgrad=amsgrad)
        return new, [state[STATES[name]] for name in names]

    def mps(p, g, moments, rate, t):
        m, v = beta1 * moments[0] + (1 - beta1) * g, beta2 * moments[1] + (1 - beta2) * g * g
        u = torch.maximum(moments[2], v) if amsgrad else v
        rate_of_t = rate * (1 - beta2 ** t) ** 0.5 / (1 - beta1 ** t)
        return p * (1 - rate * decay) - rate_of_t * m / (u.sqrt() + epsilon), [m, v, u][:len(names)]

    return torchs if form == "torch" else mps


def compare(d):
    form = d.cycle(("mps", "torch"))
    beta1, beta2, epsilon = d.number(0, 0.95), d.number(0.5, 0.999), d.choice((1e-8, 0.1))
    decay, amsgrad, scaled = d.choice((0, 0.01, 0.3)), d.maybe(0.4), d.maybe(0.3)
    shape = d.shape(0, 5)
    names = names_of(amsgrad)
    fields, prepare = rules(d)
    fields.update(form=form, beta1=beta1, beta2=beta2, epsilon=epsilon, decay=decay, amsgrad=amsgrad, scaled=scaled)
    inputs = {"parameter": d.array(shape), "gradient": d.array(shape)}
    for name in names:
        inputs[name] = d.array(shape, *((-2, 2) if name == "momentum" else (0.1, 2)))
    inputs["rate"] = d.array((), 0.01, 0.5)
    inputs["step"] = numpy.asarray(d.randint(1, 50), "<i8")
    if scaled:
        inputs["scale"] = d.array((), 0.1, 1.5)
    take = step(form, beta1, beta2, epsilon, decay, amsgrad)

    def stepped(p, g, *rest):
        moments, rest = list(rest[:len(names)]), rest[len(names):]
        g = prepare(g * rest[2] if scaled else g, p)
        new, moments = take(p, g, moments, float(rest[0]), int(rest[1]))
        return (new, *moments)

    return Case(fields, inputs, stepped, "torch.optim.AdamW" if form == "torch" else None,
                outputs=("new_parameter", *("new_" + name for name in names)), gradient=(), dtypes=("f64", "f32"))


def way(form, decay, amsgrad):
    numbers = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "decay": decay, "amsgrad": amsgrad}
    return Way({"form": form, **numbers}, names_of(amsgrad), step(form, *numbers.values()), stepped=True)


def finish(program):
    """Twenty steps in every form."""
    return follow_all(program, "adam", [way(form, decay, amsgrad) for form in ("mps", "torch")
                                        for decay in (0, 0.1) for amsgrad in (False, True)])
