# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Steps of training inside stock ONNX Runtime: sums of gradients, optimizers, and a whole training model.

usage: ort_training_test.py LIBRARY
The training model has the nodes, domains and attributes of one that onnxruntime-training 1.19.2 makes
(artifacts.generate_artifacts). Needs onnx and onnxruntime; without them it is skipped, a failure where CI=true.
"""
import os
import sys

try:
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(1 if os.environ.get("CI") == "true" else 77)

RUNTIME, OURS = "com.microsoft", "org.retrograde"
KINDS = {np.dtype(np.int64): TensorProto.INT64, np.dtype(np.bool_): TensorProto.BOOL,
         np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE,
         np.dtype(np.float16): TensorProto.FLOAT16}
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid(RUNTIME, 1), helper.make_opsetid(OURS, 1)]


def session(library, nodes, inputs, outputs, shapes=()):
    graph = helper.make_graph(nodes, "training", inputs, outputs, value_info=list(shapes))
    model = helper.make_model(graph, ir_version=9, opset_imports=OPSETS)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(library)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run_node(library, name, domain, arrays, kinds, **attributes):
    """A node; `kinds` are the element types of its outputs."""
    given = {f"i{k}": a for k, a in enumerate(arrays) if a is not None}
    inputs = [helper.make_tensor_value_info(n, KINDS[a.dtype], a.shape) for n, a in given.items()]
    outputs = [helper.make_tensor_value_info(f"o{k}", kind, None) for k, kind in enumerate(kinds)]
    names = [f"i{k}" if a is not None else "" for k, a in enumerate(arrays)]
    node = helper.make_node(name, names, [o.name for o in outputs], domain=domain, **attributes)
    return session(library, [node], inputs, outputs).run(None, given)


class Failures:
    def __init__(self):
        self.runs, self.list = 0, []

    def near(self, what, got, want, tolerance):
        self.runs += 1
        error = np.abs(np.asarray(got, float) - want).max(initial=0)
        if np.shape(got) != np.shape(want) or not error <= tolerance * (1 + np.abs(want).max(initial=0)):
            self.list.append(f"{what}: largest difference {error}")

    def refused(self, what, words, call):
        self.runs += 1
        try:
            call()
            self.list.append(f"{what}: was not refused")
        except Exception as error:  # the runtime has many classes for it
            if words not in str(error):
                self.list.append(f"{what}: no '{words}' in: {error}")


def test_gather(library, failures, draw):
    for shape, axis, indices in (((7, 5), 0, draw.integers(-7, 7, (4, 3))), ((3, 9, 130), 1, draw.integers(0, 9, 20)),
                                 ((2, 6), -1, np.array(4)), ((4, 0), 0, draw.integers(0, 4, 3))):
        place = axis % len(shape)
        dims = shape[:place] + indices.shape + shape[place + 1:]
        dy = draw.uniform(-1, 1, dims)
        want = np.zeros(shape)
        moved = np.moveaxis(want, place, 0)
        rows = dy.reshape(shape[:place] + (indices.size,) + shape[place + 1:])
        np.add.at(moved, indices.ravel(), np.moveaxis(rows, place, 0))
        for dtype, tolerance in ((np.float32, 1e-6), (np.float64, 1e-14)):
            got = run_node(library, "GatherGrad", RUNTIME, [np.array(shape), indices, dy.astype(dtype)],
                           [KINDS[np.dtype(dtype)]], axis=axis)
            failures.near(f"GatherGrad {shape} {axis}", got[0], want, tolerance)
    bad = np.zeros((2, 5), np.float32)
    shape, f32 = np.array([7, 5]), [TensorProto.FLOAT]
    for what, words, arrays, axis in (("index", "outside", [shape, np.array([0, 7]), bad], 0),
                                      ("axis", "axis", [shape, np.array([0, 1]), bad], 2),
                                      ("dY", "dY", [shape, np.array([0, 1, 2]), bad], 0),
                                      ("shape", "shape", [np.array([[7, 5]]), np.array([0, 1]), bad], 0)):
        failures.refused(f"GatherGrad {what}", words,
                         lambda a=arrays, x=axis: run_node(library, "GatherGrad", RUNTIME, a, f32, axis=x))


def test_slices(library, failures, draw):
    """dX is 0 but for what was cut out: every start, step and type."""
    for case in range(45):
        dtype = (np.float32, np.float64, np.float16)[case % 3]
        shape = [int(draw.integers(1, 14)) for _ in range(draw.integers(1, 5))]
        shape[-1] = int(draw.integers(20, 90)) if case % 4 == 0 else shape[-1]
        axes = [a for a in range(len(shape)) if draw.random() < 0.7] or [0]
        starts = [int(draw.integers(0, shape[a])) for a in axes]
        ends = [int(draw.integers(s + 1, shape[a] + 1)) for a, s in zip(axes, starts)]
        steps = [int(draw.integers(1, 4)) for _ in axes]
        cut = [slice(None)] * len(shape)
        for a, start, end, stride in zip(axes, starts, ends, steps):
            cut[a] = slice(start, end, stride)
        want = np.zeros(shape, dtype)
        want[tuple(cut)] = draw.uniform(1, 2, want[tuple(cut)].shape)
        numbers = [np.array(n, np.int64) for n in (shape, starts, ends, axes, steps)]
        got = run_node(library, "SliceGrad", RUNTIME, [np.ascontiguousarray(want[tuple(cut)])] + numbers,
                       [KINDS[np.dtype(dtype)]])
        failures.near(f"SliceGrad {shape} {cut}", got[0], want.astype(float), 0)


def test_missing_gradient(library, failures, draw):
    """A gradient without a name is not computed, the others are the same."""
    x, w, dy = (draw.uniform(-1, 1, s).astype(np.float32) for s in ((2, 3, 6, 6), (4, 3, 3, 3), (2, 4, 4, 4)))
    names = [("dx", x.shape), ("dw", w.shape), ("db", (4,))]
    inputs = [helper.make_tensor_value_info(n, 1, a.shape) for n, a in (("dy", dy), ("x", x), ("w", w))]
    every = None
    for missing in (None, 0, 1, 2):
        given = ["" if i == missing else n for i, (n, _) in enumerate(names)]
        outputs = [helper.make_tensor_value_info(n, 1, s) for n, s in names if n in given]
        node = helper.make_node("ConvGrad", ["dy", "x", "w"], given, domain=RUNTIME, kernel_shape=[3, 3])
        got = session(library, [node], inputs, outputs).run(None, {"dy": dy, "x": x, "w": w})
        every = every or got
        for value, want in zip(got, [v for i, v in enumerate(every) if i != missing]):
            failures.near(f"ConvGrad without {missing}", value, want, 0)


def test_accumulator(library, failures, draw):
    """The buffer itself is changed, as the training build does."""
    value = draw.uniform(-1, 1, (3, 5)).astype(np.float32)
    inputs = [helper.make_tensor_value_info(n, k, s) for n, k, s in
              (("buffer", 1, (3, 5)), ("value", 1, (3, 5)), ("overwrite", 9, (1,)))]
    outputs = [helper.make_tensor_value_info("updated", 9, (1,)), helper.make_tensor_value_info("sum", 1, (3, 5))]
    node = helper.make_node("InPlaceAccumulatorV2", ["buffer", "value", "overwrite"], ["updated", "sum"],
                            domain=RUNTIME)
    s = session(library, [node], inputs, outputs)
    for overwrite, want in ((False, value + 2), (True, value)):
        binding = s.io_binding()
        buffer = ort.OrtValue.ortvalue_from_numpy(np.full((3, 5), 2, np.float32))
        others = [ort.OrtValue.ortvalue_from_numpy(a) for a in (value, np.array([overwrite]))]
        for name, v in zip(("buffer", "value", "overwrite"), [buffer] + others):
            binding.bind_ortvalue_input(name, v)
        binding.bind_output("updated")
        binding.bind_output("sum")
        s.run_with_iobinding(binding)
        updated, total = (v.numpy() for v in binding.get_outputs())
        failures.near(f"accumulated, overwrite {overwrite}", buffer.numpy(), want, 1e-7)
        failures.near("the sum as a result", total, want, 1e-7)
        failures.near("updated", updated, np.array([1]), 0)


def adamw(w, g, m, v, rate, step, alpha, beta, epsilon, decay, mode, correct):
    m, v = alpha * m + (1 - alpha) * g, beta * v + (1 - beta) * g * g
    first, second = (1 - alpha**step, 1 - beta**step) if correct else (1, 1)
    if mode == 0:
        w = w * (1 - rate * decay)
        return w - rate / first * m / (np.sqrt(v) / np.sqrt(second) + epsilon), m, v
    w = w - rate * np.sqrt(second) / first * m / (np.sqrt(v) + epsilon)
    return w - rate * decay * w, m, v


def test_optimizers(library, failures, draw):
    rate = np.array([0.1], np.float32)
    for dtype, tolerance in ((np.float32, 1e-6), (np.float64, 1e-8), (np.float16, 2e-3)):
        w, g, m = (draw.uniform(-1, 1, (7, 11)).astype(dtype) for _ in range(3))
        v, kind = np.abs(m), KINDS[np.dtype(dtype)]
        got = run_node(library, "SGDOptimizerV2", OURS, [rate, w, g], [kind])
        failures.near(f"SGD {dtype}", got[0], w.astype(float) - float(rate[0]) * g.astype(float), tolerance)
        for mode in (0, 1):
            for correct in (0, 1):
                got = run_node(library, "AdamWOptimizer", OURS, [rate, np.array([3]), w, g, m, v], [kind] * 3,
                               weight_decay=0.05, adam_mode=mode, correct_bias=correct)
                numbers = (0.9, 0.999, 1e-8, float(np.float32(0.05)))  # defaults, and a float of the node
                want = adamw(*(a.astype(float) for a in (w, g, m, v)), float(rate[0]), 3, *numbers, mode, correct)
                for name, a, b in zip(("weight", "moment 1", "moment 2"), got, want):
                    failures.near(f"AdamW {name} {dtype} mode {mode} bias {correct}", a, b, tolerance)
    one, f32 = np.ones((2, 3), np.float32), [TensorProto.FLOAT]
    failures.refused("SGD shapes", "gradient",
                     lambda: run_node(library, "SGDOptimizerV2", OURS, [rate, one, one.T.copy()], f32))
    failures.refused("AdamW step", "step",
                     lambda: run_node(library, "AdamWOptimizer", OURS, [rate, np.array([0])] + [one] * 4, f32 * 3))
    failures.refused("AdamW mode", "adam_mode",
                     lambda: run_node(library, "AdamWOptimizer", OURS, [rate, np.array([1])] + [one] * 4, f32 * 3,
                                      adam_mode=2))


def optimizer_model(kind, inputs, sequences, **attributes):
    """As onnxruntime-training 1.19.2 makes it: one node, the parameters in sequences."""
    info, listed = helper.make_tensor_value_info, helper.make_tensor_sequence_value_info
    given = [info("learning_rate", 1, [1]), info("step", 7, [1])]
    given += [listed(n, 1, None) for n in ("params", "gradients", "first_order_moments", "second_order_moments")]
    node = helper.make_node(kind, inputs + sequences, ["updated"], domain=RUNTIME, **attributes)
    kept = [i for i in given if i.name in inputs + sequences or i.name in ("step", "first_order_moments")]
    graph = helper.make_graph([node], "optimizer", kept, [info("updated", 9, [1])])
    return helper.make_model(graph, ir_version=9, opset_imports=OPSETS)


def loaded(library, model):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(library)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def test_optimizer_models(library, failures, draw):
    """The models themselves cannot run: no operator of a library has sequences. What the example makes of them does."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples"))
    from onnxruntime_optimizer import for_stock_runtime

    shapes, rate = ((4, 8), (8,), (2, 3, 5), (1,)), np.array([0.05], np.float32)
    w, g, m = ([draw.uniform(-1, 1, s).astype(np.float32) for s in shapes] for _ in range(3))
    v = [np.abs(a) for a in m]
    sgd = optimizer_model("SGDOptimizerV2", ["learning_rate"], ["params", "gradients"])
    adam = optimizer_model("AdamWOptimizer", ["learning_rate", "step"],
                           ["params", "gradients", "first_order_moments", "second_order_moments"], adam_mode=1,
                           alpha=0.9, beta=0.999, epsilon=1e-6, weight_decay=0.25, correct_bias=1)
    failures.refused("a model with sequences", "not a registered", lambda: loaded(library, adam))
    got = loaded(library, for_stock_runtime(sgd)).run(None, {"learning_rate": rate, "params": w, "gradients": g})
    for a, b, c in zip(got[0], w, g):
        failures.near("SGDOptimizerV2 of a model", a, b - rate[0] * c.astype(float), 1e-7)
    got = loaded(library, for_stock_runtime(adam)).run(None, {
        "learning_rate": rate, "step": np.array([4]), "params": w, "gradients": g, "first_order_moments": m,
        "second_order_moments": v})
    for i in range(len(shapes)):
        want = adamw(*(x[i].astype(float) for x in (w, g, m, v)), 0.05, 4, 0.9, 0.999, 1e-6, 0.25, 1, 1)
        for name, a, b in zip(("weight", "moment 1", "moment 2"), got, want):
            failures.near(f"AdamWOptimizer of a model, {name}", a[i], b, 1e-6)


