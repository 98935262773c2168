"""Cases of objects whose ranks fail, are deleted, or take long, which all ranks of a job run: `weft
run -n N python views.py CASE`. Each rank that has found everything right prints a line."""

import os
import random
import sys
import threading
import time

import weft
from cases import Counter, is_right, me, raises, run


@weft.shared
class Shop(Counter):
    @weft.writes(when=lambda self, count: self.count >= count)
    def take(self, count):
        self.count -= count
        return self.count


def ends(job):
    """Ends the process of rank 1, which leaves no job, once the others are in no call of weft."""
    is_right(job)
    for rank in (0, 2):
        job.world.send(rank, b"ends")
        job.world.recv(rank)
    sys.stdout.flush()
    os._exit(0)


def until_ended(job, process):
    """Waits for the end of the process of rank 1, in no call of weft."""
    job.world.recv(1)
    job.world.send(1, b"ends")
    while os.path.exists(f"/proc/{process}"):
        time.sleep(0.01)


def process_of(job, rank):
    """Returns the process of a rank."""
    return int(job.world.allgather(b"%d" % os.getpid())[rank])


def moves(job):
    """An adaptive object that all ranks have does not move to a rank that has ended."""
    process = process_of(job, 1)
    moves, counter = job.share(Counter, "moves", at="adaptive"), job.share(Counter, "counter")
    job.world.barrier()
    if job.rank == 1:
        for _ in range(10):
            moves.add(1)
        ends(job)
    until_ended(job, process)
    if job.rank == 0:
        found = [moves.add(1) for _ in range(40)]
        assert found == list(range(11, 51)), found
        counter.add(1)
        job.world.send(2, b"done")
    else:
        job.world.recv(0)
    assert moves.add(0) == 50 and counter.add(0) == 1
    leaves_together(job)


def leaves_together(job):
    """Leaves the job without rank 1, which has ended."""
    if job.rank == 0:
        job.world.send(2, b"end")
        job.world.recv(2)
    else:
        job.world.recv(0)
        job.world.send(0, b"end")
    is_right(job)
    sys.stdout.flush()
    os._exit(0)


def guards(job):
    """An operation that waits for its guard is not done once the others go on without its rank."""
    process, counter = process_of(job, 1), job.share(Counter, "counter")
    shops = [job.share(Shop, f"at {at}", at=at) for at in ("replicated", 0, "adaptive")]
    job.world.barrier()
    if job.rank == 1:
        for shop in shops:
            threading.Thread(target=shop.take, args=(5,), daemon=True).start()
        # The operations are on their way.
        time.sleep(0.5)
        ends(job)
    until_ended(job, process)
    if job.rank == 0:
        # It is done here when rank 1 has it too, which has ended, or when the others go on without
        # rank 1. Before that, an operation of rank 1 may be done: nobody knows of its end.
        counter.add(1)
        for shop in shops:
            shop.add(5)
            assert shop.add(0) == 5, shop
    leaves_together(job)


MADE = []


@weft.shared
class Drawn:
    def __init__(self, number):
        MADE.append(number)
        self.drawn, self.time, self.rank = random.random(), time.time_ns(), me()

    @weft.reads
    def all(self):
        return self.drawn, self.time, self.rank


@weft.shared
class Fails:
    def __init__(self, rank):
        if me() == rank or rank is None:
            raise KeyError("not here")

    @weft.reads
    def get(self):
        return me()


@weft.shared
class Local:
    """One whose state cannot be sent."""

    def __init__(self):
        self.lock, self.rank = threading.Lock(), me()

    @weft.reads
    def get(self):
        return self.rank


