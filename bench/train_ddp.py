# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Steps of PyTorch's DistributedDataParallel with gloo, for docs/distributed.md: the networks of train_torch.py, and
ResNet-18 on images of 64x64, with SGD, on random images that stay in memory.

    train_ddp.py MODEL BATCH RANKS THREADS [SECONDS]

BATCH is that of all ranks, THREADS those of each. Prints images per second, the best 10 steps of many."""
import os
import sys
import time

import torch
from torch import distributed, multiprocessing, nn

import train_torch


class Net18(nn.Module):
    """ResNet-18 as it is for images of 224x224: 7x7 stem, max pooling, four stages of two blocks."""

    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        inside = 64
        for outside, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [train_torch.Block(inside, outside, stride), train_torch.Block(outside, outside, 1)]
            inside = outside
        self.net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))

    def forward(self, x):
        return self.net(x)


def train(rank, name, batch, ranks, threads, seconds):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29531")
    distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.set_num_threads(threads)
    model = Net18() if name == "resnet18" else train_torch.MODELS[name]()
    model = nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
    shape = (3, 64, 64) if name == "resnet18" else (1, 28, 28)
    images, labels = torch.randn(batch // ranks, *shape), torch.randint(0, 10, (batch // ranks,))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    best, end = float("inf"), time.time() + seconds
    count = 10
    while True:
        began = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
        best = min(best, (time.perf_counter() - began) / count)
        over = torch.tensor([int(time.time() > end)])  # ranks end together
        distributed.broadcast(over, 0)
        if over:
            break
    if rank == 0:
        print("%s batch %d, %d ranks of %d threads: %.0f images/s (PyTorch %s, gloo)"
              % (name, batch, ranks, threads, batch / best, torch.__version__))  # fmt: skip
    distributed.destroy_process_group()


def main():
    name, batch, ranks, threads = sys.argv[1], *map(int, sys.argv[2:5])
    seconds = float(sys.argv[5]) if len(sys.argv) > 5 else 10
    multiprocessing.spawn(train, (name, batch, ranks, threads, seconds), nprocs=ranks)


if __name__ == "__main__":
    main()