# ---- a training model ----

SHAPES = {"w1": (4, 1, 3, 3), "b1": (4,), "w2": (16, 16), "b2": (16,), "w3": (5, 16), "b3": (5,), "g": (16,),
          "be": (16,)}


def training_nodes():
    node = helper.make_node
    conv = {"group": 1, "kernel_shape": [3, 3], "auto_pad": "NOTSET", "pads": [1, 1, 1, 1]}
    pool = {"ceil_mode": 0, "auto_pad": "NOTSET", "kernel_shape": [2, 2], "strides": [2, 2]}
    norm = {"stash_type": 1, "axis": -1, "epsilon": 1e-5}
    forward = [node("Conv", ["x", "w1", "b1"], ["c"], **conv), node("Relu", ["c"], ["r"]),
               node("MaxPool", ["r"], ["p", "mask"], storage_order=0, **pool),
               node("AveragePool", ["p"], ["q"], count_include_pad=0, **pool), node("Shape", ["q"], ["q_shape"]),
               node("Flatten", ["q"], ["f"]), node("Gemm", ["f", "w2", "b2"], ["h"], transB=1),
               node("LayerNormalization", ["h", "g", "be"], ["n", "mean", "inverse"], **norm),
               node("Gelu", ["n"], ["e"], domain=RUNTIME), node("Gemm", ["e", "w3", "b3"], ["scores"], transB=1),
               node("SoftmaxCrossEntropyLoss", ["scores", "labels"], ["loss", "log_prob"], reduction="mean")]
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [0])
    backward = [node("Constant", [], ["d_loss"], value=one), node("Constant", [], ["axes"], value=axes),
                node("SoftmaxCrossEntropyLossGrad", ["d_loss", "log_prob", "labels"], ["d_scores"], domain=RUNTIME,
                     reduction="mean"),
                node("ReduceSum", ["d_scores", "axes"], ["d_b3"], keepdims=0),
                node("Gemm", ["d_scores", "e"], ["d_w3"], transA=1), node("Gemm", ["d_scores", "w3"], ["d_e"]),
                node("GeluGrad", ["d_e", "n"], ["d_n"], domain=RUNTIME),
                node("LayerNormalizationGrad", ["d_n", "h", "g", "mean", "inverse"], ["d_h", "d_g", "d_be"],
                     domain=RUNTIME, **norm),
                node("ReduceSum", ["d_h", "axes"], ["d_b2"], keepdims=0),
                node("Gemm", ["d_h", "f"], ["d_w2"], transA=1), node("Gemm", ["d_h", "w2"], ["d_f"]),
                node("Reshape", ["d_f", "q_shape"], ["d_q"]),
                node("AveragePoolGrad", ["d_q"], ["d_p"], count_include_pad=0, **pool),
                node("MaxPoolGrad", ["d_p", "mask"], ["d_r"], storage_order=0, **pool),
                node("ReluGrad", ["d_r", "c"], ["d_c"], domain=RUNTIME),
                node("ConvGrad", ["d_c", "x", "w1"], ["", "d_w1", "d_b1"], domain=RUNTIME, **conv)]
    sums = [node("InPlaceAccumulatorV2", [f"{n}.buffer", f"d_{n}", "reset"], [f"{n}.out"], domain=RUNTIME)
            for n in SHAPES]
    return forward + backward + sums


