# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Every op beside PyTorch: `retrograde op` on random shapes, fields and views, both directions, against torch's own
functions and automatic differentiation in f64. How an op is compared stands in its folder, src/ops/OP/OP_torch.py: a
function compare(draw) that returns a Case (see torch_draw.py). An op without one is a failure.

    python3 torch_test.py PROGRAM [--op NAME]... [--cases N] [--seed S] [--case I] [--dtype T] [--keep FOLDER]

Exit status 77, with a word, where Python has no torch."""
import argparse
import collections
import concurrent.futures
import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
import traceback

sys.dont_write_bytecode = True  # nothing beside the sources
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SYSTEM_PYTHON = "/usr/bin/python3"  # the one that Debian's python3-torch belongs to

try:
    import numpy
    import torch
except ImportError as error:
    if os.path.exists(SYSTEM_PYTHON) and os.path.realpath(sys.executable) != os.path.realpath(SYSTEM_PYTHON):
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    print("skipped: %s (Debian: python3-torch)" % error)
    sys.exit(1 if os.environ.get("CI") == "true" else 77)

from torch_draw import Beyond, Draw

# How far a result may be from torch's, as a share of the largest element of torch's; of what goes into the largest
# element, where it is a sum in which much cancels.
TOLERANCE = {"f64": 1e-12, "f32": 1e-5, "f16": 2e-3, "bf16": 1e-2}
STORED = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
TRIES = 50  # drawings until torch can express one with a gradient


class Failure(Exception):
    """A case that went wrong; `command` is what was run, if anything was."""

    def __init__(self, text, command=()):
        super().__init__(text)
        self.command = command


# ---- files and the program ----


def rounded(array, dtype):
    """An array as a tensor that the dtype can hold, in f64; integers as they are."""
    tensor = torch.from_numpy(numpy.ascontiguousarray(array).reshape(numpy.shape(array)))
    return tensor.to(STORED[dtype]).double() if array.dtype.kind == "f" else tensor


class Run:
    """One case in one dtype, in a folder of its own."""

    def __init__(self, program, op, case, dtype, draw, folder):
        self.program, self.op, self.case, self.dtype, self.draw, self.folder = program, op, case, dtype, draw, folder
        self.command, self.alive = [], True

    def save(self, name, tensor, strided):
        """Writes a tensor and gives the operand: the whole file, or every second element of a larger one."""
        array = tensor.numpy()
        if array.dtype.kind == "f":  # NPY has no bf16: the program rounds f32, which changes nothing
            array = array.astype({"f64": "<f8", "f16": "<f2"}.get(self.dtype, "<f4"))
        path = os.path.join(self.folder, name + ".npy")
        if not strided or array.ndim == 0:
            numpy.save(path, array)
            return "%s=%s" % (name, path)
        wide = {self.draw.randrange(array.ndim), array.ndim - 1}  # dimensions with a stride of their own
        steps = [self.draw.choice((1, 2, 3)) if d in wide else 1 for d in range(array.ndim)]
        starts = [self.draw.choice((0, 1)) if d in wide else 0 for d in range(array.ndim)]
        whole = numpy.full([b + n * s for b, n, s in zip(starts, array.shape, steps)], 99, array.dtype)
        cut = tuple(slice(b, b + n * s, s) for b, n, s in zip(starts, array.shape, steps))
        whole[cut] = array
        numpy.save(path, whole)
        return "%s=%s[%s]" % (name, path, ",".join("%d:%d:%d" % (c.start, c.stop, c.step) for c in cut))

    def call(self, options, operands, results):
        """Runs the program; gives the results by name."""
        fields = []
        for name, value in self.case.fields.items():
            if isinstance(value, (list, tuple)):
                value = ",".join(map(str, value))
            fields += ["--" + name, str(value).lower() if isinstance(value, bool) else str(value)]
        self.command = [self.program, "op", self.op, *options, *fields, *operands]
        for name in results:
            self.command += ["-o", "%s=%s" % (name, self.path(name))]
        done = subprocess.run(self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        if done.returncode != 0:
            raise Failure("exit status %d: %s" % (done.returncode, done.stderr.decode().strip()), self.command)
        return {name: numpy.load(self.path(name)) for name in results}

    def path(self, name):
        return os.path.join(self.folder, "out-" + name + ".npy")

    # ---- one comparison ----

    def options(self):
        chosen = ["--threads", str(self.draw.choice((1, 1, 2, 3)))]
        if self.draw.maybe(0.25):
            chosen += ["--isa", "base"]
        return chosen + (["--dtype", "bf16"] if self.dtype == "bf16" else [])

    def run(self):
        """Gives the largest errors, in units of the tolerance: forward, gradient."""
        case, strided = self.case, self.draw.maybe(0.4)
        inputs = {name: rounded(array, self.dtype) for name, array in case.inputs.items()}
        operands = [self.save(name, tensor, strided) for name, tensor in inputs.items()]
        states = []
        forward = {}
        if case.states or not case.gradient or self.draw.maybe(0.25):
            names = ["state." + name for name in case.states]
            forward = self.call(self.options(), operands, [*case.outputs, *names])
            states = [forward.pop(name) for name in names]
        for name in case.gradient:
            inputs[name].requires_grad_()
        outputs = self.outputs(inputs.values(), states)
        dx, gradients = {}, {}
        if case.gradient:
            dy, dx = self.gradients(inputs, outputs)
            operands += [self.save("d" + name, tensor, strided) for name, tensor in dy.items()]
            names = ["d" + name for name in case.gradient]
            gradients = self.call([*self.options(), "--gradient"], operands, [*names, *outputs])
            forward.update((name, gradients[name]) for name in outputs if name not in forward)
        self.alive = any(bool((want != 0).any()) for want, _ in dx.values())
        moved = {} if case.exact else self.moved(inputs, outputs, states)
        worst = [0.0, 0.0]
        for name, want in outputs.items():
            worst[0] = max(worst[0], self.error(name, forward[name], want, moved.get(name), case.exact))
        for name, (want, size) in dx.items():
            worst[1] = max(worst[1], self.error("d" + name, gradients["d" + name], want, size, case.exact_gradient))
        return worst

    def outputs(self, inputs, states):
        outputs = self.case.torch(*inputs, *states)
        return dict(zip(self.case.outputs, outputs if isinstance(outputs, tuple) else (outputs,)))

    def signs(self, tensor):
        return torch.from_numpy(self.draw.numpy.choice((-1.0, 1.0), tuple(tensor.shape)).reshape(tensor.shape))

    def moved(self, inputs, outputs, states):
        """By how much outputs change with relative changes of the inputs: what goes into them."""
        step = 1e-6
        near = [x.detach() * (1 + step * self.signs(x)) if x.is_floating_point() else x for x in inputs.values()]
        near = self.outputs(near, states)
        return {name: (near[name] - y).abs().max().item() / step for name, y in outputs.items() if y.numel() > 0}

    def gradients(self, inputs, outputs):
        """A random dy of each output; what torch makes of them, and the size of what goes into that."""
        dy = {name: rounded(self.draw.array(tuple(y.shape)), self.dtype) for name, y in outputs.items()}
        differentiable = [name for name, y in outputs.items() if y.requires_grad]
        for name in outputs:
            if name not in differentiable:
                dy[name] = torch.zeros_like(dy[name])
        x = [inputs[name] for name in self.case.gradient]

        def backward(dy):
            dx = torch.autograd.grad([outputs[name] for name in differentiable], x, dy, retain_graph=True,
                                     allow_unused=True)
            return [torch.zeros_like(x) if d is None else d for x, d in zip(x, dx)]

        dx = backward([dy[name] for name in differentiable])
        other = backward([dy[name] * self.signs(dy[name]) for name in differentiable])  # where nothing cancels
        sizes = [d.abs().max().item() if d.numel() > 0 else 0 for d in other]
        return dy, dict(zip(self.case.gradient, zip(dx, sizes)))

    def error(self, name, got, want, size, exact):
        want = want.detach().numpy()
        if got.shape != want.shape:
            raise Failure("%s has the shape %s, torch's %s" % (name, got.shape, want.shape), self.command)
        if want.size == 0:
            return 0.0
        if want.dtype.kind != "f" or exact:
            wrong = numpy.argwhere(got.astype(want.dtype) != (
                rounded(want, self.dtype).numpy() if want.dtype.kind == "f" else want))
            if len(wrong) > 0:
                at = tuple(wrong[0])
                raise Failure("%s%s is %r, torch's %r; %d of %d elements differ" % (
                    name, [int(i) for i in at], got[at].item(), want[at].item(), len(wrong), want.size), self.command)
            return 0.0
        if not numpy.isfinite(want).all():
            raise Failure("torch's %s is not finite: the comparison must draw other numbers" % name, self.command)
        error = abs(got.astype(float) - want)
        error = numpy.where(numpy.isnan(error), numpy.inf, error)
        units = error / (TOLERANCE[self.dtype] * max(abs(want).max(), size, self.case.size, 1e-30))
        at = numpy.unravel_index(units.argmax(), units.shape)
        if units[at] > 1:
            raise Failure("%s%s is %.17g, torch's %.17g: %.3g times the tolerance (%g of the largest element); "
                          "%d of %d elements differ so" % (name, [int(i) for i in at], got[at], want[at], units[at],
                                                           TOLERANCE[self.dtype], (units > 1).sum(), want.size),
                          self.command)
        return units[at]


# ---- an op ----


class Result:
    def __init__(self):
        self.cases = self.runs = self.by_torch = self.empty = self.alive = 0
        self.forward, self.gradient = collections.defaultdict(float), collections.defaultdict(float)
        self.beyond = collections.Counter()
        self.failures = []


def has_gradient(case):
    """Whether torch's gradient says something: an all-zero one would agree with a kernel that does nothing."""
    inputs = [rounded(array, "f64") for array in case.inputs.values()]
    names = list(case.inputs)
    for name in case.gradient:
        inputs[names.index(name)].requires_grad_()
    outputs = case.torch(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    outputs = [y for y in outputs if y.requires_grad]
    if not outputs or all(y.numel() == 0 for y in outputs):
        return len(outputs) > 0
    wanted = [inputs[names.index(name)] for name in case.gradient]
    dy = [torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).reshape(y.shape) for y in outputs]
    dx = torch.autograd.grad(outputs, wanted, dy, allow_unused=True)
    return all(name in case.zero or x.numel() == 0 or (d is not None and bool((d != 0).any()))
               for name, x, d in zip(case.gradient, wanted, dx))


