# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""Steps of PyTorch for the networks that `retrograde train` has built in, with the same batch and
optimizer, on random images: for docs/performance.md.

On a CPU, images per second, the best 20 steps of many:

    OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=1 train_torch.py MODEL [BATCH [SECONDS]]

On a GPU, images per second of the plain loop, with one batch that stays on the device, or with
--graphs microseconds of a step that is captured as one CUDA graph: the least mean of 100 steps in
8 rounds. Both are done with images NCHW and channels last, in f32 without TF32:

    train_torch.py MODEL [BATCH [SECONDS]] --device cuda [--graphs]
"""

import argparse
import time

import torch
from torch import nn


class Block(nn.Module):
    """conv-norm-relu-conv-norm beside a shortcut, then relu."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside))
        self.shortcut = nn.Identity() if stride == 1 else nn.Sequential(
            nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        return torch.relu(self.path(x) + self.shortcut(x))


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
    "resnet": lambda: nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)),
}


class Training:
    """A network with its optimizer, and a batch that stays where it is."""

    def __init__(self, name, batch, device, layout, graphs):
        self.model = MODELS[name]().to(device, memory_format=layout)
        more = {"fused": True, "capturable": True} if graphs else {}
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, **more)
        self.images = torch.randn(batch, 1, 28, 28, device=device).to(memory_format=layout)
        self.labels = torch.randint(0, 10, (batch,), device=device)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(self.model(self.images), self.labels).backward()
        self.optimizer.step()

    def capture(self):
        """The step as one graph; a few run before, so that all is allocated and chosen."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(11):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay


def seconds_of(step, count, wait):
    wait()
    began = time.perf_counter()
    for _ in range(count):
        step()
    wait()
    return (time.perf_counter() - began) / count


def best_of(step, seconds, wait):
    """Of rounds of 20 steps, for so long."""
    best, end = float("inf"), time.time() + seconds
    while time.time() < end:
        best = min(best, seconds_of(step, 20, wait))
    return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("batch", nargs="?", type=int, default=64)
    parser.add_argument("seconds", nargs="?", type=float, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--graphs", action="store_true")
    given = parser.parse_args()
    cuda = given.device.startswith("cuda")
    if given.graphs and not cuda:
        parser.error("--graphs needs --device cuda")
    wait = torch.cuda.synchronize if cuda else lambda: None
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    best, of = float("inf"), ""
    for name in ("contiguous_format", "channels_last") if cuda else ("contiguous_format",):
        training = Training(given.model, given.batch, given.device, getattr(torch, name), given.graphs)
        if given.graphs:
            step = training.capture()
            took = min(seconds_of(step, 100, wait) for _ in range(8))
        else:
            took = best_of(training.step, given.seconds, wait)
        best, of = min((best, of), (took, name))
    what = "%.1f us a step" % (1e6 * best) if given.graphs else "%.0f images/s" % (given.batch / best)
    print("%s batch %d: %s (PyTorch %s, %s, best of many)" % (given.model, given.batch, what, torch.__version__, of))


if __name__ == "__main__":
    main()
