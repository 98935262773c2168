"""Trains a network whose layers are on different ranks, by a pipeline of small batches.

    torchrun --nproc-per-node 2 pipeline.py
    torchrun --nproc-per-node 2 pipeline.py --backend gloo

The last rank prints losses, which are the same over any backend.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

BATCH = 64
PARTS = 8
WIDTH = 32


def stage_of(rank, size):
    """Returns the layers of a rank."""
    last = nn.Linear(WIDTH, 1) if rank == size - 1 else nn.Linear(WIDTH, WIDTH)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), last)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--backend", default="weft")
    options.add_argument("--steps", type=int, default=60)
    options = options.parse_args()

    dist.init_process_group(options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(5 + rank)
    device = torch.device("cpu")
    layers = stage_of(rank, size)
    stage = PipelineStage(layers, rank, size, device)
    schedule = ScheduleGPipe(stage, n_microbatches=PARTS, loss_fn=nn.MSELoss())
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(6)
    for step in range(options.steps):
        inputs = torch.randn(BATCH, WIDTH, generator=generator)
        wanted = inputs[:, :4].sum(dim=1, keepdim=True).tanh()
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(inputs)
        elif rank == size - 1:
            losses = []
            schedule.step(target=wanted, losses=losses)
            if step % 10 == 9:
                print(f"step {step + 1}: loss {torch.stack(losses).mean().item():.6f}", flush=True)
        else:
            schedule.step()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
