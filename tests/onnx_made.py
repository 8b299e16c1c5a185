# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Writes small ONNX models with the standard library of Python alone, for tests and fuzzing."""
import struct

FLOAT, INT32, INT64, BOOL = 1, 6, 7, 9


def varint(value):
    value &= (1 << 64) - 1
    data = bytearray()
    while value > 0x7f:
        data.append(value & 0x7f | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def field(number, value):
    """A field by the type of its value: an integer, bytes or a text, a float."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else bytes(value)
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name, dims, values, kind=FLOAT, raw=True):
    """A TensorProto; values are numbers, or bytes for raw_data as it is."""
    data = b"".join(field(1, dim) for dim in dims) + field(2, kind) + field(8, name)
    if isinstance(values, bytes):
        return data + field(9, values)
    code = {FLOAT: "f", INT32: "i", INT64: "q"}[kind]
    packed = struct.pack(f"<{len(values)}{code}", *values)
    if raw:
        return data + field(9, packed)
    if kind == FLOAT:
        return data + field(4, packed)
    return data + field(5 if kind == INT32 else 7, b"".join(varint(value) for value in values))


def external(name, dims, location, offset=None, length=None, kind=FLOAT):
    data = b"".join(field(1, dim) for dim in dims) + field(2, kind) + field(8, name)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            data += field(13, field(1, key) + field(2, str(value)))
    return data + field(14, 1)


def attribute(name, value):
    data = field(1, name)
    if isinstance(value, float):
        return data + field(2, value) + field(20, 1)
    if isinstance(value, int):
        return data + field(3, value) + field(20, 2)
    if isinstance(value, str):
        return data + field(4, value) + field(20, 3)
    if isinstance(value, bytes):
        return data + field(5, value) + field(20, 4)
    if value and isinstance(value[0], float):
        return data + b"".join(field(7, entry) for entry in value) + field(20, 6)
    return data + b"".join(field(8, entry) for entry in value) + field(20, 7)


def node(kind, inputs, outputs, name="", domain="", **attributes):
    data = b"".join(field(1, entry) for entry in inputs) + b"".join(field(2, entry) for entry in outputs)
    data += field(3, name or outputs[0]) + field(4, kind)
    data += b"".join(field(5, attribute(key, value)) for key, value in attributes.items())
    return data + (field(7, domain) if domain else b"")


def port(name, dims, kind=FLOAT):
    shape = b"".join(field(1, field(2, dim) if isinstance(dim, str) else field(1, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


def model(nodes, inputs, outputs, initializers=(), opset=13):
    graph = b"".join(field(1, entry) for entry in nodes) + field(2, "graph")
    graph += b"".join(field(5, entry) for entry in initializers)
    graph += b"".join(field(11, entry) for entry in inputs) + b"".join(field(12, entry) for entry in outputs)
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, opset))


def network():
    """Convolution, activation, pooling, a product: images (n, 2, 4, 4) to (n, 3)."""
    weights = [((i * 7) % 11 - 5) / 8 for i in range(3 * 2 * 9)]
    dense = [((i * 5) % 13 - 6) / 16 for i in range(3 * 3 * 2 * 2)]
    return model(
        [node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
         node("Relu", ["c"], ["r"]),
         node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
         node("Shape", ["p"], ["s"]),
         node("Gather", ["s", "zero"], ["n"], axis=0),
         node("Unsqueeze", ["n", "axes"], ["n1"]),
         node("Concat", ["n1", "rest"], ["shape"], axis=0),
         node("Reshape", ["p", "shape"], ["f"]),
         node("Gemm", ["f", "d", "e"], ["y"], transB=1)],
        [port("x", ["N", 2, 4, 4])], [port("y", ["N", 3])],
        [tensor("w", [3, 2, 3, 3], weights), tensor("b", [3], [0.5, -0.25, 0.125], raw=False),
         tensor("d", [3, 12], dense), tensor("e", [3], [0.0, 1.0, 2.0]),
         tensor("zero", [], [0], INT64), tensor("axes", [1], [0], INT64, raw=False),
         tensor("rest", [1], [-1], INT64)])


def classifier(size=8, channels=1, classes=3, end="Softmax", ratio=0.25, batch="N", mode=False):
    """Convolution, batch normalization, activation, pooling, dropout, a product, softmax: images to classes."""
    features = 6 * (size // 2) ** 2
    weights = [((i * 7) % 11 - 5) / 12 for i in range(6 * channels * 9)]
    dense = [((i * 5) % 13 - 6) / 48 for i in range(classes * features)]
    norm = ["c", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"]
    nodes = [node("Conv", ["x", "conv.weight", "conv.bias"], ["c"], pads=[1, 1, 1, 1]),
             node("BatchNormalization", norm, ["b", "mean", "variance"], training_mode=1) if mode else
             node("BatchNormalization", norm, ["b"]),
             node("Relu", ["b"], ["r"]),
             node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
             node("Dropout", ["p", "ratio", "mode"] if mode else ["p", "ratio"], ["d"]),
             node("Flatten", ["d"], ["f"]),
             node("Gemm", ["f", "fc.weight", "fc.bias"], ["z" if end else "y"], transB=1)]
    if end:
        nodes.append(node(end, ["z"], ["y"]))
    return model(nodes, [port("x", [batch, channels, size, size])], [port("y", [batch, classes])],
                 [tensor("conv.weight", [6, channels, 3, 3], weights), tensor("conv.bias", [6], [0.0] * 6),
                  tensor("bn.weight", [6], [1.0] * 6), tensor("bn.bias", [6], [0.0] * 6),
                  tensor("bn.running_mean", [6], [0.0] * 6), tensor("bn.running_var", [6], [1.0] * 6),
                  tensor("fc.weight", [classes, features], dense), tensor("fc.bias", [classes], [0.0] * classes),
                  tensor("ratio", [], [ratio]), *([tensor("mode", [], b"\1", BOOL)] if mode else [])], opset=14 if mode else 13)


# Names that training and the graphs it makes use themselves.
OWN_NAMES = ["images", "labels", "rate", "rate1", "step", "dropout_step", "rate.sum", "logits", "loss", "rate_"]


def named_classifier(names, channels=1):
    """A classifier of 3 classes whose ten parameters have these names."""
    weights = [((i * 7) % 11 - 5) / 12 for i in range(6 * 9 * channels + 3 * 96)]
    start = 6 * 9 * channels
    rows = (([6, channels, 3, 3], weights[:start]), ([6], [0.0] * 6), ([6], [1.0] * 6), ([6], [0.0] * 6), ([6], [0.0] * 6),
            ([6], [1.0] * 6), ([1, 6, 1, 1], [0.5] * 6), ([3, 96], weights[start:]), ([3], [0.0] * 3), ([1, 6, 1, 1], [0.25] * 6))
    return model(
        [node("Conv", ["x", *names[:2]], ["c"], pads=[1, 1, 1, 1]), node("BatchNormalization", ["c", *names[2:6]], ["b"]),
         node("Mul", ["b", names[6]], ["m"]), node("Add", ["m", names[9]], ["a"]), node("Relu", ["a"], ["r"]),
         node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]), node("Dropout", ["p", "ratio"], ["d"]),
         node("Flatten", ["d"], ["f"]), node("Gemm", ["f", *names[7:9]], ["y"], transB=1)],
        [port("x", ["N", channels, 8, 8])], [port("y", ["N", 3])],
        [tensor("ratio", [], [0.25]), *(tensor(name, *row) for name, row in zip(names, rows))])


def samples():
    """Models by name: the seeds of the fuzz target."""
    x, y = [port("x", [2, 3, 4, 4])], [port("y", [])]
    return {
        "network": network(),
        "norms": model([node("BatchNormalization", ["x", "g", "g", "g", "g"], ["a"], epsilon=0.01),
                        node("InstanceNormalization", ["a", "g", "g"], ["b"]),
                        node("LRN", ["b"], ["y"], size=3)], x, y, [tensor("g", [3], [1.0, 2.0, 3.0])]),
        "shapes": model([node("Transpose", ["x"], ["a"], perm=[0, 2, 3, 1]),
                         node("Slice", ["a", "i", "j"], ["b"]), node("Squeeze", ["b"], ["c"]),
                         node("Concat", ["c", "c"], ["d"], axis=1), node("Softmax", ["d"], ["e"], axis=1),
                         node("ReduceMean", ["e"], ["y"], axes=[1], keepdims=0)], x, y,
                        [tensor("i", [2], [0, 1], INT64), tensor("j", [2], [1, 3], INT64)]),
        "elements": model([node("Constant", [], ["k"], value=tensor("k", [1, 3, 1, 1], [1.0, 2.0, 3.0])),
                           node("Mul", ["x", "k"], ["a"]), node("Clip", ["a"], ["b"], min=-1.0, max=1.0),
                           node("Add", ["a", "b"], ["c"]), node("HardSwish", ["c"], ["d"]),
                           node("Dropout", ["d"], ["e", "mask"], ratio=0.5),
                           node("Split", ["e"], ["f", "y"], axis=2)], x, y, opset=10),
        "choices": model([node("Shape", ["x"], ["s"]), node("Gather", ["s", "i"], ["n"]),
                          node("Concat", ["n", "one", "one", "one"], ["t"], axis=0), node("Expand", ["k", "t"], ["a"]),
                          node("Tile", ["a", "r"], ["b"]), node("Max", ["x", "b"], ["c"]),
                          node("Greater", ["c", "k"], ["d"]), node("Where", ["d", "x", "k"], ["e"]),
                          node("Gather", ["e", "j"], ["f"], axis=2), node("Slice", ["f", "m", "l", "one", "m"], ["g"]),
                          node("ReduceLogSumExp", ["g"], ["y"], axes=[1])], [port("x", ["N", 3, 4, 4])], y,
                         [tensor("i", [1], [0], INT64), tensor("j", [3], [3, 0, 1], INT64), tensor("k", [], [0.5]),
                          tensor("one", [1], [1], INT64), tensor("r", [4], [1, 3, 1, 1], INT64),
                          tensor("m", [1], [-1], INT64), tensor("l", [1], [-9], INT64)]),
        "constants": model([node("ConstantOfShape", ["n"], ["a"], value=tensor("", [1], [1], INT64)),
                            node("Range", ["zero", "four", "two"], ["b"]), node("ReduceSum", ["a"], ["c"], keepdims=1),
                            node("Slice", ["v", "s", "e", "axes"], ["d"]), node("ScatterND", ["v", "i", "u"], ["f"]),
                            node("Trilu", ["t"], ["g"]), node("NonZero", ["g"], ["h"]), node("Gather", ["v", "b"], ["k"]),
                            node("Cast", ["d"], ["w"], to=FLOAT), node("Mul", ["x", "w"], ["o"]), node("Gather", ["o", "b"], ["p"], axis=3),
                            node("SpaceToDepth", ["x"], ["q"], blocksize=2), node("Tile", ["p", "v"], ["y"])], x, y,
                           [tensor("n", [1], [3], INT64), tensor("zero", [], [0], INT64), tensor("four", [], [4], INT64),
                            tensor("two", [], [2], INT64), tensor("v", [4], [1, 1, 1, 2], INT64), tensor("s", [1], [3], INT64),
                            tensor("e", [1], [4], INT64), tensor("axes", [1], [0], INT64), tensor("i", [1, 1], [1], INT64),
                            tensor("u", [1], [5], INT64), tensor("t", [2, 2], [1, 2, 3, 4], INT64)], opset=16),
        "gelu": model([node("Div", ["x", "r"], ["a"]), node("Erf", ["a"], ["b"]), node("Add", ["b", "o"], ["c"]),
                       node("Mul", ["x", "c"], ["d"]), node("Mul", ["d", "h"], ["e"]),
                       node("LpPool", ["e"], ["f"], kernel_shape=[2, 2], p=3), node("GlobalLpPool", ["f"], ["g"]),
                       node("ReduceProd", ["g"], ["y"], axes=[1], keepdims=0)], x, y,
                      [tensor("r", [], [2 ** 0.5]), tensor("o", [], [1.0]), tensor("h", [], [0.5])]),
        "windows": model([node("ConvTranspose", ["x", "w"], ["a"], strides=[2, 2]),
                          node("AveragePool", ["a"], ["b"], kernel_shape=[2, 2]),
                          node("Pad", ["b"], ["c"], pads=[0, 0, 1, 1, 0, 0, 1, 1]),
                          node("Upsample", ["c", "s"], ["d"]), node("GlobalAveragePool", ["d"], ["e"]),
                          node("Flatten", ["e"], ["y"])], x, y,
                         [tensor("w", [3, 2, 2, 2], [0.5] * 24), tensor("s", [4], [1.0, 1.0, 2.0, 2.0])], opset=9),
    }


def image_samples():
    """Networks for images by name: seeds of the fuzz target for what training reads."""
    norm = lambda x, y: node("BatchNormalization", [x, "ones", "zeros", "zeros", "alias"], [y], spatial=1)
    token = [i / 8 for i in range(8)]
    return {
        "classifier": classifier(), "fixed": classifier(batch=1, end="LogSoftmax"), "mode": classifier(mode=True),
        "merged": model([node("Conv", ["x", "w"], ["c"]), node("Identity", ["ones"], ["alias"]), norm("c", "a"), norm("a", "b"),
                         node("Upsample", ["b", "s"], ["u"]), node("GlobalAveragePool", ["u"], ["p"]), node("Flatten", ["p"], ["y"])],
                        [port("x", ["N", 1, 8, 8])], [port("y", ["N", 2])],
                        [tensor("w", [2, 1, 3, 3], [0.5] * 18), tensor("ones", [2], [1.0] * 2), tensor("zeros", [2], [0.0] * 2),
                         tensor("s", [4], [1.0, 1.0, 2.0, 2.0])], opset=8),
        "tokens": model([node("Reshape", ["x", "t"], ["a"]), node("Concat", ["k", "a"], ["b"], axis=1),
                         node("Transpose", ["b"], ["c"], perm=[1, 0, 2]), node("Reshape", ["c", "r"], ["d"]),
                         node("Reshape", ["d", "u"], ["e"]), node("Transpose", ["e"], ["f"], perm=[1, 0, 2]),
                         node("ReduceMean", ["f"], ["g"], axes=[1], keepdims=0), node("Gemm", ["g", "w"], ["z"]),
                         node("Sigmoid", ["z"], ["y"]), node("Unique", ["z"], ["v"])],
                        [port("x", [1, 1, 8, 8])], [port("y", [1, 3]), port("v", ["K"])],
                        [tensor("t", [3], [1, 8, 8], INT64), tensor("r", [2], [9, -1], INT64), tensor("u", [3], [9, 1, 8], INT64),
                         tensor("k", [1, 1, 8], token), tensor("w", [8, 3], token * 3)]),
        "last": model([node("Cast", ["x"], ["f"], to=1), node("Transpose", ["f"], ["t"], perm=[0, 3, 1, 2]), node("Conv", ["t", "w"], ["c"]),
                       node("Shape", ["f"], ["s"]), node("Slice", ["s", "i", "j"], ["n"]), node("Concat", ["n", "o"], ["z"], axis=0),
                       node("Resize", ["c", "", "", "z"], ["r"]), node("Transpose", ["r"], ["y"], perm=[0, 2, 3, 1])],
                      [port("x", ["N", "h", "w", 1], 2)], [port("y", ["N", 8, 8, 2])],
                      [tensor("w", [2, 1, 3, 3], [0.5] * 18), tensor("i", [1], [0], INT64), tensor("j", [1], [1], INT64),
                       tensor("o", [3], [2, 8, 8], INT64)]),
    }
