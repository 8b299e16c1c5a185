# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
"""What many ranks would reach: replays the steps of ResNet-50 on a model of a network, for docs/distributed.md.

    ranks_model.py [--images-per-second X] [--batch N] [--bucket MB] [--ranks 8,64,1024] [--staged GB/s]

A step is a forward pass and a backward pass, whose time is divided among layers as their operations are, then the
update. A bucket of gradients is ready when its layers are; buckets are summed one after the other, beside the backward
pass, as the trainer does it. A sum of n bytes over r ranks takes

    halving and doubling   2 log2(r) latency + 2 (r - 1)/r n / bandwidth + (r - 1)/r n / adding
    ring                   2 (r - 1) latency + the same

A rank sends and receives at the full bandwidth at once, switches do not slow each other down, and all ranks are equally
fast: figures are bounds from above."""
import argparse
import math

NETWORKS = {  # latency of a message in seconds, bytes a second, of one rank
    "10 Gb/s Ethernet, TCP": (30e-6, 1.1e9),
    "100 Gb/s InfiniBand": (2e-6, 11e9),
    "400 Gb/s InfiniBand": (2e-6, 45e9),
}


def resnet50(size=224, classes=1000):
    """Parameters and operations for each layer, first to last."""
    layers = []

    def conv(inside, outside, window, stride, norm=True):
        nonlocal size
        size = -(-size // stride)
        weights = inside * outside * window * window
        layers.append((weights + (4 * outside if norm else outside), weights * size * size))

    conv(3, 64, 7, 2)
    size //= 2  # pooling
    inside = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            before = size
            conv(inside, width, 1, 1)
            conv(width, width, 3, stride if block == 0 else 1)
            conv(width, 4 * width, 1, 1)
            if block == 0:
                after, size = size, before
                conv(inside, 4 * width, 1, stride)
                size = after
            inside = 4 * width
    layers.append((inside * classes + classes, inside * classes))
    return layers


def sum_seconds(how, ranks, n, latency, bandwidth, adding):
    rounds = 2 * math.log2(ranks) if how == "tree" else 2 * (ranks - 1)
    moved = (ranks - 1) / ranks * n
    return rounds * latency + 2 * moved / bandwidth + moved / adding


def buckets_of(layers, bucket_bytes):
    """Bytes, and the share of the backward pass after which they are ready; the last layers first."""
    total, done, held, found = sum(operations for _, operations in layers), 0, 0, []
    for parameters, operations in reversed(layers):
        done += operations
        held += 4 * parameters
        if held >= bucket_bytes:
            found.append((held, done / total))
            held = 0
    return found + ([(held, 1.0)] if held else [])


def step_seconds(how, ranks, compute, layers, options, latency, bandwidth):
    """Of a step, and of these those in which nothing but communication happens."""
    forward, backward = compute / 3, compute * 2 / 3
    free = 0.0  # when the network has nothing to do
    total = sum(4 * parameters for parameters, _ in layers)
    staging = 2 * total / (options.staged * 1e9) if options.staged else 0
    for n, share in buckets_of(layers, options.bucket * 1e6):
        ready = forward + backward * (1 if options.staged else share) + staging / 2
        free = max(free, ready) + sum_seconds(how, ranks, n, latency, bandwidth, options.adding * 1e9)
    return max(compute, free + staging / 2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images-per-second", type=float, default=1000, help="of one rank alone")
    parser.add_argument("--batch", type=int, default=32, help="images of each rank in a step")
    parser.add_argument("--bucket", type=float, default=2.1, help="MB")
    parser.add_argument("--adding", type=float, default=10, help="GB/s of gradients that a rank adds")
    parser.add_argument("--staged", type=float, default=0, help="GB/s between GPU and host; 0: gradients stay")
    parser.add_argument("--ranks", default="8,64,1024")
    options = parser.parse_args()
    layers = resnet50()
    compute = options.batch / options.images_per_second
    print("ResNet-50: %.2f million parameters, %.1f MB of gradients in %d buckets; a step of %d images: %.1f ms"
          % (sum(p for p, _ in layers) / 1e6, sum(4 * p for p, _ in layers) / 1e6,
             len(buckets_of(layers, options.bucket * 1e6)), options.batch, 1e3 * compute))  # fmt: skip
    print("%-24s %6s %22s %22s" % ("network", "ranks", "tree: ms, efficiency", "ring: ms, efficiency"))
    for name, (latency, bandwidth) in NETWORKS.items():
        for ranks in map(int, options.ranks.split(",")):
            row = []
            for how in ("tree", "ring"):
                seconds = step_seconds(how, ranks, compute, layers, options, latency, bandwidth)
                row += [1e3 * seconds, 100 * compute / seconds]
            print("%-24s %6d %11.1f ms %6.1f %% %11.1f ms %6.1f %%" % (name, ranks, *row))


if __name__ == "__main__":
    main()
