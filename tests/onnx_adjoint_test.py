# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Gradients of ONNX's operators that ONNX Runtime has no kernel for, or that its CPU build lacks: ConvGrad with auto_pad,
ConvTransposeGrad, ResizeGrad, PadGrad. Their forward passes F are linear, so that the exact gradient is the transpose:
the sum of dY F(X) is that of dX X for every X, and likewise for W. F is compared with ONNX Runtime elsewhere."""
import itertools
import os
import random
import sys
import unittest

import cli_case
from cli_case import ProgramTest, load, save

SEEDS = range(int(os.environ.get("RG_SEEDS", "12")))


def count(shape):
    total = 1
    for dim in shape:
        total *= dim
    return total


def inner(a, b):
    return sum(x * y for x, y in zip(a, b))


class AdjointTest(ProgramTest):
    def array(self, d, name, shape):
        values = [d.uniform(-1, 1) for _ in range(count(shape))]
        save(self.path(name + ".npy"), shape, values, "<f8")
        return values

    def run_op(self, name, attributes, inputs, results):
        """Runs an operator on arrays by their names; the results that are asked for."""
        words = [word for key, value in attributes.items()
                 for word in ("--" + key, ",".join(map(str, value)) if isinstance(value, tuple) else str(value))]
        files = [f"{key}={self.path(key + '.npy')}" for key in inputs]
        outputs = [word for key in results for word in ("-o", f"{key}={self.path(key + '.npy')}")]
        self.works("op", name, *words, *files, *outputs)
        return [load(self.path(key + ".npy"))[:2] for key in results]

    def check(self, name, attributes, x, w=None, input_name="X", output="Y", extra=(), more=None):
        """`x`, `w`: shapes; `extra`: inputs of the gradient beside dY and W; `more`: its own attributes."""
        for seed in (1, 2):
            d = random.Random(seed)
            files = [input_name] + (["W"] if w else [])
            x_values = self.array(d, input_name, x)
            w_values = self.array(d, "W", w) if w else None
            (shape, y), = self.run_op(name, attributes, files, [output])
            dy = self.array(d, "dY", shape)
            results = ["dX"] + (["dW", "dB"] if w else [])
            made = self.run_op(name + "Grad", {**attributes, **(more or {})}, ["dY", *extra] + (["X", "W"] if w else []),
                               results)
            total = inner(dy, y)
            size = sum(abs(a * b) for a, b in zip(dy, y)) + 1
            self.assertEqual(made[0][0], x)
            self.assertLess(abs(inner(made[0][1], x_values) - total), 1e-12 * size)
            if w:
                self.assertEqual(made[1][0], w)
                self.assertLess(abs(inner(made[1][1], w_values) - total), 1e-12 * size)
                plane = count(shape[2:])
                for c in range(shape[1]):
                    own = sum(sum(dy[(n * shape[1] + c) * plane:(n * shape[1] + c + 1) * plane]) for n in range(shape[0]))
                    self.assertLess(abs(made[2][1][c] - own), 1e-12 * (count(shape) + 1))
            if not w:  # another X, which the gradient has not seen
                again = self.array(random.Random(seed + 10), input_name, x)
                (_, y), = self.run_op(name, attributes, files, [output])
                self.assertLess(abs(inner(made[0][1], again) - inner(dy, y)), 1e-12 * size)

    def test_conv(self):
        for seed, auto in itertools.product(SEEDS, ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")):
            d = random.Random(seed * 4 + len(auto))
            rank, group = d.choice((1, 2, 2)), d.choice((1, 1, 2, 3))
            kernel = tuple(d.randint(1, 4) for _ in range(rank))
            attributes = {"auto_pad": auto, "group": group, "strides": tuple(d.randint(1, 3) for _ in range(rank))}
            dilations = tuple(d.randint(1, 2) for _ in range(rank))
            if auto in ("VALID", "NOTSET") or all(s == 1 for s in attributes["strides"]):
                attributes["dilations"] = dilations
            if auto == "NOTSET":
                attributes["pads"] = tuple(d.randint(0, 2) for _ in range(2 * rank))
            x = (2, group * d.randint(1, 2), *(d.randint(7, 9) for _ in range(rank)))
            w = (group * d.randint(1, 2), x[1] // group, *kernel)
            with self.subTest(auto=auto, seed=seed, attributes=attributes, x=x, w=w):
                self.check("Conv", attributes, x, w)

    def test_conv_transpose(self):
        for seed in SEEDS:
            d = random.Random(seed)
            rank, group = d.choice((1, 2, 2)), d.choice((1, 1, 2))
            kernel = tuple(d.randint(1, 4) for _ in range(rank))
            attributes = {"group": group, "strides": tuple(d.randint(1, 3) for _ in range(rank)),
                          "dilations": tuple(d.randint(1, 2) for _ in range(rank))}
            form = d.choice(("pads", "pads", "auto", "none", "shape"))
            x = (2, group * d.randint(1, 2), *(d.randint(3, 5) for _ in range(rank)))
            if form == "pads":
                attributes["pads"] = tuple(d.randint(0, 1) for _ in range(2 * rank))
                attributes["output_padding"] = tuple(d.randint(0, s - 1) for s in attributes["strides"])
            elif form == "auto":
                attributes["auto_pad"] = d.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
            elif form == "shape":
                attributes["output_shape"] = tuple((n - 1) * s + 1 for n, s in zip(x[2:], attributes["strides"]))
            w = (x[1], d.randint(1, 2), *kernel)
            with self.subTest(seed=seed, attributes=attributes, x=x, w=w):
                self.check("ConvTranspose", attributes, x, w)

    def test_resize(self):
        grids = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        for seed, mode in itertools.product(SEEDS, ("linear", "nearest")):
            d = random.Random(seed)
            attributes = {"mode": mode, "coordinate_transformation_mode": d.choice(grids)}
            if mode == "nearest":
                attributes["nearest_mode"] = d.choice(("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
                attributes["coordinate_transformation_mode"] = d.choice(grids[:2])
            rank = d.choice((1, 2, 2))
            x = (2, 2, *(d.randint(2, 6) for _ in range(rank)))
            attributes["scales"] = (1, 1, *(d.choice((0.5, 1, 1.5, 2, 3)) for _ in range(rank)))
            with self.subTest(seed=seed, attributes=attributes, x=x):
                self.check("Resize", attributes, x, extra=["X"])

    def test_pad(self):
        for seed in SEEDS:
            d = random.Random(seed)
            shape = tuple(d.randint(3, 5) for _ in range(d.randint(1, 4)))
            attributes = {"mode": d.choice(("constant", "reflect", "edge", "wrap", "wrap"))}
            axes = sorted(d.sample(range(len(shape)), d.randint(1, len(shape))))
            if d.random() < 0.5:
                attributes["axes"] = tuple(axes)
            padded = len(attributes.get("axes", shape))
            low = 0 if attributes["mode"] == "reflect" else -1
            high = 2 if attributes["mode"] != "wrap" else 11  # more than once around
            attributes["pads"] = tuple(d.randint(low, high) for _ in range(2 * padded))
            with self.subTest(seed=seed, attributes=attributes, shape=shape):
                self.check("Pad", attributes, shape, input_name="data", output="output")

    def test_pad_volumes(self):
        """Of more than four dimensions, of which a few or all are padded."""
        for mode in ("constant", "reflect", "edge", "wrap"):
            for axes in ((2, 3, 4), (0, 5), (1, -3), (0, 1, 2, 3, 4)):
                attributes = {"mode": mode, "axes": axes, "pads": (1, 0, 2, 1, 0)[:len(axes)] + (1,) * len(axes)}
                with self.subTest(mode=mode, axes=axes):
                    self.check("Pad", attributes, (5, 3, 4, 3, 5, 3), input_name="data", output="output")


if __name__ == "__main__":
    cli_case.PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
