# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""grad_scale beside torch.nn.utils.clip_grad_norm_, and a dynamic scale of the loss beside its rule."""
import numpy
import torch
from torch_draw import Case


def factor_of(norm, most, epsilon):
    """What clip_grad_norm_ multiplies gradients of this norm by; it knows one epsilon alone."""
    if epsilon != 1e-6:
        return (most / (norm + epsilon)).clamp(max=1)
    p = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    p.grad = norm.reshape(1).clone()
    torch.nn.utils.clip_grad_norm_([p], most)
    return (p.grad / norm).reshape(())


def compare(d):
    scaling, stepped = d.cycle(("none", "static", "dynamic")), d.maybe()
    most, epsilon, interval = d.choice((0.5, 3, 100)), d.choice((1e-6, 1e-6, 0.25)), d.choice((1, 5, 2000))
    growth, backoff = d.choice((2, 1.5)), 0.5
    fields = dict(max_norm=most, epsilon=epsilon, scaling=scaling, growth=growth, backoff=backoff, interval=interval,
                  stepped=stepped)
    inputs = {"squares": d.array(d.shape(0, 4, most=300), 0.1, 4)}
    if scaling != "none":
        inputs["scale"] = numpy.asarray(float(2 ** d.randint(0, 16)))
    if scaling == "dynamic":
        inputs["good"] = numpy.asarray(d.randint(0, 6), "<i8")
    if stepped:
        inputs["step"] = numpy.asarray(d.randint(0, 1000), "<i8")

    def scaled(squares, *rest):
        rest = list(rest)
        scale = rest.pop(0) if scaling != "none" else torch.ones((), dtype=torch.float64)
        norm = squares.sum().sqrt() / scale
        factor = factor_of(norm, most, epsilon) / scale if squares.numel() else 1 / scale
        results = [factor, norm]
        if scaling == "dynamic":
            grown = int(rest.pop(0)) + 1 >= interval
            good = int(inputs["good"]) + 1
            results += [scale * (growth if grown else 1), torch.tensor(0 if grown else good)]
        if stepped:
            results.append(rest.pop(0) + 1)
        return tuple(results)

    names = ["factor", "norm"] + (["new_scale", "new_good"] if scaling == "dynamic" else [])
    return Case(fields, inputs, scaled, "torch.nn.utils.clip_grad_norm_" if epsilon == 1e-6 else None,
                outputs=tuple(names + (["new_step"] if stepped else [])), gradient=(), dtypes=("f64", "f32"))
