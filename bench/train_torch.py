# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Images per second of PyTorch for the networks that `retrograde train` has built in, with the same
batch and optimizer, on random images: for docs/performance.md, on a CPU.

usage: OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=1 train_torch.py MODEL [BATCH [SECONDS]]
"""

import sys
import time

import torch
from torch import nn

MODELS = {
    "small": lambda: nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 49, 10)),
    "lenet": lambda: nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10)),
    "mlp": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
        nn.Linear(128, 10)),
}


def main():
    name = sys.argv[1]
    batch = int(sys.argv[2]) if len(sys.argv) > 2 else 64
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 10
    model = MODELS[name]()
    steps = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, t = torch.randn(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
    best = 0
    end = time.time() + seconds
    while time.time() < end:
        began = time.time()
        for _ in range(20):
            steps.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(x), t)
            loss.backward()
            steps.step()
        best = max(best, 20 * batch / (time.time() - began))
    print(f"{name} batch {batch}: {best:.0f} images/s (PyTorch {torch.__version__}, best of many)")


main()