def draw_case(compare, op, seed, index, beyond):
    """A case that torch can express and whose gradient is not all zero, and the drawer it came from."""
    for attempt in range(TRIES):
        draw = Draw("%s %d %d %d" % (op, seed, index, attempt), index)
        try:
            case = compare(draw)
            if not case.gradient or case.states or has_gradient(case):
                return case, draw
        except Beyond as reason:
            beyond[str(reason)] += 1
    raise Failure("none of %d drawings has a gradient other than 0 that torch can express" % TRIES)


def dtypes_of(case, draw, only):
    wanted = ["f64", "f32", draw.choice(("f16", "bf16"))] if only is None else [only]
    return [dtype for dtype in wanted if case.dtypes is None or dtype in case.dtypes]


def run_case(options, op, compare, index, result):
    dtype = ""
    try:
        case, draw = draw_case(compare, op, options.seed, index, result.beyond)
        result.cases += 1
        result.by_torch += case.how is not None
        result.empty += any(array.size == 0 for array in case.inputs.values())
        for dtype in dtypes_of(case, draw, options.dtype):
            draw.restart("%s %d %d %s" % (op, options.seed, index, dtype))
            with tempfile.TemporaryDirectory() as folder:
                run = Run(options.program, op, case, dtype, draw, options.keep or folder)
                forward, gradient = run.run()
            result.runs += 1
            result.alive += run.alive
            result.forward[dtype] = max(result.forward[dtype], forward)
            if case.gradient:
                result.gradient[dtype] = max(result.gradient[dtype], gradient)
    except Failure as failure:
        words = ["FAILED %s, case %d %s: %s" % (op, index, dtype, failure)]
        if failure.command:
            words.append("    ran:   " + shlex.join(failure.command))
        words.append("    again: " + shlex.join([
            "python3", os.path.relpath(__file__), options.program, "--op", op, "--seed", str(options.seed),
            "--case", str(index), *(["--dtype", dtype] if dtype else []), "--keep",
            os.path.join(tempfile.gettempdir(), "torch-" + op)]))
        result.failures.append("\n".join(words))
    except Exception as error:  # of the comparison itself
        result.failures.append("FAILED %s, case %d %s, seed %d: the comparison: %r\n%s" % (
            op, index, dtype, options.seed, error, traceback.format_exc()))


