# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""PyTorch beside `retrograde bench`: reads one line of JSON for each row, answers with one.

    {"op": "softmax", "fields": {"axis": "1", ...}, "shapes": [[8192, 1024]], "dtype": "f32",
     "direction": "gradient", "device": "cuda:0", "compile": false, "threads": 2, "seconds": 0.6}

gives {"ms": median of one call} or {"skip": "reason"}. With "compile" the formula is written out
and compiled by torch.compile for this shape; otherwise torch's own kernel is called, and its
results go into tensors made before. The first line of all says what there is:

    {"ready": "2.4.0", "compile": true, "cuda": true}
"""
import gc
import importlib
import json
import math
import os
import statistics
import sys
import time

LEAST, MOST = 7, 4096  # turns
TURN_MS, MOST_CALLS = 5, 2000  # of a turn on a GPU

# What others print must not get among the answers.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no processes of its own


def answer(**values):
    print(json.dumps(values), file=answers, flush=True)


try:
    import torch
except (ImportError, OSError) as error:
    answer(skip=str(error))
    sys.exit(0)


class Skip(Exception):
    """This row has no counterpart in torch."""


# ---- from ops to functions of torch, by the op's name ----
#
# Each is given the fields, the shape, a function that makes a tensor of a shape, and the direction.
# Those that call torch's kernels return a call without arguments; those that write out the formula
# return a function and its arguments.


def softmax_place(fields, shape):
    """Shape and axis, with what is normalised together as one dimension."""
    axis = int(fields["axis"]) % len(shape)
    if fields["flatten"] == "true":
        shape = shape[:axis] + [math.prod(shape[axis:])]
    return shape, axis, fields["kind"] == "log"


def softmax(fields, shape, make, gradient):
    shape, axis, log = softmax_place(fields, shape)
    x = make(shape)
    y = torch.empty_like(x)
    forward = torch._log_softmax if log else torch._softmax
    if not gradient:
        return lambda: forward(x, axis, False, out=y)
    forward(x, axis, False, out=y)
    dy, dx = x, torch.empty_like(x)  # x is no longer needed: any values will do
    if log:
        return lambda: torch._log_softmax_backward_data(dy, y, axis, x.dtype, out=dx)
    return lambda: torch._softmax_backward_data(dy, y, axis, x.dtype, grad_input=dx)


# a and b where they are not given.
USUAL = {"relu": (0, 0), "tanh": (1, 1), "elu": (1, 0)}


def neuron_fields(fields):
    kind = fields["kind"]
    a, b = USUAL.get(kind, (0, 0))
    a = a if fields["a"] == "none" else float(fields["a"])
    b = b if fields["b"] == "none" else float(fields["b"])
    if kind not in ("relu", "sigmoid", "tanh", "elu", "gelu"):
        raise Skip("torch is not asked for " + kind)
    return kind, a, b, fields["from_y"] == "true"


def neuron(fields, shape, make, gradient):
    kind, a, b, from_y = neuron_fields(fields)
    if kind == "tanh" and (a, b) != (1, 1):
        raise Skip("torch's tanh has no factors")
    if gradient and kind in ("sigmoid", "tanh") and not from_y:
        raise Skip(f"torch's gradient of {kind} reads y, not x")
    aten = torch.ops.aten
    x = make(shape)
    result = torch.empty_like(x)
    if not gradient:
        if kind == "elu":
            return lambda: aten.elu.out(x, a, out=result)
        if kind != "relu":
            out = {"sigmoid": aten.sigmoid.out, "tanh": aten.tanh.out, "gelu": aten.gelu.out}[kind]
            return lambda: out(x, out=result)
        if a == 0:
            return lambda: torch.clamp_min(x, 0, out=result)
        return lambda: aten.leaky_relu.out(x, a, out=result)
    dy = make(shape)
    if kind == "elu":
        return lambda: aten.elu_backward.grad_input(dy, a, 1, 1, from_y, x, grad_input=result)
    if kind == "gelu":
        return lambda: aten.gelu_backward.grad_input(dy, x, grad_input=result)
    if kind == "sigmoid":
        return lambda: aten.sigmoid_backward.grad_input(dy, x, grad_input=result)
    if kind == "tanh":
        return lambda: aten.tanh_backward.grad_input(dy, x, grad_input=result)
    if a == 0:
        return lambda: aten.threshold_backward.grad_input(dy, x, 0, grad_input=result)
    return lambda: aten.leaky_relu_backward.grad_input(dy, x, a, False, grad_input=result)


def wide(tensor):
    """16 bits are computed in 32."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def softmax_formula(fields, shape, make, gradient):
    shape, axis, log = softmax_place(fields, shape)
    x = make(shape)
    forward = torch.log_softmax if log else torch.softmax
    if not gradient:
        return (lambda x: forward(x, axis)), (x,)

    def plain_gradient(dy, y):
        g, p = wide(dy), wide(y)
        return ((g - (g * p).sum(axis, keepdim=True)) * p).to(dy.dtype)

    def log_gradient(dy, y):
        g, p = wide(dy), wide(y)
        return (g - torch.exp(p) * g.sum(axis, keepdim=True)).to(dy.dtype)

    return (log_gradient if log else plain_gradient), (x, forward(x, axis))