def made(job):
    """The state of an object comes from one rank, which alone makes it."""
    for at in ("replicated", "adaptive", job.size - 1):
        drawn = job.share(Drawn, f"drawn {at}", at, at=at)
        states = job.world.allgather(repr(drawn.all()).encode())
        assert states == [states[0]] * job.size, states
        count = job.world.allreduce(MADE.count(at))
        assert count == 1, (at, count)
        assert at != job.size - 1 or drawn.all()[2] == at
    # A rank that cannot make it leaves that to the next one.
    share = lambda at, rank: job.share(Fails, f"fails {at} {rank}", rank, at=at)
    for at in ("replicated", 0):
        raises(KeyError, lambda: share(at, None), "not here")
        job.world.barrier()
    if job.rank == 0:
        raises(KeyError, lambda: share("replicated", 0), "not here")
    job.world.barrier()
    if job.rank == 1:
        assert share("replicated", 0).get() == 1
    # The state of an object at a rank stays there.
    assert job.share(Local, "local", at=1).get() == 1
    wrong = lambda: job.share(Local, "everywhere")
    raises(weft.ArgumentError, wrong, "the state of 'everywhere' cannot be sent", "at=RANK")


def deleted(job):
    """An object that one rank deletes is gone on all; its name is free."""
    for at in ("replicated", 1, "adaptive"):
        shop = job.share(Shop, "shop", at=at)
        shop.add(1)
        job.world.barrier()
        if job.rank == 0:
            waiting = threading.Thread(
                target=lambda: raises(weft.OperationError, lambda: shop.take(100), "deleted"))
            waiting.start()
            job.delete(shop)
            waiting.join()
            raises(weft.OperationError, lambda: job.delete(shop), "has been deleted")
        job.world.barrier()
        raises(weft.OperationError, lambda: shop.add(1), "'shop'", "has been deleted")
        shop_is_gone = lambda: [shop.get() for _ in range(100_000)]
        raises(weft.OperationError, shop_is_gone, "'shop'", "has been deleted")
        again = job.share(Shop, "shop", at=at)
        job.world.barrier()
        assert again.add(0) == 0
        job.world.barrier()
        if job.rank == 1:
            job.delete(again)
        job.world.barrier()
    raises(weft.ArgumentError, lambda: job.delete(Shop), "no shared object")


def timeouts(job):
    """A call that waits for others for longer than the limit names them."""
    shops = [job.share(Shop, f"at {at}", at=at) for at in ("replicated", 1)]
    assert job.timeout is None
    job.world.barrier()
    if job.rank == 0:
        job.timeout = 0.2
        assert job.timeout == 0.2
        raises(TimeoutError, lambda: shops[0].take(5), "Shop.take of 'at replicated'",
               "whose guard may not be true", "0.2 s")
        raises(TimeoutError, lambda: shops[1].take(5), "Shop.take of 'at 1'", "rank 1")
        raises(TimeoutError, lambda: job.world.recv(1), "rank 1", "0.2")
        raises(TimeoutError, lambda: job.world.recv(1, bytearray(3)), "rank 1", "0.2")
        raises(TimeoutError, lambda: job.world.recv(None), "anybody", "0.2")
        raises(TimeoutError, job.world.barrier, "collective operation", "rank 1")
        request = job.world.irecv(1, bytearray(4))
        raises(TimeoutError, request.wait, "0.2")
        job.timeout = None
        job.world.send(1, b"late")
        assert request.wait().length == 4
    else:
        job.world.recv(0)
        job.world.send(0, b"late")
        job.world.barrier()
    # An operation that was given up is not done later.
    job.world.barrier()
    assert all(shop.add(5) in (5, 10) for shop in shops)
    raises(weft.ArgumentError, lambda: setattr(job, "timeout", -1), "number of seconds")


def looks(job):
    """A rank that looks by writes, and waits in none of them, serves others meanwhile."""
    counter, looks = job.share(Counter, "counter"), 1
    job.world.barrier()
    while counter.add(job.rank != 0 and looks == 1) < job.size - 1:
        looks += 1
        time.sleep(0.01)
    # Far below the number of messages for which others have to be waited for.
    assert looks < 1000, looks


if __name__ == "__main__":
    run()
