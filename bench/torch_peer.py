# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""PyTorch beside `retrograde bench`: reads one line of JSON for each row, answers with one.

    {"op": "softmax", "fields": {"axis": "1", ...}, "shapes": [[8192, 1024]], "dtype": "f32",
     "direction": "gradient", "threads": 2, "seconds": 0.6}

gives {"ms": median of one call} or {"skip": "reason"}. Results go into tensors made before.
"""
import json
import statistics
import sys
import time

LEAST, MOST = 7, 4096


def answer(**values):
    print(json.dumps(values), flush=True)


try:
    import torch
except ImportError as error:
    answer(skip=str(error))
    sys.exit(0)


# ---- from ops to functions of torch, by the op's name ----


def softmax(fields, shapes, dtype, gradient):
    """The call to time, without arguments."""
    shape, axis = shapes[0], int(fields["axis"])
    if fields["flatten"] == "true":
        axis %= len(shape)
        length = 1
        for dim in shape[axis:]:
            length *= dim
        shape = shape[:axis] + [length]
    log = fields["kind"] == "log"
    x = torch.rand(shape, dtype=torch.float32).mul_(4).sub_(2).to(dtype)
    y = torch.empty_like(x)
    forward = torch._log_softmax if log else torch._softmax
    if not gradient:
        return lambda: forward(x, axis, False, out=y)
    forward(x, axis, False, out=y)
    dy, dx = x, torch.empty_like(x)  # x is no longer needed: any values will do
    if log:
        return lambda: torch._log_softmax_backward_data(dy, y, axis, dtype, out=dx)
    return lambda: torch._softmax_backward_data(dy, y, axis, dtype, grad_input=dx)


OPS = {"softmax": softmax}
DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}


# ---- timing ----


def timed(call):
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def measure(call, seconds):
    """The first call warms up; where it takes too long already, it counts."""
    end = time.perf_counter() + seconds
    first = timed(call)
    if first >= 1e3 * seconds:
        return first
    times = []
    while len(times) < LEAST or (len(times) < MOST and time.perf_counter() < end):
        times.append(timed(call))
    return statistics.median(times)


def run(row):
    if row["op"] not in OPS:
        return {"skip": "no function stands for " + row["op"]}
    torch.set_num_threads(row["threads"])
    call = OPS[row["op"]](
        row["fields"], row["shapes"], DTYPES[row["dtype"]], row["direction"] == "gradient"
    )
    return {"ms": measure(call, row["seconds"])}


def main():
    torch.set_grad_enabled(False)
    answer(ready=torch.__version__)
    for line in sys.stdin:
        try:
            answer(**run(json.loads(line)))
        except (RuntimeError, NotImplementedError, TypeError, AttributeError) as error:
            answer(skip=str(error).split("\n")[0][:200])


main()
