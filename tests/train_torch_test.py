# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Ten training steps of whole networks beside PyTorch, from the same weights and data.

usage: train_torch_test.py PROGRAM [DEVICE]      PROGRAM is train_steps
In f64 losses and weights agree to 1e-9, in f32 losses to 1e-3. Status 77: there is no PyTorch.
"""

import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError:
    SYSTEM_PYTHON = "/usr/bin/python3"  # the one that Debian's python3-torch belongs to
    if os.path.exists(SYSTEM_PYTHON) and os.path.realpath(sys.executable) != os.path.realpath(SYSTEM_PYTHON):
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    print("skipped: there is no PyTorch (Debian: python3-torch)")
    sys.exit(1 if os.environ.get("CI") == "true" else 77)

STEPS, BATCH, HEIGHT, WIDTH, CLASSES, RATE = 10, 8, 14, 14, 10, 0.01

LENET = """
conv 6 window=5 padding.policy=same
neuron
pool
conv 12 window=5 padding.policy=same
neuron
pool
dense 32
neuron
dense classes
"""


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    kinds = {"F32": "f4", "F64": "f8", "I64": "i8"}
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        part = data[8 + length + begin:8 + length + end]
        tensors[name] = np.frombuffer(part, kinds[entry["dtype"]]).reshape(entry["shape"]).copy()
    return header["__metadata__"], tensors


def read_model(text):
    """The layers of a model: label, op, fields, sources."""
    layers = []
    for line in text.splitlines():
        words = line.split("#")[0].replace(",", " ").split()
        if not words:
            continue
        label = words.pop(0)[:-1] if words[0].endswith(":") else None
        op = words.pop(0)
        label = label or f"{op}{len(layers) + 1}"
        sources = []
        if "from" in words:
            at = words.index("from")
            sources, words = words[at + 1:], words[:at]
        fields = dict(word.split("=") for word in words if "=" in word)
        layers.append((label, op, fields, sources))
    return layers


def pad_same(x, window, stride):
    """MPS's centred padding: an odd pixel goes to the top and to the left."""
    for dim, at in ((2, 2), (3, 0)):
        size = x.shape[dim]
        extra = max((-(-size // stride) - 1) * stride + window - size, 0)
        before = (extra + 1) // 2
        amounts = [0, 0, 0, 0]
        amounts[at], amounts[at + 1] = before, extra - before
        x = F.pad(x, amounts)
    return x


def run_layer(op, fields, inputs, weights, label, statistics):
    x = inputs[0]
    if op == "conv":
        stride = int(fields.get("stride", 1))
        if fields.get("padding.policy") == "same":
            x = pad_same(x, int(fields["window"]), stride)
        w = weights[label + ".w"].permute(0, 3, 1, 2)
        return F.conv2d(x, w, weights.get(label + ".b"), stride)
    if op == "neuron":
        return F.relu(x)
    if op == "pool":
        return F.max_pool2d(x, 2)
    if op == "batch_norm":
        mean, variance = statistics[label + ".mean"], statistics[label + ".variance"]
        return F.batch_norm(x, mean, variance, weights[label + ".gamma"], weights[label + ".beta"],
                            True, 0.1, 1e-5)
    if op == "arithmetic":
        return inputs[0] + inputs[1]
    if op == "reduce":
        return x.mean((2, 3), keepdim=True)
    if op == "dense":
        w = weights[label + ".w"]
        x = x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)
        y = F.linear(x, w.reshape(w.shape[0], -1), weights[label + ".b"])
        return y.reshape(y.shape[0], -1, 1, 1)
    raise ValueError(op)


def run_network(layers, x, weights, statistics):
    values, last = {"input": x}, "input"
    for label, op, fields, sources in layers:
        inputs = [values[name] for name in sources or [last]]
        values[label] = run_layer(op, fields, inputs, weights, label, statistics)
        last = label
    return values[last].reshape(x.shape[0], -1)


def train_with_torch(folder, dtype, optimizer):
    meta, start = read_safetensors(f"{folder}/before.safetensors")
    layers = read_model(meta["model"])
    weights, statistics = {}, {}
    for name, value in start.items():
        tensor = torch.tensor(value, dtype=dtype)
        if name.endswith((".mean", ".variance")):
            statistics[name] = tensor
        elif name.endswith((".w", ".b", ".gamma", ".beta")):
            weights[name] = tensor.requires_grad_()
    if optimizer == "sgd":
        steps = torch.optim.SGD(weights.values(), lr=RATE, momentum=0.9)
    else:
        steps = torch.optim.Adam(weights.values(), lr=RATE)
    losses = []
    with open(f"{folder}/data", "rb") as file:
        for _ in range(STEPS):
            x = np.frombuffer(file.read(8 * BATCH * HEIGHT * WIDTH)).reshape(BATCH, 1, HEIGHT, WIDTH)
            labels = np.frombuffer(file.read(4 * BATCH), "i4").astype("i8")
            steps.zero_grad()
            y = run_network(layers, torch.tensor(x.copy(), dtype=dtype), weights, statistics)
            loss = F.cross_entropy(y, torch.tensor(labels))
            loss.backward()
            steps.step()
            losses.append(loss.item())
    return losses, weights | statistics, start


def compare(program, model, dtype, optimizer, device, folder):
    subprocess.run([program, model, dtype, optimizer, device, folder], check=True)
    kind = torch.float64 if dtype == "f64" else torch.float32
    losses, theirs, start = train_with_torch(folder, kind, optimizer)
    with open(f"{folder}/losses", encoding="utf-8") as file:
        ours = [float(line) for line in file]
    _, after = read_safetensors(f"{folder}/after.safetensors")
    assert len(ours) == STEPS and len(theirs) > 5
    apart = max(abs(a - b) / abs(b) for a, b in zip(ours, losses))
    moved, most = 0, 0
    for name, tensor in theirs.items():
        value = tensor.detach().numpy()
        most = max(most, np.abs(after[name] - value).max() / max(np.abs(value).max(), 1e-30))
        moved = max(moved, np.abs(after[name] - start[name]).max())
    ok = apart < (1e-9 if dtype == "f64" else 1e-3) and moved > 1e-3
    ok = ok and (dtype != "f64" or most < 1e-9)
    print(f"{os.path.basename(model):12} {dtype} {optimizer:5} {device}: losses {losses[0]:.4f} to "
          f"{losses[-1]:.4f}, apart {apart:.1e}, weights apart {most:.1e}  {'ok' if ok else 'FAILED'}")
    return ok


def main():
    program = sys.argv[1]
    device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
    good = True
    with tempfile.TemporaryDirectory() as folder:
        lenet = f"{folder}/lenet.txt"
        with open(lenet, "w", encoding="utf-8") as file:
            file.write(LENET)
        for model in (lenet, "resnet"):
            for dtype in ("f64", "f32"):
                for optimizer in ("sgd", "adam"):
                    good &= compare(program, model, dtype, optimizer, device, folder)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
