"""Cases of objects that do not move, at one rank or on all, which all ranks of a job run: `weft run
-n N python placed.py CASE`. Each rank that has found everything right prints a line."""

import enum
import logging
import math
import os
import signal
import sys
import threading

import weft
from cases import Counter, is_right, raises, run


class Colour(enum.IntEnum):
    RED = 1


class Name(str):
    pass


@weft.shared
class Echo:
    def __init__(self):
        self.calls = 0

    @weft.writes
    def same(self, *args, **kwargs):
        self.calls += 1
        return (args, kwargs) if kwargs else args

    @weft.writes
    def one(self, value):
        return value

    @weft.writes
    def spoil(self, items):
        items.append("spoilt")
        return items

    @weft.reads
    def text_of(self, value):
        return f"{type(value).__name__} {value!r}"

    @weft.reads(when=lambda self, count: self.calls >= count)
    def after(self, count):
        return self.calls

    @weft.writes(when=lambda self, count, least=0: count / 10 >= least)
    def guarded(self, count, least=0):
        return count - least

    @weft.writes
    def calls_other(self, other):
        return other.one(1)

    @weft.writes(post=True)
    def fails(self, text):
        self.calls += 1
        raise KeyError(text)


def no_value():
    raise RuntimeError("no value")


class Unreadable:
    def __reduce__(self):
        return no_value, ()


def nested(depth):
    value = (1,)
    for _ in range(depth):
        value = (value, "x")
    return value


VALUES = [
    None, True, False, 0, 1, -1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 1 << 300, 0.0, -0.0, 1.5,
    math.inf, "", "text", "\u00e9\U0001f600", "half \ud800", b"", b"\0bytes", bytes(70_000),
    "x" * 70_000, (), (1, "two", (3.0, (b"four", None))), nested(3), nested(4), nested(9),
    tuple(range(255)), tuple(range(256)), (bytes(40_000), bytes(40_000)), Colour.RED, Name("name"),
    [1, 2], {"key": (1, 2)}, {1, 2}, bytearray(b"x"), 1j, range(3), (1, [2]),
]


def kinds(value):
    """Returns the types of a value and of what it holds."""
    if isinstance(value, (tuple, list)):
        return type(value), [kinds(part) for part in value]
    return type(value)


def values(job):
    """Arguments and results of all kinds arrive as they were, by value."""
    for at in (job.size - 1, "replicated"):
        echo = job.share(Echo, f"echo at {at}", at=at)
        for value in VALUES:
            found = echo.one(value)
            assert found == value and kinds(found) == kinds(value), (found, value)
            assert echo.text_of(value) == f"{type(value).__name__} {value!r}"
            assert echo.same(value, value) == (value, value)
        assert math.isnan(echo.one(math.nan)) and math.copysign(1, echo.one(-0.0)) == -1
        assert echo.same() == () and echo.same(1, key=(2, None)) == ((1,), {"key": (2, None)})
        items = [1]
        assert echo.spoil(items) == [1, "spoilt"] and items == [1]
        assert isinstance(echo.one(echo), weft.Shared)
        assert echo.guarded(20) == 20 and echo.guarded(20, least=2) == 18
        raises(TypeError, lambda: echo.guarded("20"), "unsupported operand")
        raises(TypeError, lambda: echo.one(), "value")
        raises(TypeError, lambda: echo.one(1, 2), "positional arguments")
        raises(weft.ArgumentError, lambda: echo.one(lambda: 0), "the arguments cannot be sent")
        other = job.share(Echo, "other", at=0)
        raises(weft.OperationError, lambda: echo.calls_other(other),
               "one of 'other' was called inside an operation, which must not wait")
        job.world.barrier()
        # The calls above have waited for no guard; this one waits for the last calls.
        if job.rank == 0 and job.size > 1:
            count = echo.after(0) + 1
            job.world.broadcast(b"go", 0)
            assert echo.after(count) >= count
        elif job.size > 1:
            job.world.broadcast(None, 0)
        echo.same()
        job.world.barrier()


def failures(job):
    """Posts that fail are logged by their author; arguments that cannot be read are told."""
    me, told = job.rank, []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logging.getLogger("weft").addHandler(handler)
    everywhere, placed = job.share(Echo, "everywhere"), job.share(Echo, "placed", at=0)
    assert everywhere.fails("a text") is None
    assert everywhere.one(1) == 1
    assert told == [f"rank {me}: fails of 'everywhere', a post, failed"], told
    raises(KeyError, lambda: placed.fails("a text"), "a text")
    kind = weft.OperationError if me else RuntimeError
    raises(kind, lambda: placed.one(Unreadable()), "no value")
    assert placed.one(2) == 2
    # The rank that cannot read the arguments of a change has no use for its replica any more.
    job.world.barrier()
    raises(weft.OperationError, lambda: everywhere.one(Unreadable()), "no value")
    raises(weft.OperationError, lambda: everywhere.one(1), "'everywhere' is broken")
    raises(weft.OperationError, lambda: everywhere.text_of(1), "'everywhere' is broken")


