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
    "bias": (4,), "inputs0": N, "inputs1": N,
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
    "Concat": ({}, "--axis 0"), "ConcatTraining": ({}, "--axis 0"), "Split": ({"input": N}, ""),
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
            for words in (re.sub(r"\[.*?\]", "", rest), rest.replace("[", "").replace("]", "")):
                with self.subTest(name, words=words):
                    self.run_line([name, *attributes.split(), *words.split()], shapes)

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
