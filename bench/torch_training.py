# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Which of torch's own kernels stand for optimizers and losses; see torch_kernels.py.
"""
import torch
from torch_fields import Skip


# ---- optimizers ----


def parameter(shape, make, fields):
    """A parameter with its gradient."""
    p = make(shape)
    if p.dtype not in (torch.float32, torch.float64) or fields["copy"] != "none":
        raise Skip("torch's optimizers have no gradients of 16 bits beside wider parameters")
    if fields["scaled"] == "true" or fields["gradient.regularization"] != "none":
        raise Skip("torch is asked for plain steps alone")
    p.grad = make(shape)
    return p


def quickest(tries):
    """The first of several forms that this torch has for this device."""
    for attempt in tries:
        try:
            attempt()
            return attempt
        except (AttributeError, NotImplementedError, RuntimeError, TypeError):
            continue
    raise Skip("this torch has no such optimizer")


OPTIMIZERS = {}


def step_of(kind, p, form, options):
    """One step of an optimizer of torch.optim, which is made once."""
    key = (kind, id(p), tuple(form))
    if key not in OPTIMIZERS:
        OPTIMIZERS.clear()
        OPTIMIZERS[key] = kind([p], **form, **options)
    OPTIMIZERS[key].step()


def sgd(fields, shapes, make, gradient):
    p = parameter(shapes[0], make, fields)
    options = dict(lr=1e-3, momentum=float(fields["momentum"]), nesterov=fields["nesterov"] == "true")
    forms = ({"fused": True}, {"foreach": True}, {})
    return quickest([lambda form=form: step_of(torch.optim.SGD, p, form, options) for form in forms])


def rmsprop(fields, shapes, make, gradient):
    p = parameter(shapes[0], make, fields)
    options = dict(lr=1e-3, alpha=float(fields["decay"]), eps=float(fields["epsilon"]))
    options.update(momentum=float(fields["momentum"]), centered=fields["centered"] == "true")
    kind = torch.optim.RMSprop
    return quickest([lambda form=form: step_of(kind, p, form, options) for form in ({"foreach": True}, {})])


def adam(fields, shapes, make, gradient):
    """torch's fused kernel itself where there is one, without what torch.optim does around it."""
    p = parameter(shapes[0], make, fields)
    m, v, t = torch.zeros_like(p), torch.zeros_like(p), torch.ones((), device=p.device)
    amsgrad, decay = fields["amsgrad"] == "true", float(fields["decay"])
    betas, epsilon = (float(fields["beta1"]), float(fields["beta2"])), float(fields["epsilon"])
    largest = [torch.zeros_like(p)] if amsgrad else []

    def fused():
        function = torch._fused_adam_ if decay == 0 else torch._fused_adamw_
        function([p], [p.grad], [m], [v], largest, [t], lr=1e-3, beta1=betas[0], beta2=betas[1], weight_decay=decay,
                 eps=epsilon, amsgrad=amsgrad, maximize=False)

    kind = torch.optim.Adam if decay == 0 else torch.optim.AdamW
    options = dict(lr=1e-3, betas=betas, eps=epsilon, weight_decay=decay, amsgrad=amsgrad)
    forms = [lambda form=form: step_of(kind, p, form, options) for form in ({"foreach": True}, {})]
    return quickest([fused] + forms)


def grad_norm(fields, shapes, make, gradient):
    x = make(shapes[0])
    return lambda: torch.linalg.vector_norm(x, dtype=torch.float32 if x.dtype != torch.float64 else None)


# ---- losses ----


LOSSES = {
    "mean_squared": torch.nn.functional.mse_loss,
    "sigmoid_cross_entropy": torch.nn.functional.binary_cross_entropy_with_logits,
    "softmax_cross_entropy": torch.nn.functional.cross_entropy,
}


def loss(fields, shapes, make, gradient):
    """With the gradient as an output: forward and backward, one after the other."""
    if gradient or fields["gradient_output"] != "true" or fields["weights"] == "true":
        raise Skip("torch is asked for loss and gradient together, without weights")
    if fields["kind"] not in LOSSES or fields["across_batch"] != "true":
        raise Skip("torch is not asked for this loss")
    y = make(shapes[0]).requires_grad_()
    if fields["labels"] == "classes":
        t = torch.randint(0, shapes[0][-1], shapes[1], device=y.device)
    else:
        t = make(shapes[1]).sigmoid()
    reduction, function = fields["reduction"], LOSSES[fields["kind"]]
    ones = torch.ones_like(function(y, t, reduction=reduction).detach())

    def both():
        with torch.enable_grad():
            return torch.autograd.grad(function(y, t, reduction=reduction), y, ones)

    return both