@weft.shared
class Sees(Counter):
    @weft.reads
    def of_other(self, other):
        """Returns the value of a replicated object as the rank that has this one sees it."""
        return other.get()


def order(job):
    """Operations on a replicated object and on one at a rank are seen in their order everywhere."""
    last = job.size - 1
    everywhere, placed = job.share(Counter, "everywhere"), job.share(Sees, "placed", at=last)
    for _ in range(100):
        mine = everywhere.add(1)
        there = placed.of_other(everywhere)
        here = everywhere.get()
        assert mine <= there <= here, (mine, there, here)
    assert everywhere.add(0) >= 100


def threads(job):
    """Threads of all ranks call an object at once; no call is lost, and none is executed twice."""
    placed = job.share(Sees, "placed", at=job.size - 1)
    everywhere = job.share(Counter, "everywhere")
    job.world.barrier()
    wrong = []

    def calls():
        try:
            found = [placed.add(1) for _ in range(50)]
            assert found == sorted(set(found)), found
            for _ in range(20):
                mine = everywhere.add(1)
                assert placed.of_other(everywhere) >= mine
        except BaseException as error:
            wrong.append(error)

    all_of_them = [threading.Thread(target=calls) for _ in range(4)]
    for thread in all_of_them:
        thread.start()
    for thread in all_of_them:
        thread.join()
    assert not wrong, wrong
    job.world.barrier()
    assert placed.get() == 200 * job.size
    assert everywhere.add(0) == 80 * job.size
    job.world.barrier()


@weft.shared
class Steps:
    def __init__(self):
        self.steps = []

    @weft.writes
    def go(self, rank):
        """Has the process interrupted in the middle."""
        self.steps.append(rank)
        os.kill(os.getpid(), signal.SIGINT)
        # Python runs the handler between two of these.
        for _ in range(1000):
            pass
        self.steps.append(-rank)

    @weft.reads
    def all(self):
        return tuple(self.steps)

    @weft.reads(when=lambda self: False)
    def never(self):
        pass


def interrupts(job):
    """An interrupt waits for the end of an operation, and ends the call around it."""
    world, me = job.world, job.rank
    for at in (1, "replicated"):
        steps = job.share(Steps, f"at {at}", at=at)

        def waits():
            """The operation of rank 0 may come before rank 1 has left the barrier."""
            world.barrier()
            for _ in range(3):
                world.recv(0)

        if me == 1:
            raises(KeyboardInterrupt, waits)
        else:
            world.barrier()
            if at == 1:
                steps.go(7)
                world.send(1, b"one that comes before the interrupt is noticed")
            else:
                raises(KeyboardInterrupt, lambda: steps.go(7))
        if at == 1 and me == 1:
            raises(KeyboardInterrupt, lambda: steps.go(8))
        world.barrier()
        # Rank 1 has executed both.
        expected = [7, -7, 8, -8] if at == 1 else [7, -7]
        assert list(steps.all()) == expected, steps.all()
        world.barrier()
    # One that comes while the answer is awaited, here and at the rank itself.
    steps = job.share(Steps, "waits", at=1)
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    raises(KeyboardInterrupt, steps.never)
    assert steps.all() == ()
    world.barrier()


def leaves(job):
    """Calls of an object whose rank has left the job end with an error that names the rank."""
    counter, moves = job.share(Counter, "counter", at=1), job.share(Counter, "moves", at="adaptive")
    assert counter.add(1) > 0
    job.world.barrier()
    while "now at rank 1" not in repr(moves):
        (moves if job.rank == 1 else counter).add(1)
    job.world.barrier()
    if job.rank == 1:
        job.finish()
        raises(weft.FinishedError, lambda: counter.add(1))
    else:
        calls = lambda: [counter.add(1) for _ in range(100_000)]
        error = raises(weft.PeerError, calls, "Counter.add of 'counter' at rank 1: rank 1 ")
        assert error.rank == 1 and "method 1" not in str(error), error
        raises(weft.PeerError, lambda: moves.add(1), "Counter.add of 'moves' at rank 1: rank 1 ")
    is_right(job)
    sys.exit()


def local(job):
    """A class that other ranks cannot find is refused where its first object is made."""

    @weft.shared
    class Inner:
        @weft.writes
        def write(self):
            pass

    for at in (None, 0, "adaptive"):
        make = lambda: job.share(Inner, "inner", at=at)
        raises(weft.ArgumentError, make, "local.<locals>.Inner", "the top level of a module")
    assert job.share(Counter, "inner").add(1) > 0


if __name__ == "__main__":
    run()
