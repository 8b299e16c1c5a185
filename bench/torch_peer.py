# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""PyTorch beside `retrograde bench`: reads one line of JSON for each row, answers with one.

    {"op": "softmax", "fields": {"axis": "1", ...}, "shapes": [[8192, 1024]], "dtype": "f32",
     "direction": "gradient", "only": "", "device": "cuda:0", "compile": false, "tf32": false,
     "replay": false, "nchw": false, "state": false, "calls": 1, "commits": 100, "threads": 2,
     "seconds": 0.6}

gives {"ms": median of one call, "view": false} or {"skip": "reason"}. On a CPU the clock runs while `calls` are made
one after the other, `commits` times in a round, as for our own kernels. "view" says that torch by itself would return
a view where the timed call writes a tensor (torch_fields.py). With "compile" the formula is written out
and compiled by torch.compile for this shape (torch_formulas.py); otherwise torch's own kernel is
called (torch_kernels.py). With "nchw" the memory of images is NCHW, with "state" our forward pass keeps
what its gradient reads. With "replay" the calls of a round are one CUDA graph. The first line of all says what there is:

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
import types

LEAST, MOST = 7, 4096  # rounds
ROUND_MS, MOST_CALLS, REPLAYS = 5, 2000, 4  # of a round on a GPU

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


def load(name, text):
    """Makes a module of its text: the program carries the files of this folder in itself."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(text, name + ".py", "exec"), module.__dict__)


MODULES = ("torch_fields", "torch_training", "torch_kernels", "torch_formulas")  # as they import each other
for name, text in zip(MODULES, sys.argv[1:]):
    load(name, text)
from torch_fields import Skip, as_nchw, returns_view
from torch_formulas import FORMULAS
from torch_kernels import KERNELS

DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}


def call_of(row):
    """What is timed, without arguments."""
    ops = FORMULAS if row["compile"] else KERNELS
    if row["op"] not in ops:
        raise Skip("no function of torch stands for " + row["op"])

    def make(shape):
        x = torch.rand(shape, dtype=torch.float32, device=row["device"])
        x = x.mul_(4).sub_(2).to(DTYPES[row["dtype"]])
        return as_nchw(x) if row["nchw"] and x.dim() == 4 else x

    gradient = row["direction"] == "gradient" and (row["only"] or True)
    fields = dict(row["fields"], state="true" if row["state"] else "false")
    made = ops[row["op"]](fields, row["shapes"], make, gradient)
    if not row["compile"]:
        return made
    dynamo = importlib.import_module("torch._dynamo")
    dynamo.reset()  # or it gives up on functions that met too many shapes
    function, arguments = made
    compiled = torch.compile(function, dynamic=False, fullgraph=True)
    return lambda: compiled(*arguments)


# ---- timing ----


def cpu_round(call, calls, commits):
    seconds = 0
    for _ in range(commits):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        seconds += time.perf_counter() - start
    return 1e3 * seconds / (calls * commits)


def gpu_round(call, calls):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / calls


def median(one_round, seconds):
    times, end = [], time.perf_counter() + seconds
    while len(times) < LEAST or (len(times) < MOST and time.perf_counter() < end):
        times.append(one_round())
    return statistics.median(times)


def measure_cpu(call, calls, commits, seconds):
    """The first round warms up; where it takes too long already, it counts."""
    start = time.perf_counter()
    first = cpu_round(call, calls, commits)
    left = seconds - (time.perf_counter() - start)
    return median(lambda: cpu_round(call, calls, commits), left) if left > 0 else first


def graph_of(call, calls):
    """So many calls, launched as one."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph


def measure_gpu(call, seconds, replay):
    """Rounds of many calls, so that launching and waiting are hidden as they are in a program."""
    gpu_round(call, 1)
    each = gpu_round(graph_of(call, 8).replay, 1) / 8 if replay else gpu_round(call, 8)
    calls = min(MOST_CALLS, math.ceil(min(ROUND_MS, 1e3 * seconds / LEAST) / max(each, 1e-3)))
    if replay:
        part = math.ceil(calls / REPLAYS)
        graph = graph_of(call, part)
        gpu_round(graph.replay, REPLAYS)
        return median(lambda: gpu_round(graph.replay, REPLAYS), seconds) / part
    gpu_round(call, calls)
    return median(lambda: gpu_round(call, calls), seconds)


def run(row):
    torch.set_num_threads(row["threads"])
    on_gpu = row["device"] != "cpu"
    if on_gpu:
        torch.cuda.set_device(row["device"])
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = row["tf32"]
    call = call_of(row)
    if row["compile"]:
        call()  # compiles: not timed
    seconds = row["seconds"]
    if on_gpu:
        ms = measure_gpu(call, seconds, row["replay"])
    else:
        ms = measure_cpu(call, row["calls"], row["commits"], seconds)
    return {"ms": ms, "view": returns_view(row["op"], row["fields"], row["direction"] == "gradient")}


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
