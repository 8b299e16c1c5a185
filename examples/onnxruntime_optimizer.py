# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Makes optimizer_model.onnx of onnxruntime-training 1.19.2 run in a stock ONNX Runtime with libretrograde_ort.so.

usage: onnxruntime_optimizer.py optimizer_model.onnx NEW.onnx

The one node of that model has sequences of tensors as inputs, which operators of a library cannot have, and changes
their elements in place. The new model has the same inputs, as far as the node uses them, and maps the optimizer of
org.retrograde over the sequences; its results are the new sequences: new_params, and for AdamW
new_first_order_moments and new_second_order_moments. Needs the package onnx.
"""
import sys

import onnx
from onnx import TensorProto, helper

TYPES = {"learning_rate": TensorProto.FLOAT, "step": TensorProto.INT64}
OPTIMIZERS = {
    "AdamWOptimizer": (["learning_rate", "step"],
                       ["params", "gradients", "first_order_moments", "second_order_moments"]),
    "SGDOptimizerV2": (["learning_rate"], ["params", "gradients"]),
}


def for_stock_runtime(model):
    """The new model; `model` has one node, an optimizer of com.microsoft."""
    node = model.graph.node[0]
    if len(model.graph.node) != 1 or node.op_type not in OPTIMIZERS:
        raise ValueError("the model is none of one optimizer: " + ", ".join(n.op_type for n in model.graph.node))
    numbers, sequences = OPTIMIZERS[node.op_type]
    given = {i.name: i for i in model.graph.input}
    inputs = [given[name] for name in node.input[:len(numbers) + len(sequences)]]
    kind = inputs[len(numbers)].type.sequence_type.elem_type.tensor_type.elem_type
    results = ["new_" + name for name in sequences if name != "gradients"]

    def element(name):
        return helper.make_tensor_value_info("one_" + name, TYPES.get(name, kind), None)

    one = helper.make_node(node.op_type, ["one_" + n for n in numbers + sequences], ["one_" + n for n in results],
                           domain="org.retrograde",
                           **{a.name: helper.get_attribute_value(a) for a in node.attribute})
    body = helper.make_graph([one], "one_parameter", [element(n) for n in sequences + numbers],
                             [element(n) for n in results])
    names = [i.name for i in inputs]
    each = helper.make_node("SequenceMap", names[len(numbers):] + names[:len(numbers)], results, body=body)
    outputs = [helper.make_tensor_sequence_value_info(n, kind, None) for n in results]
    graph = helper.make_graph([each], "optimizer", inputs, outputs)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17),
                                                                 helper.make_opsetid("org.retrograde", 1)])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    onnx.save(for_stock_runtime(onnx.load(sys.argv[1])), sys.argv[2])
