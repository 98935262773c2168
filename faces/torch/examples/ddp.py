"""Trains a small convolutional network on generated pictures, by DistributedDataParallel.

    torchrun --nproc-per-node 2 ddp.py
    torchrun --nproc-per-node 2 ddp.py --backend gloo

Rank 0 prints the loss of each epoch, which is the same over any backend up to rounding, and the
median time of a step.
"""

import argparse
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def pictures(count, size=16):
    """Returns pictures of bars in noise: horizontal ones of class 0, vertical ones of class 1."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(count, 1, size, size, generator=generator)
    kinds = torch.randint(0, 2, (count,), generator=generator)
    places = torch.randint(0, size, (count,), generator=generator)
    for image, kind, place in zip(images, kinds, places):
        bar = image[0, place] if kind == 0 else image[0, :, place]
        bar += 1.5
    return TensorDataset(images, kinds)


def network(width):
    """Returns a network of two convolutions."""
    return nn.Sequential(
        nn.Conv2d(1, width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
        nn.Flatten(), nn.Linear(32 * width, 16 * width), nn.ReLU(), nn.Linear(16 * width, 2),
    )


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--backend", default="weft")
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--pictures", type=int, default=1024)
    options.add_argument("--batch", type=int, default=32, help="pictures of a rank's step")
    options.add_argument("--width", type=int, default=16, help="channels of the first convolution")
    options.add_argument("--workers", type=int, default=0, help="processes that load pictures")
    options = options.parse_args()

    dist.init_process_group(options.backend)
    torch.manual_seed(2)
    torch.set_num_threads(1)
    data = pictures(options.pictures)
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, options.batch, sampler=sampler, num_workers=options.workers)
    model = DistributedDataParallel(network(options.width))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    times = []
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for images, kinds in loader:
            begun = time.perf_counter()
            loss = nn.functional.cross_entropy(model(images), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            times.append(time.perf_counter() - begun)
            total += loss.detach()
        total /= len(loader)
        dist.all_reduce(total, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {total.item():.6f}", flush=True)
    if dist.get_rank() == 0:
        print(f"step: {statistics.median(times) * 1000:.2f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
