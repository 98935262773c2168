"""Cases that ranks run together under torchrun: `ranks.py CASE [BACKEND]`. Each rank that finds all
right prints a line."""

import os
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


def start(backend="weft", seconds=60):
    dist.init_process_group(backend, timeout=timedelta(seconds=seconds))
    return dist.get_rank(), dist.get_world_size()


def strides():
    """Tensors whose elements are not in order, and of no elements."""
    rank, size = start()
    wide = torch.arange(12.0).reshape(3, 4) + rank
    dist.all_reduce(wide.t())
    assert wide.equal((torch.arange(12.0) * size + sum(range(size))).reshape(3, 4))
    column = torch.full((4, 3), float(rank))
    dist.broadcast(column[:, 1], src=1)
    assert column[:, 1].eq(1).all() and column[:, 0].eq(rank).all()
    work = dist.all_reduce(column[:, 2], async_op=True)
    while not work.is_completed():
        time.sleep(0.001)
    work.wait()
    assert column[:, 2].eq(sum(range(size))).all()
    gathered = torch.zeros(2, size).t()
    dist.all_gather_single(gathered, torch.tensor([rank, 10.0 + rank]))
    assert gathered.equal(torch.tensor([[r, 10.0 + r] for r in range(size)]))
    for nothing in (torch.empty(0), torch.empty(3, 0, 2)):
        dist.all_reduce(nothing)
        dist.broadcast(nothing, src=0)
    dist.all_to_all_single(torch.empty(0), torch.empty(0), [0] * size, [0] * size)


def messages():
    """Messages with tags, from any rank, in batches."""
    rank, size = start()
    after, before = (rank + 1) % size, (rank - 1) % size
    ops = []
    came = [torch.zeros(2) for _ in range(3)]
    for tag, into in enumerate(came):
        ops.append(dist.P2POp(dist.irecv, into, before, tag=tag))
        ops.append(dist.P2POp(dist.isend, torch.full((2,), 10.0 * rank + tag), after, tag=tag))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert [into[0].item() for into in came] == [10.0 * before + tag for tag in range(3)]
    if rank == 0:
        value = torch.zeros(1)
        sources = {dist.recv(value, tag=9) for _ in range(size - 1)}
        assert sources == set(range(1, size)), sources
    else:
        dist.send(torch.tensor([float(rank)]), 0, tag=9)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": each} for each in range(size)]


def groups():
    """Process groups of some ranks, barriers that name who is late, and times."""
    rank, size = start()
    pairs = [dist.new_group([0, each]) for each in range(1, size)]
    for each, pair in enumerate(pairs, 1):
        if rank in (0, each):
            value = torch.tensor([float(rank)])
            dist.all_reduce(value, group=pair)
            assert value.item() == each
    dist.monitored_barrier(timeout=timedelta(seconds=30))
    alone = dist.new_group([rank], use_local_synchronization=True)
    value = torch.ones(1)
    dist.all_reduce(value, group=alone)
    assert value.item() == 1
    parent = dist.distributed_c10d._get_default_group()
    backend = parent._get_backend(torch.device("cpu"))
    evens = list(range(0, size, 2))
    part = backend.split(dist.PrefixStore("part", parent.get_group_store()), evens, None)
    assert (part is None) == (rank not in evens)
    if part is not None:
        assert (part.rank(), part.size()) == (evens.index(rank), len(evens))
        part.shutdown()
    dist.set_timeout(timedelta(seconds=0.5))
    if rank == 0:
        try:
            dist.recv(value, src=1)
        except RuntimeError as error:
            assert "Timed out after 0.5 s" in str(error) and "rank 1" in str(error), error
        else:
            raise AssertionError("nobody sent this")
    dist.set_timeout(timedelta(seconds=60))
    dist.barrier()


