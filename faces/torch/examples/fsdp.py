"""Trains a small transformer whose parameters are divided among the ranks, by FSDP2.

    torchrun --nproc-per-node 2 fsdp.py
    torchrun --nproc-per-node 2 fsdp.py --backend gloo

The text is generated: each number follows from the two before it. Rank 0 prints losses, which are
the same over any backend up to rounding.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WORDS = 32
LENGTH = 24


def texts(count, seed):
    """Returns texts of numbers below `WORDS`."""
    generator = torch.Generator().manual_seed(seed)
    columns = [torch.randint(0, WORDS, (count,), generator=generator) for _ in range(2)]
    while len(columns) < LENGTH + 1:
        columns.append((columns[-1] + 3 * columns[-2] + 1) % WORDS)
    return torch.stack(columns, dim=1)


class Transformer(nn.Module):
    """A transformer that predicts the next number."""

    def __init__(self, width=64, layers=2):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Parameter(torch.randn(LENGTH, width) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(layers)
        )
        self.last = nn.Linear(width, WORDS)

    def forward(self, text):
        """Returns the weights of each next number."""
        mask = nn.Transformer.generate_square_subsequent_mask(text.size(1))
        state = self.words(text) + self.places
        for layer in self.layers:
            state = layer(state, src_mask=mask)
        return self.last(state)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--backend", default="weft")
    options.add_argument("--steps", type=int, default=60)
    options = options.parse_args()

    dist.init_process_group(options.backend)
    torch.set_num_threads(1)
    torch.manual_seed(4)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = Transformer()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for step in range(options.steps):
        text = texts(16, seed=step * dist.get_world_size() + dist.get_rank())
        weights = model(text[:, :-1])
        loss = nn.functional.cross_entropy(weights.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            total = loss.detach().clone()
            dist.all_reduce(total, op=dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(f"step {step + 1}: loss {total.item():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
