#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Gradient operators inside ONNX Runtime: their values and times, ours beside those of its training build.

    python-of-1.19 bench/onnxruntime_gradients.py --save theirs.npz --threads 1
    python-of-1.31 bench/onnxruntime_gradients.py --library build/libretrograde_ort.so --compare theirs.npz --threads 1

The first Python has onnxruntime-training-cpu 1.19.2, the second any stock onnxruntime from 1.21 on; both need onnx.
Every row is one node with tensors bound before, so that no copy of the session is timed: the fastest of many runs.
"""
import argparse
import os
import sys
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64,
         np.dtype(np.bool_): TensorProto.BOOL}


class Row:
    """One node; `make` draws its inputs, `outputs` are shapes."""

    def __init__(self, name, what, make, outputs, attributes=None, theirs=None, tolerance=1e-4):
        self.name, self.what, self.make, self.outputs = name, what, make, outputs
        self.attributes, self.tolerance = attributes or {}, tolerance
        self.theirs = theirs  # (domain, how many inputs, attributes that are ours alone)

    def title(self):
        return f"{self.name} {self.what}"


def values(draw, *shape):
    return draw.uniform(-1, 1, shape).astype(np.float32)


def text(shape):
    return "x".join(map(str, shape))


def softmax_rows():
    cases = (("SoftmaxGrad", (64, 128), 1), ("SoftmaxGrad", (8, 16, 2048), 2), ("SoftmaxGrad", (8, 16, 512), 1),
             ("SoftmaxGrad", (256, 1000), 1), ("SoftmaxGrad_13", (4, 2, 128), 2), ("SoftmaxGrad_13", (8, 16, 2048), 2),
             ("SoftmaxGrad_13", (8, 16, 512), 0), ("SoftmaxGrad_13", (8, 16, 512), 1),
             ("SoftmaxGrad_13", (8, 21, 128, 128), 1), ("SoftmaxGrad_13", (32, 8, 128, 128), 3))
    for name, shape, axis in cases:
        for prefix in ("", "Log"):
            def make(draw, shape=shape, log=prefix):
                y = draw.uniform(0, 1, shape).astype(np.float32)
                return [values(draw, *shape), -3 * y if log else y / shape[-1]]
            yield Row(prefix + name, f"{text(shape)} axis {axis}", make, [shape], {"axis": axis}, tolerance=2e-4)


def activation_rows():
    for name in ("ReluGrad", "LeakyReluGrad", "SigmoidGrad", "TanhGrad", "GeluGrad", "FastGeluGrad", "QuickGeluGrad"):
        for shape in ((16, 32), (8, 2, 128, 128), (8, 64, 56, 56)):
            def make(draw, shape=shape):
                return [values(draw, *shape), values(draw, *shape)]
            yield Row(name, text(shape), make, [shape])


def conv_rows():
    cases = (((4, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1), ((4, 256, 28, 28), (64, 256, 1, 1), 1, 0, 1),
             ((4, 64, 28, 28), (256, 64, 1, 1), 1, 0, 1), ((4, 128, 28, 28), (128, 128, 3, 3), 2, 1, 1),
             ((4, 3, 112, 112), (64, 3, 7, 7), 2, 3, 1), ((4, 96, 28, 28), (96, 1, 3, 3), 1, 1, 96),
             ((4, 64, 28, 28), (64, 16, 3, 3), 1, 1, 4), ((4, 512, 7, 7), (512, 512, 3, 3), 1, 1, 1),
             ((2, 1, 7, 5), (1, 1, 3, 3), 1, 1, 1), ((2, 16, 8, 28, 28), (32, 16, 3, 3, 3), 1, 1, 1))
    for x, w, stride, pad, group in cases:
        y = (x[0], w[0]) + tuple((x[2 + d] + 2 * pad - w[2 + d]) // stride + 1 for d in range(len(w) - 2))
        axes = len(w) - 2
        attributes = {"kernel_shape": w[2:], "strides": [stride] * axes, "pads": [pad] * 2 * axes, "group": group,
                      "dilations": [1] * axes}

        def make(draw, x=x, w=w, y=y):
            return [values(draw, *y), values(draw, *x), values(draw, *w)]
        more = (f" stride {stride}" if stride > 1 else "") + (f" groups {group}" if group > 1 else "")
        yield Row("ConvGrad", f"{text(x)} * {text(w)}{more}", make, [x, w, w[:1]], attributes, tolerance=1e-3)


def pool_rows():
    cases = (((8, 64, 56, 56), 3, 2, 1), ((8, 64, 56, 56), 2, 2, 0), ((1, 1, 5, 5), 3, 1, 2))
    for x, kernel, stride, pad in cases:
        y = x[:2] + tuple((n + 2 * pad - kernel) // stride + 1 for n in x[2:])
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        what = f"{text(x)} window {kernel} stride {stride} pad {pad}"

        def winners(draw, x=x, y=y, kernel=kernel, stride=stride, pad=pad):
            image = draw.permutation(int(np.prod(x))).reshape(x).astype(np.float32)
            wide = np.pad(image, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=-1)
            number = np.pad(np.arange(image.size).reshape(x), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
            best, index = np.full(y, -1.0), np.zeros(y, np.int64)
            for r in range(kernel):
                for c in range(kernel):
                    at = (slice(None), slice(None), slice(r, r + stride * (y[2] - 1) + 1, stride),
                          slice(c, c + stride * (y[3] - 1) + 1, stride))
                    index = np.where(wide[at] > best, number[at], index)
                    best = np.maximum(best, wide[at])
            return [values(draw, *y), index]

        def plain(draw, y=y):
            return [values(draw, *y)]
        yield Row("MaxPoolGrad", what, winners, [x], {**attributes, "shape": x}, ("", 2, ("shape",)))
        if pad < kernel:
            yield Row("AveragePoolGrad", what, plain, [x], {**attributes, "shape": x}, ("", 1, ("shape",)))


def norm_rows():
    for shape in ((8, 64, 56, 56), (8, 256, 14, 14), (3, 4, 2, 4)):
        def make(draw, shape=shape):
            x = values(draw, *shape)
            inverse = 1 / np.sqrt(x.var((0, 2, 3)) + 1e-5)
            return [values(draw, *shape), x, values(draw, shape[1]), x.mean((0, 2, 3)), inverse]
        yield Row("BatchNormalizationGrad", text(shape), make, [shape, shape[1:2], shape[1:2]], {"epsilon": 1e-5},
                  tolerance=1e-3)
    for shape in ((4, 20, 128), (8, 80, 768), (16, 512, 1024)):
        def make(draw, shape=shape):
            x = values(draw, *shape)
            inverse = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
            return [values(draw, *shape), x, values(draw, shape[2]), x.mean(-1, keepdims=True), inverse]
        yield Row("LayerNormalizationGrad", text(shape), make, [shape, shape[2:], shape[2:]], {"axis": -1},
                  tolerance=5e-3)


def other_rows():
    for shape, weights, reduction in (((256, 1000), False, "mean"), ((256, 1000), True, "mean"),
                                      ((8, 21, 128, 128), False, "mean"), ((5, 11), False, "sum"),
                                      ((4096, 10), False, "none")):
        def make(draw, shape=shape, weights=weights, reduction=reduction):
            x = draw.uniform(-2, 2, shape)
            logs = (x - np.log(np.exp(x).sum(1, keepdims=True))).astype(np.float32)
            rows = shape[:1] + shape[2:]
            dy = values(draw, *rows) if reduction == "none" else np.array(0.5, np.float32)
            more = [np.abs(values(draw, shape[1])) + np.float32(0.1)] if weights else []
            return [dy, logs, draw.integers(0, shape[1], rows)] + more
        yield Row("SoftmaxCrossEntropyLossGrad", f"{text(shape)} {reduction}{' weights' if weights else ''}", make,
                  [shape], {"reduction": reduction})
    for shape in ((16, 32), (8, 64, 56, 56)):
        def make(draw, shape=shape):
            return [values(draw, *shape), draw.uniform(0, 1, shape) < 0.7, np.array(0.3, np.float32),
                    np.array(True)]
        yield Row("DropoutGrad", text(shape), make, [shape])

    def sliced(draw):
        return [values(draw, 8, 32, 28, 28), np.array([8, 64, 56, 56]), np.array([16, 0, 1]), np.array([48, 56, 57]),
                np.array([1, 2, 3]), np.array([1, 2, 2])]
    yield Row("SliceGrad", "8x64x56x56 half of three axes", sliced, [(8, 64, 56, 56)])
    for shape, count in (((1000, 64), 512), ((30000, 256), 4096)):
        def make(draw, shape=shape, count=count):
            return [np.array(shape), draw.integers(0, shape[0], count), values(draw, count, shape[1])]
        yield Row("GatherGrad", f"{text(shape)} {count} rows", make, [shape], {"axis": 0})


def all_rows():
    for rows in (softmax_rows, activation_rows, conv_rows, pool_rows, norm_rows, other_rows):
        yield from rows()


def session(row, arrays, library, threads):
    domain, attributes = "com.microsoft", dict(row.attributes)
    if library is None and row.theirs is not None:
        domain = row.theirs[0]
        for ours in row.theirs[2]:
            del attributes[ours]
    inputs = [helper.make_tensor_value_info(f"i{k}", KINDS[a.dtype], a.shape) for k, a in enumerate(arrays)]
    names = [f"o{k}" for k in range(len(row.outputs))]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(names, row.outputs)]
    node = helper.make_node(row.name, [i.name for i in inputs], names, domain=domain, **attributes)
    model = helper.make_model(helper.make_graph([node], "node", inputs, outputs), ir_version=9,
                              opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    if library is not None:
        options.register_custom_ops_library(os.path.abspath(library))
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def measure(row, library, threads, seconds):
    draw = np.random.default_rng(sum(map(ord, row.title())))
    arrays = [np.ascontiguousarray(a) for a in row.make(draw)]
    s = session(row, arrays, library, threads)
    binding = s.io_binding()
    kept = [ort.OrtValue.ortvalue_from_numpy(a) for a in arrays]
    results = [ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32)) for shape in row.outputs]
    for k, value in enumerate(kept):
        binding.bind_ortvalue_input(f"i{k}", value)
    for k, value in enumerate(results):
        binding.bind_ortvalue_output(f"o{k}", value)
    s.run_with_iobinding(binding)
    best, end, runs = float("inf"), time.perf_counter() + seconds, 0
    while runs < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        s.run_with_iobinding(binding)
        best, runs = min(best, time.perf_counter() - start), runs + 1
    return best * 1e6, [np.array(r.numpy()) for r in results]


def compare(row, key, times, results, other):
    their = float(other[key + " time"])
    worst = 0.0
    for k, got in enumerate(results):
        want = other[f"{key} {k}"]
        worst = max(worst, float((np.abs(got - want) / (1 + np.abs(want))).max(initial=0) / row.tolerance))
    print(f"| {row.name} | {row.what} | {times:.1f} | {their:.1f} | {their / times:.2f} |"
          + ("" if worst <= 1 else f" VALUES DIFFER: {worst:.3g} of the tolerance"), flush=True)
    return worst <= 1, their / times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="ours; without it, the runtime's own kernels")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each row")
    parser.add_argument("--only", default="", help="rows whose title contains this")
    parser.add_argument("--save", help="file for values and times")
    parser.add_argument("--compare", help="file of the other side")
    options = parser.parse_args()
    other = np.load(options.compare) if options.compare else None
    kept, failed, slower = {}, 0, 0
    if other is not None:
        print("| operator | case | ours, us | theirs, us | theirs / ours |\n|---|---|---|---|---|")
    for row in all_rows():
        key = row.title()
        if options.only not in key or (other is not None and key + " time" not in other):
            continue
        try:
            times, results = measure(row, options.library, options.threads, options.seconds)
        except Exception as error:  # the runtime has many classes for it
            print(f"{key}: {str(error)[:200]}")
            failed += 1
            continue
        if other is not None:
            good, ratio = compare(row, key, times, results, other)
            failed, slower = failed + (not good), slower + (ratio < 1)
        else:
            print(f"{key}: {times:.1f} us", flush=True)
        kept[key + " time"] = np.array(times)
        kept.update({f"{key} {k}": r for k, r in enumerate(results)})
    if options.save:
        np.savez(options.save, **kept)
    print(f"ONNX Runtime {ort.__version__}, {options.threads} thread(s): {failed} failed, {slower} slower")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
