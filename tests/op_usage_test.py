# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Every line that `retrograde op --list` and `op NAME --help` print runs as it is printed: FILE is replaced by files of
fitting shapes, brackets are opened or left out, and nothing else is added but attributes that a line names."""
import os
import re
import sys
import unittest

import cli_case
from cli_case import ProgramTest, load, save

# Shapes of an op's own tensors. `images` where a class of MPS takes images, `matrices` where it takes matrices.
IMAGE, MATRIX, CHANNELS = (2, 6, 6, 4), (3, 4), (4,)
TENSORS = {
    "x": IMAGE, "y": IMAGE, "a": IMAGE, "b": IMAGE, "x0": IMAGE, "x1": IMAGE, "slope": CHANNELS, "gamma": CHANNELS,
    "beta": CHANNELS, "mean": CHANNELS, "variance": CHANNELS, "labels": IMAGE, "weights": IMAGE, "parameter": CHANNELS,
    "gradient": CHANNELS, "momentum": CHANNELS, "velocity": CHANNELS, "maximum": CHANNELS, "rate": (), "step": (),
    "squares": CHANNELS, "scale": (), "good": (),
}
SPECIAL = {
    "conv": {"w": (4, 3, 3, 4), "b": CHANNELS},
    "conv_transpose": {"w": (4, 3, 3, 4), "b": CHANNELS},
    "dense": {"w": (5, 6, 6, 4), "b": (5,)},
    "matmul": {"a": (3, 3), "b": (3, 3)},
}
MATRICES = {"x": MATRIX, "w": (4, 4), "b": CHANNELS, "a": MATRIX}
VECTOR = {"MPSMatrixVectorMultiplication": {"x": (4,), "w": (3, 4)}}

# Inputs of ONNX's operators and the attributes that they need.
N, IMG, POOLED = (2, 3, 4), (1, 2, 6, 6), (1, 2, 5, 5)
ONNX_INPUTS = {
    "X": N, "input": N, "data": N, "dY": N, "Y": N, "Y_grad": N, "slope": (4,), "A": (3, 3), "B": (3, 3), "C": (3,),
    "bias": (4,), **{f"inputs{i}": N for i in range(8)},
}
LOSS = {"scores": (2, 3, 4), "input": (2, 3, 4), "log_prob": (2, 3, 4), "labels": "labels", "target": "labels",
        "label": "labels", "weights": (3,), "weight": (3,), "dY": ()}
NORM = {"X": IMG, "input": IMG, "dY": IMG, "scale": (2,), "B": (2,), "bias": (2,), "input_mean": (2,), "input_var": (2,),
        "mean": (2,), "variance": (2,)}
CONV = {"X": IMG, "W": (2, 2, 2, 2), "B": (2,), "dY": POOLED}
POOL = {"X": IMG, "dY": POOLED, "Indices": "indices"}
ADAM = {"R": (), "T": "step", "X": (4,), "G": (4,), "V": (4,), "H": (4,)}
OPERATORS = {
    "Conv": (CONV, ""), "ConvGrad": (CONV, ""), "ConvTranspose": (CONV, ""),
    "ConvTransposeGrad": ({**CONV, "dY": (1, 2, 7, 7)}, ""),
    "MaxPool": (POOL, "--kernel_shape 2,2"), "AveragePool": (POOL, "--kernel_shape 2,2"),
    "LpPool": (POOL, "--kernel_shape 2,2"), "MaxPoolGrad": (POOL, "--kernel_shape 2,2"),
    "AveragePoolGrad": (POOL, "--kernel_shape 2,2"),
    "BatchNormalization": (NORM, "--training_mode"), "BatchNormInternal": (NORM, ""),
    "BatchNormalizationGrad": (NORM, ""), "InstanceNormalization": (NORM, ""),
    "GroupNormalization": (NORM, "--num_groups 2"), "LRN": (NORM, "--size 3"),
    "LayerNormalization": ({"X": N, "Scale": (4,), "B": (4,)}, ""),
    "LayerNormalizationGrad": ({"Y_grad": N, "X": N, "scale": (4,), "mean": (2, 3, 1), "inv_std_dev": (2, 3, 1)}, ""),
    "SoftmaxCrossEntropyLoss": (LOSS, ""), "SoftmaxCrossEntropyLossGrad": (LOSS, ""),
    "NegativeLogLikelihoodLoss": (LOSS, ""), "Dropout": ({"data": N}, ""), "DropoutGrad": ({"dY": N, "mask": N}, ""),
    "Reshape": ({}, "--shape -1"), "Slice": ({}, "--starts 1 --ends 2"),
    "SliceGrad": ({"dY": (1, 3, 4)}, "--shape 2,3,4 --starts 1 --ends 2"),
    "Concat": ({}, "--axis 0"), "ConcatTraining": ({}, "--axis 0"), "Split": ({"input": (8, 3)}, ""),
    "Pad": ({}, "--pads 0,0,1,0,0,1"), "PadGrad": ({}, "--pads 0,0,1,0,0,1"),
    "Resize": ({"X": IMG}, "--scales 1,1,2,2"), "ResizeGrad": ({"X": IMG, "dY": (1, 2, 12, 12)}, "--scales 1,1,2,2"),
    "Adam": (ADAM, ""), "DivGrad": ({"dY": (3, 3)}, ""),
    "Momentum": (ADAM, "--alpha 0.9 --beta 1 --norm_coefficient 0 --mode standard"),
}


def numbers(shape):
    count = 1
    for dim in shape:
        count *= dim
    return [0.3 + (i * 37 % 101) / 100 for i in range(count)]


class UsageTest(ProgramTest):
    def place(self, name, shape):
        path = self.path(name + ".npy")
        if shape == "labels":
            save(path, (2, 4), [0, 1, 2, 0, 1, 2, 0, 1], "<i8")
        elif shape == "indices":
            save(path, POOLED, [c * 36 + i * 6 + j for c in range(2) for i in range(5) for j in range(5)], "<i8")
        elif shape == "step":
            save(path, (), [1], "<i8")
        else:
            save(path, shape, numbers(shape))
        return path

    def run_line(self, words, shapes):
        """Runs the words of a line; `shapes` has what stands for FILE, by the names of the line."""
        arguments, is_result = [], False
        for word in words:
            if word.endswith("=FILE"):
                name = word[:-5]
                if is_result:
                    arguments.append(f"{name}={self.path('out_' + name + '.npy')}")
                else:
                    self.assertIn(name, shapes, f"{' '.join(words)}: no shape for {name}")
                    arguments.append(f"{name}={self.place(name, shapes[name])}")
            else:
                arguments.append(word)
            is_result = word == "-o"
        self.works("op", *arguments)

    def own_shapes(self, op, matrices, name=""):
        return {**TENSORS, **SPECIAL.get(op, {}), **(MATRICES if matrices else {}), **VECTOR.get(name, {}),
                **({"step": "step"} if op in ("adam", "dropout") else {})}

    def forward_shapes(self, op, fields, shapes):
        """The shapes of the op's outputs."""
        text = self.works("op", op, *fields, "--help").stdout
        line = next(line for line in text.splitlines() if line.startswith("usage:"))
        words = line.split("...")[1].split()
        self.run_line([op, *fields, *words], shapes)
        names = [w[:-5] for i, w in enumerate(words) if i > 0 and words[i - 1] == "-o"]
        return {n: load(self.path(f"out_{n}.npy"))[0] for n in names}

    def test_ops(self):
        listed = [line.split(":")[0] for line in self.works("op", "--list").stdout.splitlines() if line[0] != " "]
        self.assertGreater(len(listed), 25)
        for op in listed:
            with self.subTest(op):
                shapes = self.own_shapes(op, False)
                results = self.forward_shapes(op, [], shapes)
                lines = self.works("op", op, "--help").stdout.splitlines()
                if " --gradient " not in lines[1]:
                    continue
                shapes = {**shapes, **{"d" + n: s for n, s in results.items()}, **results}
                shapes.update({n: TENSORS[n] for n in ("y",) if op == "loss"})
                self.run_line([op, *lines[1].split("op " + op)[1].replace("[--FIELD VALUE]...", "").split()], shapes)

    def test_mps(self):
        names = [line.split() for line in self.works("op", "--list").stdout.splitlines() if " MPS: " in line]
        self.assertGreater(len(names), 90)
        op = None
        for line in self.works("op", "--list").stdout.splitlines():
            if line[0] != " ":
                op = line.split(":")[0]
                continue
            if " MPS: " not in line:
                continue
            name, direction = line.split()[:2]
            with self.subTest(name):
                text = self.works("op", name, "--help").stdout
                found = re.search(r"^this name: .*, with (.*); (.*)$", text, re.M)
                fields = found.group(1).split() if "=" in found.group(1) else []
                fields = [part for f in fields for part in ("--" + f.split("=")[0], f.split("=")[1])]
                mapping = dict(m.split("=") for m in found.group(2).split())
                shapes = self.own_shapes(op, "Matrix" in name and "Gram" not in name, name)
                results = self.forward_shapes(op, fields, shapes)
                if direction == "gradient":
                    shapes = {**shapes, **results, **{"d" + n: s for n, s in results.items()}}
                    shapes.update({n: TENSORS[n] for n in ("y",) if op == "loss"})
                shapes.update({theirs: shapes[own] for theirs, own in mapping.items() if own in shapes})
                self.run_line([name, *line.split(" MPS: ")[1].split()], shapes)
                usage = next(part for part in text.splitlines() if part.startswith("usage:"))
                self.run_line([name, *usage.split("...")[1].split()], shapes)

    def test_onnx(self):
        lines = [line for line in self.works("op", "--list").stdout.splitlines()
                 if re.search(r" (ai\.onnx|com\.microsoft|ai\.onnx\.preview\.training): ", line)]
        self.assertGreater(len(lines), 70)
        for line in lines:
            name, rest = line.split()[0], line.split(": ", 1)[1]
            shapes, attributes = OPERATORS.get(name, ({}, ""))
            shapes = {**ONNX_INPUTS, **shapes}
            usage = self.works("op", name, "--help").stdout.splitlines()[0].split("op " + name, 1)[1]
            for text in (rest, usage):
                for words in (re.sub(r"\[.*?\]", "", text), text.replace("[", "").replace("]", "")):
                    with self.subTest(name, words=words):
                        self.run_line([name, *self.filled(words.split(), attributes.split())], shapes)

    def filled(self, words, attributes):
        """The words of a line, with values for N,… and VALUE; no other attribute is added but training_mode, without
        which some of the results that a line names do not exist."""
        values = dict(zip(attributes[::2], attributes[1::2]))
        line = []
        for i, word in enumerate(words):
            if word in ("N,…", "VALUE"):
                self.assertIn(words[i - 1], values, "a value for the test")
                line.append(values[words[i - 1]])
            else:
                line.append(word)
        self.assertEqual([a for a in values if a not in words], [], "the line lacks them")
        return line + attributes[len(values) * 2:]

    def result(self, *arguments):
        """The elements of the result that is written to out.npy."""
        self.works("op", *arguments)
        return load(self.path("out.npy"))

    def test_operands(self):
        """Operands that a gradient reads are no zeros where they are missing, and those that it does not read are."""
        for name, values in (("dy", [1.0, 2.0]), ("a", [3.0, 4.0]), ("b", [5.0, 8.0])):
            save(self.path(name + ".npy"), (1, 1, 2), values)
        dy, a, b = (f"{n}={self.path(f)}" for n, f in (("sourceGradient", "dy.npy"), ("a", "a.npy"), ("b", "b.npy")))
        image, out = "sourceImage=" + self.path("a.npy"), "destinationGradient=" + self.path("out.npy")
        gradient = ("op", "MPSCNNArithmeticGradient", "--kind", "multiply")
        self.assertEqual(self.result(*gradient[1:], dy, image, "-o", out)[1], [3, 8])
        self.assertEqual(self.result("MPSCNNMultiplyGradient", dy, image, "-o", out)[1], [3, 8])
        self.assertEqual(self.result("MPSCNNAddGradient", dy, image, "-o", out)[1], [1, 2])
        self.assertEqual(self.result("MPSCNNAddGradient", "--maximum", "8", dy, image, b, "-o", out)[1], [1, 0])
        self.refused(2, "op", "MPSCNNAddGradient", "--maximum", "1", dy, image, "-o", out, words=("reads b",))
        self.refused(2, *gradient, dy, "-o", out, words=("reads sourceImage",))
        own = ("arithmetic", "--gradient", "--kind", "divide", "dy=" + self.path("dy.npy"))
        self.assertEqual(self.result(*own, b, "-o", "da=" + self.path("out.npy"))[1], [0.20000000298023224, 0.25])
        self.refused(2, "op", *own, b, "-o", "db=" + self.path("out.npy"), words=("reads a",))
        self.refused(2, "op", *own, a, "-o", "da=" + self.path("out.npy"), words=("reads b",))
        own = ("arithmetic", "--gradient", "--kind", "multiply", "dy=" + self.path("dy.npy"))
        self.assertEqual(self.result(*own, a, "-o", "db=" + self.path("out.npy"))[1], [3, 8])
        self.refused(2, "op", *own, a, "-o", "da=" + self.path("out.npy"), words=("reads b",))

    def test_aliases(self):
        """Y stands for the X of the logarithm's gradients alone: others would differentiate at another point."""
        y, dy = "Y=" + self.place("Y", N), "dY=" + self.place("dY", N)
        for name in ("GeluGrad", "FastGeluGrad", "QuickGeluGrad", "ReluGrad", "ConvGrad", "BatchNormalizationGrad"):
            self.refused(2, "op", name, dy, y, "-o", "dX=" + self.path("out.npy"), words=("no input 'Y'",))
        for name in ("LogSoftmaxGrad", "LogSoftmaxGrad_13"):
            same = self.result(name, dy, "X=" + self.path("Y.npy"), "-o", "dX=" + self.path("out.npy"))
            self.assertEqual(self.result(name, dy, y, "-o", "dX=" + self.path("out.npy")), same)

    def test_pooling_without_x(self):
        """Where X is not given, dX has the size that windows cover to its end."""
        save(self.path("dY.npy"), (1, 1, 2, 2), [1.0, 2.0, 3.0, 4.0])
        save(self.path("i.npy"), (1, 1, 2, 2), [5, 2, 8, 15], "<i8")
        window = ("--kernel_shape", "2,2", "--strides", "2,2", "dY=" + self.path("dY.npy"))
        indices, out = "Indices=" + self.path("i.npy"), "dX=" + self.path("out.npy")
        expected = [0, 0, 2, 0, 0, 1, 0, 0, 3, 0, 0, 0, 0, 0, 0, 4]
        self.assertEqual(self.result("MaxPoolGrad", *window, indices, "-o", out)[:2], ((1, 1, 4, 4), expected))
        shape, dx, _ = self.result("AveragePoolGrad", *window, "-o", out)
        self.assertEqual((shape, dx[:4], dx[12:]), ((1, 1, 4, 4), [0.25, 0.25, 0.5, 0.5], [0.75, 0.75, 1, 1]))
        padded = self.result("AveragePoolGrad", *window, "--pads", "1,0,0,1", "-o", out)
        self.assertEqual(padded[0], (1, 1, 3, 3))
        self.refused(1, "op", "AveragePoolGrad", *window, "--auto_pad", "SAME_UPPER", "-o", out, words=("attribute shape",))

    def test_pooling_nodes(self):
        """Nodes of MPS with a size of windows alone: the stride, and the dilation of dilated ones, are that size."""
        save(self.path("x.npy"), (1, 6, 6, 1), [float(i) for i in range(36)])
        image, out = "sourceImage=" + self.path("x.npy"), "destinationImage=" + self.path("out.npy")
        shape, y, _ = self.result("MPSCNNPoolingMaxNode", "--window", "3,3", image, "-o", out)
        self.assertEqual((shape, y), ((1, 2, 2, 1), [14, 17, 32, 35]))
        for before in (("--stride", "1,1", "--window", "3,3"), ("--window", "3,3", "--stride", "1,1")):
            self.assertEqual(self.result("MPSCNNPoolingAverageNode", *before, image, "-o", out)[0], (1, 6, 6, 1))
        for policy in ((), ("--padding.policy", "valid")):
            self.assertEqual(self.result("MPSCNNPoolingMax", "--window", "3,3", *policy, image, "-o", out)[0], (1, 4, 4, 1))
        dilated = self.result("MPSCNNDilatedPoolingMaxNode", "--window", "2,2", image, "-o", out)
        same = self.result("pool", "--edge", "clamp", "--padding.policy", "same", "--window", "2,2", "--stride", "2,2",
                           "--dilation", "2,2", "x=" + self.path("x.npy"), "-o", "y=" + self.path("out.npy"))
        self.assertEqual(dilated, same)

    def test_pooling_bases(self):
        """The base classes of pooling gradients are the class that their kind says."""
        for name, shape in (("x", (1, 6, 6, 2)), ("dy", (1, 5, 5, 2))):
            save(self.path(name + ".npy"), shape, numbers(shape))
        given = ["--window", "2,2", "sourceGradient=" + self.path("dy.npy"), "sourceImage=" + self.path("x.npy"),
                 "-o", "destinationGradient=" + self.path("out.npy")]
        results = []
        for kind, name in (("max", "Max"), ("average", "Average"), ("l2", "L2Norm")):
            expected = self.result(f"MPSCNNPooling{name}Gradient", "--padding.policy", "valid", *given)
            self.assertEqual(self.result("MPSCNNPoolingGradient", "--kind", kind, "--padding.policy", "valid", *given),
                             expected)
            self.assertNotIn(expected, results)
            results.append(expected)
        self.assertEqual(self.result("MPSCNNPoolingGradient", "--padding.policy", "valid", *given), results[0])

    def test_mixed_dtypes(self):
        """A missing beta has the dtype of gamma."""
        save(self.path("x.npy"), (1, 2, 2, 4), numbers((1, 2, 2, 4)), "<f2")
        save(self.path("gamma.npy"), (4,), [1.0, 2.0, 3.0, 4.0])
        for name in ("MPSCNNBatchNormalizationGradient", "MPSCNNInstanceNormalizationGradient"):
            image = self.path("x.npy")
            self.works("op", name, "sourceGradient=" + image, "sourceImage=" + image, "gamma=" + self.path("gamma.npy"),
                       "-o", "destinationGradient=" + self.path("out.npy"), "-o", "dbeta=" + self.path("dbeta.npy"))
            self.assertEqual((load(self.path("out.npy"))[2], load(self.path("dbeta.npy"))[2]), ("<f2", "<f4"))

    def test_ways_of_typing(self):
        """Lists with brackets or spaces, numbers as Python has them, inputs that ONNX leaves without a name."""
        save(self.path("x.npy"), (1, 1, 4, 4), numbers((1, 1, 4, 4)))
        save(self.path("scales.npy"), (4,), [1.0, 1.0, 2.0, 2.0])
        x, y = "X=" + self.path("x.npy"), "Y=" + self.path("out.npy")
        expected = self.result("MaxPool", "--kernel_shape", "3,2", "--strides", "2,1", "--ceil_mode", "1", x, "-o", y)
        for kernel, strides, ceil in (("[3, 2]", "2 1", "True"), ("(3,2)", "[2 , 1]", "true"), ("3 2", " 2, 1 ", "1")):
            self.assertEqual(self.result("MaxPool", "--kernel_shape", kernel, "--strides", strides, "--ceil_mode", ceil,
                                         x, "-o", y), expected)
        self.refused(2, "op", "MaxPool", "--kernel_shape", "3,,2", x, "-o", y, words=("a list of integers",))
        scales = "scales=" + self.path("scales.npy")
        expected = self.result("Resize", x, scales, "-o", y)
        self.assertEqual(self.result("Resize", x, "roi=", scales, "sizes=", "-o", y), expected)
        self.refused(2, "op", "Resize", "X=", scales, "-o", y, words=("the input X is not optional",))
        self.refused(2, "op", "Resize", "none=", x, scales, "-o", y, words=("no input 'none'",))

    def test_last_index(self):
        """The last of equal elements; NaN wins over numbers."""
        nan, out = float("nan"), "reduced=" + self.path("out.npy")
        save(self.path("x.npy"), (3, 4), [1, 3, 3, 2, nan, 1, nan, 0, float("inf"), 0, float("inf"), 0])
        data = "data=" + self.path("x.npy")
        last = ("--select_last_index", "1", data, "-o", out)
        self.assertEqual(self.result("ArgMax", "--axis", "1", *last), ((3, 1), [2, 2, 2], "<i8"))
        self.assertEqual(self.result("ArgMin", "--axis", "-1", "--keepdims", "0", *last), ((3,), [0, 2, 3], "<i8"))
        self.assertEqual(self.result("ArgMin", "--axis", "0", *last), ((1, 4), [1, 2, 1, 2], "<i8"))
        save(self.path("long.npy"), (2100,), [1.0] * 2100, "<f2")
        self.refused(1, "op", "ArgMax", "--select_last_index", "1", "data=" + self.path("long.npy"), "-o", out,
                     words=("at most 2048 elements of f16",))

    def test_slope_of_zero(self):
        """LeakyRelu multiplies what is below 0, also by 0; Relu does not."""
        save(self.path("x.npy"), (5,), [-float("inf"), -2.0, 0.0, 3.0, float("inf")])
        x, y = "X=" + self.path("x.npy"), "Y=" + self.path("out.npy")
        leaky = self.result("LeakyRelu", "--alpha", "0", x, "-o", y)[1]
        self.assertNotEqual(leaky[0], leaky[0])
        self.assertEqual(leaky[1:], [0, 0, 3, float("inf")])
        self.assertEqual(self.result("Relu", x, "-o", y)[1], [0, 0, 0, 3, float("inf")])

    def test_of_nothing(self):
        """A maximum of no elements is -infinity, a minimum infinity."""
        save(self.path("x.npy"), (2, 0, 3), [])
        data, out = "data=" + self.path("x.npy"), "reduced=" + self.path("out.npy")
        inf = float("inf")
        self.assertEqual(self.result("ReduceMax", "--axes", "1", data, "-o", out), ((2, 1, 3), [-inf] * 6, "<f4"))
        self.assertEqual(self.result("ReduceMin", "--axes", "-2,-1", "--keepdims", "0", data, "-o", out)[:2],
                         ((2,), [inf] * 2))
        self.assertEqual(self.result("ReduceMin", data, "-o", out)[:2], ((1, 1, 1), [inf]))
        self.assertEqual(self.result("ReduceMax", "--axes", "0", data, "-o", out)[:2], ((1, 0, 3), []))

    def test_wrap(self):
        """Pixels go on around the edge, several times if need be; what is cut off does not come back."""
        save(self.path("x.npy"), (4,), [0.0, 1.0, 2.0, 3.0])
        data, out = "data=" + self.path("x.npy"), "output=" + self.path("out.npy")
        wrap = ("Pad", "--mode", "wrap", "--pads")
        self.assertEqual(self.result(*wrap, "2,3", data, "-o", out)[1], [2, 3, 0, 1, 2, 3, 0, 1, 2])
        self.assertEqual(self.result(*wrap, "5,9", data, "-o", out)[1], [3] + [0, 1, 2, 3] * 4 + [0])
        self.assertEqual(self.result(*wrap, "-1,2", data, "-o", out)[1], [1, 2, 3, 1, 2])
        save(self.path("dy.npy"), (9,), [1.0, 2, 4, 8, 16, 32, 64, 128, 256])
        dy, dx = "dY=" + self.path("dy.npy"), "dX=" + self.path("out.npy")
        self.assertEqual(self.result("PadGrad", "--mode", "wrap", "--pads", "2,3", dy, "-o", dx)[:2],
                         ((4,), [4 + 64, 8 + 128, 1 + 16 + 256, 2 + 32]))
        self.assertEqual(self.result("PadGrad", "--mode", "wrap", "--pads", "-1,4", dy, "-o", dx)[:2],
                         ((6,), [0, 1 + 32, 2 + 64, 4 + 128, 8 + 256, 16]))
        self.assertEqual(self.result("PadGrad", "--mode", "wrap", "--pads", "1,6", dy, "-o", dx)[:2],
                         ((2,), [2 + 8 + 32 + 128, 1 + 4 + 16 + 64 + 256]))
        self.refused(1, "op", *wrap, "-4,2", data, "-o", out, words=("none is left that could be repeated",))
        self.refused(1, "op", *wrap, "9223372036854775807,1", data, "-o", out, words=("out of range for pads",))
        for mode in ("wrap", "constant"):
            self.refused(1, "op", "PadGrad", "--mode", mode, "--pads", "9223372036854775807,9223372036854775807", dy,
                         "-o", dx, words=("out of range for pads",))

    def test_sizes(self):
        """ResizeGrad takes what Resize takes, also the sizes of the result, which are whole numbers."""
        save(self.path("x.npy"), (1, 1, 1, 2), [3.0, 5.0])
        save(self.path("dy.npy"), (1, 1, 1, 4), [1.0, 2.0, 4.0, 8.0])
        save(self.path("sizes.npy"), (4,), [1, 1, 1, 4], "<i8")
        save(self.path("part.npy"), (4,), [1.0, 1.0, 1.0, 4.5])
        given = ["--mode", "nearest", "dY=" + self.path("dy.npy"), "X=" + self.path("x.npy")]
        dx = ("-o", "dX=" + self.path("out.npy"))
        for sizes in (["sizes=" + self.path("sizes.npy")], ["--sizes", "1,1,1,4"], ["--scales", "1,1,1,2"]):
            self.assertEqual(self.result("ResizeGrad", *given, *sizes, *dx)[:2], ((1, 1, 1, 2), [3, 12]))
        self.refused(1, "op", "ResizeGrad", *given, "sizes=" + self.path("part.npy"), *dx,
                     words=("sizes must be a list of integers",))
        self.refused(2, "op", "Resize", "--sizes", "1,1,1,4.5", given[3], "-o", "Y=" + self.path("out.npy"),
                     words=("sizes must be a list of integers",))

    def test_unread_bias(self):
        """Gemm does not read C where beta is 0, but its shape must fit."""
        save(self.path("a.npy"), (1, 2), [2.0, 3.0])
        save(self.path("c.npy"), (2,), [float("nan"), float("inf")])
        save(self.path("long.npy"), (3,), [0.0, 0.0, 0.0])
        save(self.path("b.npy"), (2, 2), [1.0, 0.0, 0.0, 1.0])
        given = ["--beta", "0", "A=" + self.path("a.npy"), "B=" + self.path("b.npy"), "-o", "Y=" + self.path("out.npy")]
        self.assertEqual(self.result("Gemm", *given, "C=" + self.path("c.npy"))[:2], ((1, 2), [2, 3]))
        self.refused(1, "op", "Gemm", *given, "C=" + self.path("long.npy"), words=("broadcast",))

    def test_lengths(self):
        """ConcatTraining says how long its inputs are; none of them may be left out."""
        for i in range(3):
            save(self.path(f"x{i}.npy"), (2, i + 1), numbers((2, i + 1)))
        given = [f"inputs{i}={self.path(f'x{i}.npy')}" for i in range(3)]
        out = "per_input_length=" + self.path("out.npy")
        self.assertEqual(self.result("ConcatTraining", "--axis", "-1", *given, "-o", out), ((3,), [1, 2, 3], "<i8"))
        self.refused(1, "op", "ConcatTraining", "--axis", "1", given[0], given[2], "-o",
                     "concat_result=" + self.path("out.npy"), words=("inputs1 is missing",))

    def test_gradients_of_parameters(self):
        """Normalizations of MPS call them as their states do; the names of the op stay valid."""
        save(self.path("x.npy"), (2, 3, 3, 4), numbers((2, 3, 3, 4)))
        save(self.path("gamma.npy"), (4,), [1.0, 2.0, 3.0, 4.0])
        given = ["sourceGradient=" + self.path("x.npy"), "sourceImage=" + self.path("x.npy"),
                 "gamma=" + self.path("gamma.npy")]
        for name in ("MPSCNNBatchNormalizationGradient", "MPSCNNBatchNormalizationStatisticsGradient",
                     "MPSCNNBatchNormalizationGradientNode", "MPSCNNGroupNormalizationGradient",
                     "MPSCNNInstanceNormalizationGradient"):
            with self.subTest(name):
                gamma = self.result(name, *given, "-o", "gradientForGamma=" + self.path("out.npy"))
                self.assertEqual(gamma, self.result(name, *given, "-o", "dgamma=" + self.path("out.npy")))
                beta = self.result(name, *given, "-o", "gradientForBeta=" + self.path("out.npy"))
                self.assertEqual((gamma[0], beta[0]), ((4,), (4,)))
                for c in range(4):
                    self.assertAlmostEqual(beta[1][c], sum(numbers((2, 3, 3, 4))[c::4]), places=4)

    def test_sentences(self):
        self.place("x", (1, 2, 6, 6))
        x = "X=" + self.path("x.npy")
        y = "Y=" + self.path("y.npy")
        self.refused(2, "op", "MaxPol", x, "-o", y, words=("did you mean 'MaxPool'?",))
        self.refused(2, "op", "MaxPool", "--kernel_shap", "2,2", x, "-o", y, words=("did you mean 'kernel_shape'?",))
        self.refused(2, "op", "MaxPool", "--kernel_shape", "two", x, "-o", y, words=("a list of integers",))
        self.refused(2, "op", "MaxPool", "--kernel_shape", "2,2", "Z=x.npy", "-o", y, words=("no input 'Z'", "there are X"))
        self.refused(1, "op", "MaxPool", x, "-o", y, words=("kernel_shape is required",))
        self.refused(1, "op", "MaxPool", "--kernel_shape", "2", x, "-o", y, words=("2 spatial dimensions",))
        self.place("deep", (1, 2, 2, 2, 2))
        deep = "X=" + self.path("deep.npy")
        self.refused(1, "op", "MaxPool", "--kernel_shape", "2,2,2", deep, "-o", y, words=("three dimensions",))
        self.refused(1, "op", "Softmax", "--axis", "7", "input=" + self.path("x.npy"), "-o", "output=y.npy",
                     words=("axis is 7", "-4 to 3"))


if __name__ == "__main__":
    cli_case.PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