def neuron_formula(fields, shape, make, gradient):
    kind, a, b, from_y = neuron_fields(fields)

    def function(x):
        if kind == "relu":
            return torch.relu(x) if a == 0 else torch.where(x > 0, x, a * x)
        if kind == "elu":
            return torch.where(x > 0, x, a * torch.expm1(x))
        if kind == "gelu":
            return torch.nn.functional.gelu(x)
        return torch.sigmoid(x) if kind == "sigmoid" else a * torch.tanh(b * x)

    def forward(x):
        return function(wide(x)).to(x.dtype)

    def gelu_slope(x):
        bell = torch.exp(-x * x / 2) * (2 * math.pi) ** -0.5
        return (1 + torch.erf(x * 0.5**0.5)) / 2 + x * bell

    def backward(dy, read):
        g, r = wide(dy), wide(read)
        if kind == "relu":
            return torch.where(r > 0, g, a * g).to(dy.dtype)
        if kind == "elu":
            return torch.where(r > 0, g, g * (r + a if from_y else a * torch.exp(r))).to(dy.dtype)
        if kind == "gelu":
            return (g * gelu_slope(r)).to(dy.dtype)
        y = r if from_y else function(r)
        slope = y * (1 - y) if kind == "sigmoid" else b * (a - y * y / a)
        return (g * slope).to(dy.dtype)

    return (backward, (make(shape), make(shape))) if gradient else (forward, (make(shape),))


OPS = {"softmax": softmax, "neuron": neuron}
FORMULAS = {"softmax": softmax_formula, "neuron": neuron_formula}
DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}


def call_of(row):
    """What is timed, without arguments."""
    ops = FORMULAS if row["compile"] else OPS
    if row["op"] not in ops:
        raise Skip("no function of torch stands for " + row["op"])

    def make(shape):
        x = torch.rand(shape, dtype=torch.float32, device=row["device"])
        return x.mul_(4).sub_(2).to(DTYPES[row["dtype"]])

    made = ops[row["op"]](row["fields"], row["shapes"][0], make, row["direction"] == "gradient")
    if not row["compile"]:
        return made
    dynamo = importlib.import_module("torch._dynamo")
    dynamo.reset()  # or it gives up on functions that met too many shapes
    function, arguments = made
    compiled = torch.compile(function, dynamic=False, fullgraph=True)
    return lambda: compiled(*arguments)


# ---- timing ----


def turn_cpu(call):
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def turn_gpu(call, calls):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / calls


def median(turn, seconds):
    times, end = [], time.perf_counter() + seconds
    while len(times) < LEAST or (len(times) < MOST and time.perf_counter() < end):
        times.append(turn())
    return statistics.median(times)


def measure_cpu(call, seconds):
    """The first call warms up; where it takes too long already, it counts."""
    first = turn_cpu(call)
    if first >= 1e3 * seconds:
        return first
    return median(lambda: turn_cpu(call), seconds - 1e-3 * first)


def measure_gpu(call, seconds):
    """Turns of many calls, so that launching and waiting are hidden as they are in a program."""
    turn_gpu(call, 1)
    calls = min(MOST_CALLS, math.ceil(TURN_MS / max(turn_gpu(call, 8), 1e-3)))
    turn_gpu(call, calls)
    return median(lambda: turn_gpu(call, calls), seconds)


def run(row):
    torch.set_num_threads(row["threads"])
    on_gpu = row["device"] != "cpu"
    if on_gpu:
        torch.cuda.set_device(row["device"])
    call = call_of(row)
    if row["compile"]:
        call()  # compiles: not timed
    return {"ms": (measure_gpu if on_gpu else measure_cpu)(call, row["seconds"])}


def answer_to(line):
    try:
        return run(json.loads(line))
    except Exception as error:  # whatever it is: the next row may do
        return {"skip": (str(error) or repr(error)).split("\n")[0][:200]}


def give_memory_back():
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def main():
    torch.set_grad_enabled(False)
    answer(
        ready=torch.__version__, compile=hasattr(torch, "compile"), cuda=torch.cuda.is_available()
    )
    for line in sys.stdin:
        result = answer_to(line)
        give_memory_back()
        answer(**result)


main()
