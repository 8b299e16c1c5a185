# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Transposed convolution beside torch's; the layout of MPS with weights that are rotated first."""
import torch.nn.functional as F
from torch_draw import Beyond, Case, channels_last, channels_second, neuron


def compare(d):
    shape = d.image(8)
    channels = shape[-1]
    groups = d.choice([g for g in range(1, channels + 1) if channels % g == 0])
    each = d.choice((1, 2, 3, 5))
    if d.maybe(0.3):
        groups, each = 1, d.choice((1, 3, 8, 17))
    out = groups * each
    mps = d.maybe()
    window, stride, dilation = d.pair(1, 4), d.pair(1, 3), [1, 1]
    if d.maybe(0.3):
        dilation = d.pair(1, 3)
    spans = [(k - 1) * a + 1 for k, a in zip(window, dilation)]
    before, after = d.pair(-1, 2), d.pair(-1, 2)
    whole = [(n - 1) * s + span for n, s, span in zip(shape[-3:-1], stride, spans)]
    size = [w - b - a for w, b, a in zip(whole, before, after)]
    if min(size) < 1:
        raise Beyond("nothing is left")
    fields, function = neuron(d)
    bias = d.maybe(0.7)
    fields.update({"layout": "out_in" if mps else "in_out", "groups": groups, "stride": stride, "dilation": dilation,
                   "bias": bias})
    if mps and d.maybe(0.3):  # before by the offset, what is behind by the size
        fields.update({"by_offset": True, "output": size,
                       "kernel_offset": [b - (span - 1) + span // 2 for b, span in zip(before, spans)]})
    else:
        fields.update({"padding.top": before[0], "padding.bottom": after[0], "padding.left": before[1],
                       "padding.right": after[1]})
    most = (window[0] * window[1] * channels / groups) ** -0.5 if "neuron.kind" in fields else 1
    dims = (out, *window, channels // groups) if mps else (channels, *window, each)
    inputs = {"x": d.array(shape), "w": d.array(dims, -most, most)}
    if bias:
        inputs["b"] = d.array((out,), -1, 1)

    def run(x, w, b=None):
        if mps:  # (out, kh, kw, in / groups) to (in, out / groups, kh, kw), rotated
            parts = w.flip(1, 2).reshape(groups, each, *window, channels // groups)
            weights = parts.permute(0, 4, 1, 2, 3).reshape(channels, each, *window)
        else:
            weights = w.permute(0, 3, 1, 2)
        y = F.conv_transpose2d(channels_second(x).contiguous(), weights.contiguous(), None, stride, 0, 0, groups,
                               dilation)
        y = F.pad(y, (-before[1], -after[1], -before[0], -after[0]))
        return channels_last(function(y if b is None else y + b[:, None, None]), len(shape))

    return Case(fields, inputs, run, "F.conv_transpose2d", zero=("x", "w"))