def training_session(library):
    info = helper.make_tensor_value_info
    inputs = [info("x", 1, ["batch", 1, 8, 8]), info("labels", 7, ["batch"]), info("reset", 9, [1])]
    inputs += [info(n, 1, s) for n, s in SHAPES.items()] + [info(f"{n}.buffer", 1, s) for n, s in SHAPES.items()]
    outputs = [info("loss", 1, [])] + [info(f"{n}.out", 9, [1]) for n in SHAPES]
    shapes = [info("d_p", 1, ["batch", 4, 4, 4]), info("d_r", 1, ["batch", 4, 8, 8])]
    return session(library, training_nodes(), inputs, outputs, shapes)


def step(s, batch, parameters, buffers, reset, reset_name="reset"):
    binding = s.io_binding()
    given = {**batch, **parameters, reset_name: np.array([reset])}
    kept = {n: ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(a)) for n, a in given.items()}
    for name, value in {**kept, **buffers}.items():
        binding.bind_ortvalue_input(name, value)
    for result in s.get_outputs():
        binding.bind_output(result.name)
    s.run_with_iobinding(binding)
    return float(binding.get_outputs()[0].numpy())


def test_training(library, failures, draw):
    """Gradients against central differences of the loss; two batches are summed; a descent."""
    s = training_session(library)
    parameters = {n: draw.normal(0, 0.3, shape).astype(np.float32) for n, shape in SHAPES.items()}
    parameters["g"] += 1
    batch = {"x": draw.normal(0, 1, (6, 1, 8, 8)).astype(np.float32), "labels": draw.integers(0, 5, 6)}
    buffers = {f"{n}.buffer": ort.OrtValue.ortvalue_from_numpy(np.full(shape, 9, np.float32))
               for n, shape in SHAPES.items()}
    first = step(s, batch, parameters, buffers, True)
    gradients = {n: np.array(buffers[f"{n}.buffer"].numpy()) for n in SHAPES}
    for name, shape in SHAPES.items():
        way = draw.normal(0, 1, shape).astype(np.float32)
        way /= np.sqrt((way * way).sum())
        losses = [step(s, batch, {**parameters, name: parameters[name] + sign * 1e-2 * way}, buffers, True)
                  for sign in (1, -1)]
        failures.near(f"gradient of {name}", (losses[0] - losses[1]) / 2e-2, (gradients[name] * way).sum(), 3e-3)
    step(s, batch, parameters, buffers, True)
    step(s, batch, parameters, buffers, False)
    for name in SHAPES:
        failures.near(f"sum of two batches of {name}", buffers[f"{name}.buffer"].numpy(), 2 * gradients[name], 1e-5)
    for _ in range(30):
        last = step(s, batch, parameters, buffers, True)
        for name in SHAPES:
            parameters[name] = parameters[name] - np.float32(0.1) * buffers[f"{name}.buffer"].numpy()
    failures.runs += 1
    if not last < first / 2:
        failures.list.append(f"30 steps: the loss was {first} and is {last}")
    few = {"x": batch["x"][:3], "labels": batch["labels"][:3]}  # another batch size, the same session
    failures.runs += 1
    if not np.isfinite(step(s, few, parameters, buffers, True)):
        failures.list.append("a batch of 3")


