# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Fine-tuning of an ONNX model beside PyTorch: the whole recipe, in f64. Images in the same random order, normalization,
validation part, optimizer, schedule, weight decay, running statistics: losses of all epochs and all parameters agree.

usage: onnx_torch_test.py PROGRAM                Status 77: there is no PyTorch.
"""
import csv
import json
import os
import pathlib
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

from onnx_made import classifier

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
IMAGES, BATCH, EPOCHS, RATE, MOMENTUM, DECAY = 150, 16, 3, 0.02, 0.9, 0.01

# ---- random numbers by counter, as src/train/random.h has them ----

MASK, GOLDEN = (1 << 64) - 1, 0x9E3779B97F4A7C15


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def random_key(of, part):
    return mix((mix(of + GOLDEN & MASK) + (part + 1) * GOLDEN) & MASK)


def random_order(key, count):
    """The numbers 0 to count - 1, by Fisher and Yates."""
    order = list(range(count))
    for i in range(count - 1, 0, -1):
        j = mix(key + (i + 1) * GOLDEN & MASK) * (i + 1) >> 64
        order[i], order[j] = order[j], order[i]
    return order


def split(count, fraction, seed):
    """The images of the training and of the validation part, each in the order of the data set."""
    taken = set(random_order(random_key(seed, 0), count)[:int(count * fraction + 0.5)])
    return [i for i in range(count) if i not in taken], sorted(taken)


def batches(count, batch, seed, epoch):
    order = random_order(random_key(random_key(seed, 1), epoch), count)
    return [order[i:i + batch] for i in range(0, count, batch)]


# ---- the same training ----


def read_parameters(path):
    """Parameters of a checkpoint in f64, with the dimensions of the file."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    found = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name.split(".")[0] in ("conv", "bn", "fc") and name.count(".") == 1:
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            value = torch.from_numpy(np.frombuffer(data[begin:end], "<f8").reshape(entry["shape"]).copy())
            found[name] = value.permute(0, 3, 1, 2).contiguous() if value.dim() == 4 else value
    return found


def forward(x, p, training):
    x = F.conv2d(x, p["conv.weight"], p["conv.bias"], padding=1)
    x = F.batch_norm(x, p["bn.running_mean"], p["bn.running_var"], p["bn.weight"], p["bn.bias"], training, 0.1, 1e-5)
    return F.linear(F.max_pool2d(F.relu(x), 2).flatten(1), p["fc.weight"], p["fc.bias"])


def follow(x, labels, p, seed):
    """Losses of every epoch and the parameters at its end, as PyTorch has them."""
    train, validation = split(len(x), 0.1, seed + 1)
    mean, deviation = (f(x[train].transpose(0, 1).flatten(1)) for f in (lambda v: v.mean(1), lambda v: v.std(1, unbiased=False)))
    x = (x - mean.view(1, -1, 1, 1)) / deviation.view(1, -1, 1, 1)
    weights = {name: value.requires_grad_() for name, value in p.items() if "running" not in name}
    optimizer = torch.optim.SGD([{"params": [value for value in weights.values() if value.dim() > 1], "weight_decay": DECAY},
                                 {"params": [value for value in weights.values() if value.dim() == 1]}], RATE, MOMENTUM)
    steps = EPOCHS * -(-len(train) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses = []
    for epoch in range(EPOCHS):
        total = 0
        for batch in batches(len(train), BATCH, seed, epoch):
            rows = [train[i] for i in batch]
            loss = F.cross_entropy(forward(x[rows], p, True), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss) * len(rows)
        with torch.no_grad():
            unseen = float(F.cross_entropy(forward(x[validation], p, False), labels[validation]))
        losses.append((total / len(train), unseen))
    return losses, p


def main():
    random = np.random.RandomState(3)
    labels = random.randint(0, 3, IMAGES).astype("<i4")
    rows = np.arange(8)[None, :, None, None] * 3 // 8 == labels[:, None, None, None]
    x = (random.rand(IMAGES, 8, 8, 2) + 0.5 * rows).astype("<f4")
    for seed in (1, 7):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "data").mkdir()
            for part, take in (("train", slice(0, IMAGES)), ("test", slice(0, 30))):
                np.save(folder / "data" / f"x_{part}.npy", x[take])
                np.save(folder / "data" / f"y_{part}.npy", labels[take])
            (folder / "model.onnx").write_bytes(classifier(channels=2, ratio=0.0))
            train = [PROGRAM, "train", "model.onnx", "--data", "data", "--dtype", "f64", "--optimizer", "sgd", "--seed", str(seed),
                     "--epochs", str(EPOCHS), "--batch", str(BATCH), "--rate", str(RATE), "--momentum", str(MOMENTUM), "--decay", str(DECAY)]
            subprocess.run([*train, "--rate", "*=0", "--out", "first"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
            subprocess.run([*train, "--out", "run"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
            start, last = (read_parameters(folder / run / "checkpoint.safetensors") for run in ("first", "run"))
            start["bn.running_mean"], start["bn.running_var"] = torch.zeros(6).double(), torch.ones(6).double()
            losses, ends = follow(torch.from_numpy(x).double().permute(0, 3, 1, 2), torch.from_numpy(labels).long(), start, seed)
            with open(folder / "run" / "metrics.csv", newline="") as file:
                ours = [(float(row["train_loss"]), float(row["validation_loss"])) for row in csv.DictReader(file)]
            for epoch, (a, b) in enumerate(zip(ours, losses)):
                assert np.allclose(a, b, rtol=1e-9, atol=0), (seed, epoch, a, b)
            for key in last:
                error = float((last[key] - ends[key].detach()).abs().max())
                assert error < 1e-10, (seed, key, error)


main()
