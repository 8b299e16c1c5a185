# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Optimizers beside torch.optim: what becomes of a gradient first, and twenty steps in a row."""
import os
import subprocess
import tempfile

import numpy
import torch

STEPS = 20
TOLERANCE = {"f64": 1e-12, "f32": 1e-5}  # after all steps, of the largest element


def rules(d):
    """Fields of the group `gradient`, and their function of a gradient and its parameter."""
    fields, low, high, rescale, kind, factor = {}, -numpy.inf, numpy.inf, 1.0, "none", 0.0
    if d.maybe(0.3):
        low, high = d.number(-2, -0.1), d.number(0.1, 2)
        fields.update({"gradient.clip_minimum": low, "gradient.clip_maximum": high})
    if d.maybe(0.3):
        rescale = d.number(0.1, 2)
        fields["gradient.rescale"] = rescale
    if d.maybe(0.5):
        kind, factor = d.choice(("l1", "l2")), d.number(-0.5, 0.5)
        fields.update({"gradient.regularization": kind, "gradient.regularization_scale": factor})

    def prepare(g, p):
        g = g.clamp(low, high) * rescale
        return g + factor * (p.sign() if kind == "l1" else p if kind == "l2" else 0)

    return fields, prepare


def optimizer_step(kind, p, g, state, **options):
    """One step of torch.optim from a given state; gives the new parameter and the new state."""
    p = torch.nn.Parameter(p.detach().clone())
    p.grad = g.detach().clone()
    optimizer = kind([p], **options)
    optimizer.state[p].update({name: t.detach().clone() for name, t in state.items()})
    optimizer.step()
    after = optimizer.state[p]
    return p.detach(), {name: after[name] for name in state}


class Way:
    """A way to go twenty steps. `moments` are names of inputs; `step(p, g, moments, rate, t)` gives the new parameter
    and moments, in f64."""

    def __init__(self, fields, moments, step, stepped=False):
        self.fields, self.moments, self.step, self.stepped = fields, moments, step, stepped


def call(program, op, fields, inputs, results, folder):
    command = [program, "op", op]
    for name, value in fields.items():
        command += ["--" + name, str(value).lower() if isinstance(value, bool) else str(value)]
    for name, array in inputs.items():
        numpy.save(os.path.join(folder, name + ".npy"), array)
        command.append("%s=%s" % (name, os.path.join(folder, name + ".npy")))
    for name in results:
        command += ["-o", "%s=%s" % (name, os.path.join(folder, "out-" + name + ".npy"))]
    subprocess.run(command, check=True)
    return {name: numpy.load(os.path.join(folder, "out-" + name + ".npy")) for name in results}


def follow(program, op, way, dtype):
    """Twenty steps of the program and of torch; gives a sentence where they part."""
    stored = {"f64": "<f8", "f32": "<f4"}[dtype]
    random = numpy.random.RandomState(7)
    p = random.uniform(-2, 2, (3, 37)).astype(stored)
    ours = {"parameter": p, **{name: numpy.zeros_like(p) for name in way.moments}}
    theirs = {name: torch.from_numpy(array.astype(float)) for name, array in ours.items()}
    names = list(ours)
    with tempfile.TemporaryDirectory() as folder:
        for t in range(1, STEPS + 1):
            g = random.uniform(-2, 2, p.shape).astype(stored)
            rate = numpy.asarray(0.05 * 0.9 ** t, stored)
            inputs = {"parameter": ours["parameter"], "gradient": g, **{m: ours[m] for m in way.moments}, "rate": rate}
            if way.stepped:
                inputs["step"] = numpy.asarray(t, "<i8")
            done = call(program, op, way.fields, inputs, ["new_" + name for name in names], folder)
            ours = {name: done["new_" + name] for name in names}
            new, moments = way.step(theirs["parameter"], torch.from_numpy(g.astype(float)),
                                    [theirs[name] for name in way.moments], float(rate), t)
            theirs = dict(zip(names, [new, *moments]))
    for name in names:
        want = theirs[name].numpy()
        error = abs(ours[name] - want).max() / abs(want).max()
        if not error <= TOLERANCE[dtype]:
            return "%d steps of %s in %s: %s is off by %.3g of its largest element" % (
                STEPS, way.fields, dtype, name, error)
    return None


def follow_all(program, op, ways):
    results = [follow(program, op, way, dtype) for way in ways for dtype in TOLERANCE]
    return [text for text in results if text is not None]
