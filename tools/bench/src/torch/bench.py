"""A rank of `weft bench torch`: `bench.py check`, or `bench.py BACKEND SHARE` where each loop is a
SHARE-th of its length. Rank 0 prints lines of the form `figure NAME SECONDS`."""

import importlib.util
import json
import statistics
import sys
import time


def check():
    missing = [name for name in ("torch", "torch_weft") if importlib.util.find_spec(name) is None]
    version = None
    if not missing:
        import torch

        version = torch.__version__
    print(json.dumps({"missing": missing, "version": version}))


def timed(work, count):
    """Returns the time of one call in a loop of `count`, after a tenth of them."""
    import torch.distributed as dist

    for _ in range(max(1, count // 10)):
        work()
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - begun) / count


def step():
    """Returns a function that makes a step of training, by DistributedDataParallel."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
        nn.Flatten(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2),
    ))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, kinds = torch.randn(8, 1, 16, 16), torch.randint(0, 2, (8,))

    def one():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), kinds).backward()
        optimizer.step()

    return one


def measure(backend, share):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(backend)
    figures = {}
    for size, count in ((4, 2000), (1 << 20, 200), (100 << 20, 5)):
        tensor = torch.zeros(size // 4)
        work = lambda: dist.all_reduce(tensor)
        figures[f"allreduce-{size}"] = timed(work, max(2, count // share))
    if backend == "weft":
        tensor = torch.zeros(1)
        core = dist.group.WORLD._get_backend(tensor.device)._core
        pieces = [(tensor.data_ptr(), tensor.nbytes)]
        work = lambda: core.allreduce(pieces, ("float32", "SUM"), (60.0, True, tensor)).wait()
        figures["core-4"] = timed(work, 2000 // share)
    one = step()
    times = []
    for _ in range(max(5, 100 // share)):
        begun = time.perf_counter()
        one()
        times.append(time.perf_counter() - begun)
    figures["step"] = statistics.median(times)
    if dist.get_rank() == 0:
        for name, seconds in figures.items():
            print(f"figure {name} {seconds:.9f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "check":
        check()
    else:
        measure(sys.argv[1], int(sys.argv[2]))