def futures():
    """Futures that nobody waits for, calls of autograd's threads, works that are dropped."""
    rank, size = start()
    values = [torch.full((1000,), float(rank + at)) for at in range(20)]
    chained = []
    for value in values:
        future = dist.all_reduce(value, async_op=True).get_future()
        chained.append(future.then(lambda done: done.value()[0].sum().item()))
    sums = torch.futures.wait_all(chained)
    assert sums == [1000.0 * (sum(range(size)) + at * size) for at in range(20)]

    class Reduce(torch.autograd.Function):
        @staticmethod
        def forward(context, given):
            return given.clone()

        @staticmethod
        def backward(context, gradient):
            threads.add(threading.get_ident())
            gradient = gradient.clone()
            dist.all_reduce(gradient)
            return gradient

    threads = set()
    given = torch.ones(8, requires_grad=True)
    (Reduce.apply(given) * (rank + 1)).sum().backward()
    assert given.grad.eq(sum(range(1, size + 1))).all() and len(threads) == 1
    dropped = torch.ones(100_000)
    dist.all_reduce(dropped, async_op=True)
    dist.barrier()
    del dropped
    dist.barrier()


def loaders():
    """Processes that load data are copies of a rank, and leave it alone."""
    rank, size = start()
    from torch.utils.data import DataLoader

    data = [torch.full((4,), float(at)) for at in range(32)]
    for _ in range(2):
        for batch in DataLoader(data, 4, num_workers=2, multiprocessing_context="fork"):
            dist.all_reduce(batch)
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError as error:
            os._exit(0 if "made by fork" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    dist.barrier()


def wrong():
    """Arguments that cannot be used: nothing is sent, and later operations work."""
    rank, size = start()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    elsewhere = torch.empty(1, device="meta")
    wanted = [
        ("on meta", lambda: backend.allreduce([elsewhere], dist.AllreduceOptions())),
        ("sparse", lambda: dist.all_reduce(torch.eye(2).to_sparse())),
        ("elements", lambda: dist.all_gather_single(torch.empty(size + 1), torch.ones(1))),
        ("type", lambda: dist.all_gather_single(torch.empty(size), torch.ones(1).double())),
        ("divided", lambda: dist.all_to_all_single(torch.ones(size + 1), torch.ones(size + 1))),
        ("float8_e5m2", lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e5m2))),
        ("no ReduceOp.BXOR", lambda: dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BXOR)),
        ("no ReduceOp.AVG", lambda: dist.all_reduce(torch.ones(2).int(), op=dist.ReduceOp.AVG)),
        ("tag", lambda: dist.send(torch.ones(1), (rank + 1) % size, tag=-1)),
        ("enable_reconfigure", backend.get_reconfigure_handle),
    ]
    for text, call in wanted:
        try:
            call()
        except (RuntimeError, ValueError, NotImplementedError) as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)
    value = torch.ones(1)
    dist.all_reduce(value)
    assert value.item() == size


def aborting():
    """An abort from another thread ends the wait of this one."""
    rank, size = start()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    if rank == 0:
        timer = threading.Timer(0.2, backend.abort)
        timer.start()
        begun = time.monotonic()
        try:
            dist.recv(torch.ones(1), src=1)
        except dist.DistBackendError as error:
            assert "aborted on this rank" in str(error), error
        else:
            raise AssertionError("nobody sent this")
        assert time.monotonic() - begun < 30
        timer.join()
    store = dist.group.WORLD.get_group_store()
    store.set(f"past/{rank}", "1")
    store.wait([f"past/{each}" for each in range(size)])
    say(rank, size)
    os._exit(0)


