# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Forms of a call of an operator of ONNX that give the same numbers, for onnx_names_test.py: in other dtypes, with inputs
rounded to them, and with channels last."""
import numpy as np

# Relative to the largest element of a result. Those of f16 and bf16: a few roundings of 11 and 8 bits.
TOLERANCES = {"f16": 4e-3, "bf16": 3e-2}

# What is an image or weights (o, i, k…): inputs, outputs.
IMAGES = {
    "Conv": (("X", "W"), ("Y",)),
    "ConvGrad": (("dY", "X", "W"), ("dX", "dW")),
    "ConvTranspose": (("X", "W"), ("Y",)),
    "MaxPool": (("X",), ("Y", "Indices")),
    "MaxPoolGrad": (("dY", "Indices", "X"), ("dX",)),
    "AveragePool": (("X",), ("Y",)),
    "AveragePoolGrad": (("dY", "X"), ("dX",)),
    "LpPool": (("X",), ("Y",)),
    "GlobalAveragePool": (("X",), ("Y",)),
    "GlobalMaxPool": (("X",), ("Y",)),
    "GlobalLpPool": (("X",), ("Y",)),
    "BatchNormalization": (("X",), ("Y",)),
    "BatchNormInternal": (("X",), ("Y",)),
    "BatchNormalizationGrad": (("dY", "X"), ("X_grad",)),
    "GroupNormalization": (("X",), ("Y",)),
    "InstanceNormalization": (("input",), ("output",)),
    "LRN": (("X",), ("Y",)),
    "SoftmaxCrossEntropyLoss": (("scores",), ("log_prob",)),
    "SoftmaxCrossEntropyLossGrad": (("log_prob",), ("d_logits",)),
    "NegativeLogLikelihoodLoss": (("input",), ()),
}
MASTERS = ("Adam", "Momentum")  # their parameters are f32 or f64


class Form:
    def __init__(self, draw, case):
        numbers = [np.asarray(v) for k, v in case.inputs.items() if k not in case.numbers]
        tame = all(np.isfinite(v).all() and (np.abs(v) < 1e3).all() for v in numbers if v.dtype.kind == "f")
        others = [] if not tame else ["", "f64"] if case.op in MASTERS else ["", "f64", "f16", "bf16"]
        self.dtype = draw.pick(["", *others])  # what overflows in f32 may not in f64
        self.last = case.op in IMAGES and draw.chance(0.4)

    def options(self):
        return (["--dtype", self.dtype] if self.dtype else []) + (["--layout", "nhwc"] if self.last else [])

    def rounded(self, case):
        """The inputs as the operator sees them, in the dtype that ONNX Runtime gets."""
        return {name: value if name in case.numbers else self.round(np.asarray(value))
                for name, value in case.inputs.items()}

    def round(self, x):
        if x.dtype.kind != "f" or self.dtype not in TOLERANCES:
            return x
        if self.dtype == "f16":
            return x.astype(np.float16).astype(x.dtype)
        bits = x.astype(np.float32).reshape(-1).view(np.uint32)
        bits = (bits + ((bits >> 16) & 1) + 0x7FFF) & np.uint32(0xFFFF0000)
        return bits.view(np.float32).reshape(x.shape).astype(x.dtype)

    def arranged(self, case, name, value):
        """An input in the order of dimensions that the program is told."""
        return np.moveaxis(value, 1, -1) if self.last and name in IMAGES[case.op][0] and value.ndim > 2 else value

    def attributes(self, case):
        given = dict(case.attributes)
        if self.last and "shape" in given and case.op.endswith("PoolGrad"):
            given["shape"] = given["shape"][:1] + given["shape"][2:] + given["shape"][1:2]
        return given

    def restored(self, case, name, value):
        """A result in ONNX's order."""
        return np.moveaxis(value, -1, 1) if self.last and name in IMAGES[case.op][1] and value.ndim > 2 else value

    def tolerance(self, case):
        return TOLERANCES.get(self.dtype, case.tolerance)
