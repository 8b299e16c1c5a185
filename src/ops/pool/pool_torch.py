# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Pooling beside torch's, and beside F.unfold for paddings, edges and counts that torch's pooling does not have."""
import torch
import torch.nn.functional as F
from torch_draw import Beyond, Case, by_policy, channels_last, channels_second


def compare(d):
    kind = d.cycle(("max", "average", "l2"))
    shape = d.image()
    g = Geometry(d, kind, shape)
    plain = g.plain(d) if d.maybe(0.5) else None
    if plain is None:
        g.draw(d)
    x = d.some(shape) if kind == "max" else d.array(shape)
    if plain is not None:
        return Case(g.fields, {"x": x}, lambda x: channels_last(plain(channels_second(x)), len(shape)), "F.*_pool2d",
                    exact=kind == "max")
    return Case(g.fields, {"x": x}, lambda x: channels_last(g.pooled(channels_second(x)), len(shape)),
                exact=kind == "max", zero=("x",) if kind == "max" and g.edge == "zero" else ())


class Geometry:
    """Where the windows lie; entry 0 is about rows, entry 1 about columns."""

    def __init__(self, d, kind, shape):
        self.kind, self.size = kind, shape[-3:-1]
        self.window, self.stride, self.dilation = d.pair(1, 4), d.pair(1, 3), [1, 1]
        if d.maybe(0.3):
            self.dilation = d.pair(1, 3)
        self.edge, self.ceil, self.include, self.zero_pad = "zero", False, False, [0, 0]
        self.fields = {"kind": kind, "window": self.window, "stride": self.stride, "dilation": self.dilation}

    def spans(self):
        return [(k - 1) * a + 1 for k, a in zip(self.window, self.dilation)]

    def plain(self, d):
        """What torch's own pooling can do."""
        self.edge = self.fields["edge"] = "clamp" if self.kind == "max" else d.choice(("zero", "clamp"))
        if self.kind != "max":
            self.dilation[:] = [1, 1]
        pad = [0, 0] if self.kind == "l2" else [d.randint(0, k // 2) for k in self.window]
        if any(n + 2 * p < span for n, p, span in zip(self.size, pad, self.spans())):
            raise Beyond("a window that does not fit")
        self.ceil = self.fields["ceil_mode"] = self.kind != "l2" and self.edge == "clamp" and d.maybe(0.3)
        self.fields.update({"padding.top": pad[0], "padding.bottom": pad[0], "padding.left": pad[1],
                            "padding.right": pad[1]})
        if self.kind == "max":
            return lambda x: F.max_pool2d(x, self.window, self.stride, pad, self.dilation, self.ceil)
        if self.kind == "l2":
            return lambda x: F.lp_pool2d(x, 2, self.window, self.stride)
        include = self.edge == "zero" or d.maybe()
        if self.edge == "clamp":
            self.fields["count_include_pad"] = include
        return lambda x: F.avg_pool2d(x, self.window, self.stride, pad, self.ceil, include)

    def draw(self, d):
        """Any padding, by numbers or by policy."""
        self.edge = self.fields["edge"] = d.choice(("zero", "clamp"))
        policy = d.choice(("explicit", "explicit", "valid", "same", "full", "same_upper", "same_lower"))
        self.fields["padding.policy"] = policy
        if policy == "explicit":
            self.explicit(d)
        else:
            self.by_policy(d, policy)
        if self.kind == "average" and self.edge == "clamp":
            if d.maybe():
                self.include = self.fields["count_include_pad"] = True
            else:
                self.zero_pad = self.fields["zero_pad"] = d.pair(0, 2)

    def explicit(self, d):
        self.before, self.after = d.pair(-2, 4), d.pair(-2, 4)
        self.fields.update({"padding.top": self.before[0], "padding.bottom": self.after[0],
                            "padding.left": self.before[1], "padding.right": self.after[1]})
        self.ceil = self.fields["ceil_mode"] = d.maybe(0.3)
        self.count = []
        for n, before, after, span, s in zip(self.size, self.before, self.after, self.spans(), self.stride):
            room = before + n + after - span
            if room < 0:
                raise Beyond("a window that does not fit")
            count = room // s + 1
            # one more that is not whole, if it begins in the image or before it
            self.count.append(count + (self.ceil and room % s > 0 and count * s < before + n))
        if d.maybe(0.2):
            self.count = self.fields["output"] = [max(1, count + d.randint(-1, 2)) for count in self.count]

    def by_policy(self, d, policy):
        fields, self.count, self.before, self.after = by_policy(d, policy, self.size, self.spans(), self.stride)
        self.fields.update(fields)

    # ---- by F.unfold ----

    def taps(self, x, margin=(0, 0)):
        """(n, c, taps, windows) of an image that has a margin around it already."""
        n, c, h, w = x.shape
        before = [p - m for p, m in zip(self.before, margin)]
        after = [(count - 1) * s + span - size - p for count, s, span, size, p in
                 zip(self.count, self.stride, self.spans(), (h, w), before)]
        if h + min(before[0], 0) + min(after[0], 0) < 1 or w + min(before[1], 0) + min(after[1], 0) < 1:
            raise Beyond("windows of which none touches the image")
        padded = F.pad(x, (before[1], after[1], before[0], after[0]))
        flat = F.unfold(padded.reshape(n * c, 1, *padded.shape[2:]), self.window, self.dilation, 0, self.stride)
        return flat.reshape(n, c, self.window[0] * self.window[1], -1)

    def counted(self, x):
        """How many taps of each window make its N, of an average."""
        if self.edge == "zero":
            return self.window[0] * self.window[1]
        low, high = self.zero_pad, self.zero_pad
        if self.include:
            low, high = [max(p, 0) for p in self.before], [max(p, 0) for p in self.after]
        ones = torch.ones(1, 1, x.shape[2] + low[0] + high[0], x.shape[3] + low[1] + high[1], dtype=x.dtype)
        return self.taps(ones, low).sum(2).clamp(min=1)

    def pooled(self, x):
        if x.shape[0] == 0:
            return x.new_zeros(0, x.shape[1], *self.count) + x.sum()
        taps = self.taps(x)
        inside = self.taps(torch.ones_like(x)) > 0
        some = inside.any(2) if self.edge == "clamp" or self.kind != "max" else torch.ones_like(taps[:, :, 0]) > 0
        if self.kind == "max":
            if self.edge == "clamp":
                taps = torch.where(inside, taps, torch.full_like(taps, -torch.inf))
            y = taps.gather(2, taps.argmax(2, keepdim=True))[:, :, 0]
        elif self.kind == "average":
            y = taps.sum(2) / self.counted(x)
        else:
            squares = (taps * taps).sum(2)
            y = torch.where(some, squares, torch.ones_like(squares)).sqrt()
        return torch.where(some, y, torch.zeros_like(y)).reshape(*x.shape[:2], *self.count)
