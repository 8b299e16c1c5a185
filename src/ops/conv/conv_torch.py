# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Convolution beside torch's, with the padding made by F.pad."""
import torch.nn.functional as F
from torch_draw import Beyond, Case, by_policy, channels_last, channels_second, neuron


def compare(d):
    shape = d.image()
    channels = shape[-1]
    groups = d.choice([g for g in range(1, channels + 1) if channels % g == 0])
    out = groups * d.choice((1, 2, 3, 5))
    if d.maybe(0.3):
        groups, out = 1, d.choice((1, 3, 8, 17, 34))
    g = Geometry(d, shape[-3:-1])
    fields, function = neuron(d)
    bias = d.maybe(0.7)
    fields.update(g.fields, bias=bias, groups=0 if groups == channels and d.maybe() else groups)
    # with a neuron sums stay small: where it is flat all that is left of a slope in 16 bits is rounding
    most = (g.window[0] * g.window[1] * channels / groups) ** -0.5 if "neuron.kind" in fields else 1
    inputs = {"x": d.array(shape), "w": d.array((out, *g.window, channels // groups), -most, most)}
    if bias:
        inputs["b"] = d.array((out,), -1, 1)

    def torch(x, w, b=None):
        weights = w.permute(0, 3, 1, 2).contiguous()
        y = F.conv2d(g.padded(channels_second(x)).contiguous(), weights, b, g.stride, 0, g.dilation, groups)
        return channels_last(function(y[:, :, :g.count[0], :g.count[1]]), len(shape))

    return Case(fields, inputs, torch, "F.conv2d", zero=("x", "w"))


class Geometry:
    """Where the windows lie; entry 0 is about rows, entry 1 about columns."""

    def __init__(self, d, size):
        self.size = size
        self.window, self.stride, self.dilation = d.pair(1, 4), d.pair(1, 3), [1, 1]
        if d.maybe(0.3):
            self.dilation = d.pair(1, 3)
        self.spans = [(k - 1) * a + 1 for k, a in zip(self.window, self.dilation)]
        self.fields = {"stride": self.stride, "dilation": self.dilation}
        policy = d.choice(("explicit", "explicit", "explicit", "valid", "same", "full", "same_upper", "same_lower"))
        self.fields["padding.policy"] = policy
        if policy == "explicit":
            self.explicit(d)
        else:
            self.by_policy(d, policy)

    def explicit(self, d):
        self.before, after = d.pair(-2, 4), d.pair(-2, 4)
        self.fields.update({"padding.top": self.before[0], "padding.bottom": after[0],
                            "padding.left": self.before[1], "padding.right": after[1]})
        room = [b + n + a - span for b, n, a, span in zip(self.before, self.size, after, self.spans)]
        if min(room) < 0:
            raise Beyond("a window that does not fit")
        self.count = [r // s + 1 for r, s in zip(room, self.stride)]
        if d.maybe(0.2):
            self.count = self.fields["output"] = [max(1, count + d.randint(-1, 2)) for count in self.count]

    def by_policy(self, d, policy):
        fields, self.count, self.before, _ = by_policy(d, policy, self.size, self.spans, self.stride)
        self.fields.update(fields)

    def padded(self, x):
        """(n, c, h, w) with zeros around it, or less of it, so that the windows fit exactly."""
        reach = [(count - 1) * s + span for count, s, span in zip(self.count, self.stride, self.spans)]
        after = [r - n - b for r, n, b in zip(reach, self.size, self.before)]
        for b, n, a in zip(self.before, self.size, after):
            if n + min(b, 0) + min(a, 0) < 1:
                raise Beyond("windows of which none touches the image")
        return F.pad(x, (self.before[1], after[1], self.before[0], after[0]))