def load_comparison(op):
    path = os.path.join(ROOT, "src", "ops", op, op + "_torch.py")
    if not os.path.exists(path):
        return None
    spec = importlib.util.spec_from_file_location(op + "_torch", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_op(options, pool, op):
    result = Result()
    module = load_comparison(op)
    if module is None:
        result.failures.append("FAILED %s has no comparison: write src/ops/%s/%s_torch.py, see docs/add-an-op.md"
                               % (op, op, op))
        return result
    indices = range(options.cases) if options.case is None else [options.case]
    done = [pool.submit(run_case, options, op, module.compare, index, result) for index in indices]
    for future in done:
        future.result()
    if options.case is None and 2 * result.alive < result.runs and result.gradient:
        result.failures.append("FAILED %s: only %d of %d runs have a gradient other than 0" % (
            op, result.alive, result.runs))
    if options.case is None and hasattr(module, "finish"):  # what only all cases together can tell
        result.failures += ["FAILED %s: %s" % (op, text) for text in module.finish(options.program)]
    return result


# ---- all of them ----


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--op", action="append", help="this one alone; may be repeated")
    parser.add_argument("--cases", type=int, default=60, help="of each op (default 60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="the one with this number alone")
    parser.add_argument("--dtype", choices=TOLERANCE, help="default: f64, f32, and f16 or bf16")
    parser.add_argument("--keep", metavar="FOLDER", help="leave the files there; with --case and --dtype")
    options = parser.parse_args(arguments)
    options.program = os.path.abspath(options.program)
    if options.keep:
        os.makedirs(options.keep, exist_ok=True)
    return options


def units(errors):
    return " ".join("%7s" % ("-" if dtype not in errors else "%.2g" % errors[dtype]) for dtype in TOLERANCE)


def main():
    options = parse(sys.argv[1:])
    torch.set_num_threads(1)
    listed = subprocess.run([options.program, "op", "--list"], stdout=subprocess.PIPE, check=True).stdout.decode()
    known = [line.split(":")[0] for line in listed.splitlines() if not line.startswith(" ")]
    unknown = sorted(set(options.op or []) - set(known))
    if unknown or not known:
        sys.exit("%s has no op %s" % (options.program, ", ".join(unknown)))
    print("torch %s, seed %d; errors in units of the tolerance, a share of the largest element: %s" % (
        torch.__version__, options.seed, ", ".join("%s %g" % item for item in TOLERANCE.items())))
    columns = " ".join("%7s" % dtype for dtype in TOLERANCE)
    print("%-14s %5s %5s %9s %6s %6s | forward: %s | gradient: %s" % (
        "op", "cases", "runs", "functions", "ours", "empty", columns, columns))
    failures = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() if options.case is None else 1) as pool:
        for op in options.op or known:
            r = run_op(options, pool, op)
            failures += r.failures
            print("%-14s %5d %5d %9d %6d %6d |          %s |           %s%s" % (
                op, r.cases, r.runs, r.by_torch, r.cases - r.by_torch, r.empty, units(r.forward), units(r.gradient),
                "  %d FAILED" % len(r.failures) if r.failures else ""), flush=True)
            for reason, count in sorted(r.beyond.items()):
                print("%14s drawn again %d times, beyond torch: %s" % ("", count, reason))
    for text in failures[:20]:
        print(text)
    if len(failures) > 20:
        print("and %d failures more" % (len(failures) - 20))
    print("%d failed" % len(failures) if failures else "all agree with torch")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