def test_artifact(library, failures, draw):
    """A file as onnxruntime-training 1.19.2 made it, byte for byte."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ort_artifact.hex")
    with open(path, encoding="utf-8") as file:
        model = bytes.fromhex("".join(line for line in file if not line.startswith("#")))
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.register_custom_ops_library(library)
    s = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    shapes = {i.name: i.shape for i in s.get_inputs()}
    names = [name for name in shapes if f"{name}_grad.accumulation.buffer" in shapes]
    failures.runs += 1
    if names != ["c.w", "c.b", "f.w", "f.b"]:
        failures.list.append(f"the artifact has the parameters {names}")
    parameters = {n: draw.normal(0, 0.3, shapes[n]).astype(np.float32) for n in names}
    batch = {"x": draw.normal(0, 1, (6, 1, 8, 8)).astype(np.float32), "labels": draw.integers(0, 3, 6)}
    buffers = {f"{n}_grad.accumulation.buffer": ort.OrtValue.ortvalue_from_numpy(np.full(shapes[n], 9, np.float32))
               for n in names}
    step(s, batch, parameters, buffers, True, reset_name="lazy_reset_grad")
    gradients = {n: np.array(buffers[f"{n}_grad.accumulation.buffer"].numpy()) for n in names}
    for name in names:
        way = draw.normal(0, 1, shapes[name]).astype(np.float32)
        way /= np.sqrt((way * way).sum())
        losses = [step(s, batch, {**parameters, name: parameters[name] + sign * 1e-3 * way}, buffers, True,
                       reset_name="lazy_reset_grad") for sign in (1, -1)]  # fmt: skip
        failures.near(f"artifact: gradient of {name}", (losses[0] - losses[1]) / 2e-3, (gradients[name] * way).sum(), 1e-3)


def main():
    library, failures = os.path.abspath(sys.argv[1]), Failures()
    draw = np.random.default_rng(1)
    for test in (test_gather, test_slices, test_missing_gradient, test_accumulator, test_optimizers, test_optimizer_models,
                 test_training, test_artifact):
        test(library, failures, draw)
    for failure in failures.list[:20]:
        print(failure)
    print(f"ONNX Runtime {ort.__version__}: {failures.runs - len(failures.list)} passed, {len(failures.list)} failed")
    return 1 if failures.list else 0


if __name__ == "__main__":
    sys.exit(main())