def changing():
    """Ranks that change: all, all in another order, and those that a death leaves."""
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]),
                          is_master=False)
    first, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("weft", store=store, rank=first, world_size=size,
                            timeout=timedelta(seconds=60), enable_reconfigure=True)
    try:
        dist.all_reduce(torch.ones(1))
    except dist.DistBackendError as error:
        assert "_reconfigure" in str(error), error
    else:
        raise AssertionError("there are no ranks yet")
    own = dist._get_reconfigure_handle()
    store.set(f"handle/{first}", own)
    handles = [store.get(f"handle/{rank}").decode() for rank in range(size)]
    for wrong in ([], [own, own], [own, "gloo:0"], [each for each in handles if each != own]):
        try:
            dist._reconfigure(1, wrong)
        except ValueError:
            continue
        raise AssertionError(wrong)
    for uuid, new in ((2, set(handles)), (3, handles[::-1])):
        dist._reconfigure(uuid, new).wait()
        rank = first if uuid == 2 else size - 1 - first
        assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
        ranks = [torch.zeros(1) for _ in range(size)]
        dist.all_gather(ranks, torch.tensor([float(rank)]))
        assert [each.item() for each in ranks] == list(range(size))
    try:
        dist._reconfigure(3, handles[::-1])
    except RuntimeError as error:
        assert "already used" in str(error), error
    else:
        raise AssertionError("a number serves once")
    dist.barrier()
    if first == 0:
        say(first, size)
        os._exit(0)
    try:
        while True:
            dist.all_reduce(torch.ones(1000))
    except dist.DistBackendError as error:
        # A survivor that knows of the death leaves the group before another does.
        assert "rank" in str(error) and "failed" in str(error), error
    dist._reconfigure(4, handles[1:]).wait()
    layer = nn.parallel.DistributedDataParallel(nn.Linear(1, 1, bias=False))
    layer(torch.full((1, 1), float(first))).backward()
    mean = sum(range(1, size)) / (size - 1)
    assert layer.module.weight.grad.item() == mean, layer.module.weight.grad
    say(first, size)
    os._exit(0)


def mismatch():
    """Ranks that give different lengths: both sides are named."""
    rank, size = start()
    try:
        dist.all_reduce(torch.ones(2 + rank))
    except dist.DistBackendError as error:
        assert "all" in str(error) and "rank" in str(error), error
    else:
        raise AssertionError("lengths differ")
    time.sleep(1)


def death():
    """The end of a rank's process ends the operations of the others."""
    rank, size = start()
    dist.barrier()
    if rank == size - 1:
        say(rank, size)
        os._exit(0)
    begun = time.monotonic()
    try:
        while True:
            dist.all_reduce(torch.ones(1000))
    except dist.DistBackendError as error:
        assert f"rank {size - 1}" in str(error), error
    assert time.monotonic() - begun < 30
    say(rank, size)
    os._exit(0)


def leaving():
    """A program that ends with operations under way."""
    rank, size = start()
    if rank == 0:
        dist.all_reduce(torch.ones(1000), async_op=True)
        dist.irecv(torch.ones(1), src=1)


def instead():
    """weft in gloo's place."""
    rank, size = start("gloo")
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert type(backend).__module__ == "torch_weft._backend"
    value = torch.ones(1)
    dist.all_reduce(value)
    assert value.item() == size


def model():
    """DistributedDataParallel gives each rank the gradient of all."""
    rank, size = start()
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 1))
    alone = [parameter.detach().clone() for parameter in layers.parameters()]
    parallel = nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.002)
    inputs = torch.randn(size, 8, 20, generator=torch.Generator().manual_seed(2))
    parallel(inputs[rank]).square().mean().backward()
    whole = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 1))
    with torch.no_grad():
        for parameter, value in zip(whole.parameters(), alone):
            parameter.copy_(value)
    whole(inputs.flatten(0, 1)).square().mean().backward()
    for one, other in zip(layers.parameters(), whole.parameters()):
        torch.testing.assert_close(one.grad, other.grad)


def say(rank, size):
    print(f"rank {rank} of {size} is right: {sys.argv[1]}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
    say(dist.get_rank(), dist.get_world_size())
    if sys.argv[1] != "leaving":
        dist.destroy_process_group()
