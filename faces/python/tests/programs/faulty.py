"""Cases of shared objects in programs that are not right, or are interrupted, which all ranks of a
job run: `weft run -n N python faulty.py CASE`. Each rank that has found everything right prints a
line."""

import _thread
import asyncio
import os
import signal
import sys
import threading
import time

import weft
from cases import Counter, me, raises, run


class NoText(Exception):
    """One that cannot be pickled, and has no text."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()

    def __str__(self):
        raise RuntimeError("no text")


class NoNote(Exception):
    def add_note(self, note):
        raise RuntimeError("no notes")


class NoException(Exception):
    def __reduce__(self):
        return int, (5,)


class Leaves:
    def __reduce__(self):
        raise SystemExit(3)


SAME = ValueError("the same")


@weft.shared
class Odd:
    def __init__(self):
        self.begun = self.ended = 0

    @weft.writes
    def fails(self, kind):
        raise SAME if kind is None else kind()

    @weft.writes
    def leaves(self):
        return Leaves()

    @weft.writes
    def interrupted(self, of, number=signal.SIGINT):
        """Has a rank get a signal in the middle; 0: the main thread is interrupted."""
        self.begun += 1
        if me() == of:
            os.kill(os.getpid(), number) if number else _thread.interrupt_main()
        # Python runs the handler between two of these.
        for _ in range(10_000):
            pass
        self.ended += 1

    @weft.writes
    def sleeps(self):
        time.sleep(0.5)

    @weft.reads
    def both(self):
        return self.begun, self.ended


def answers(job):
    """Each call gets an answer, whatever its method raises or returns."""
    odd = job.share(Odd, "odd", at=0)
    if job.rank != 0:
        raises(weft.OperationError, lambda: odd.fails(NoText), "NoText, whose text cannot be made")
        raises(weft.OperationError, lambda: odd.fails(NoException), "NoException")
        raises(NoNote, lambda: odd.fails(NoNote))
        error = raises(weft.OperationError, odd.leaves, "cannot be sent: SystemExit: 3")
        assert error.rank == 0 and error.__notes__ == ["raised at rank 0"], vars(error)
        assert raises(KeyboardInterrupt, lambda: odd.fails(KeyboardInterrupt)).__notes__
        # An exception that is raised again has one note.
        found = [raises(ValueError, lambda: odd.fails(None), "the same") for _ in range(3)]
        assert all(len(error.__notes__) == 1 for error in found)


class Mixed:
    """A base that is not decorated."""

    @weft.reads
    def name(self):
        return "Mixed"


@weft.shared
class Derived(Counter, Mixed):
    @weft.writes
    def add(self, number):
        return super().add(10 * number)

    @weft.reads
    def name(self):
        return "Derived of " + super().name()


@weft.shared
class Inherits(Counter, Mixed):
    pass


class Undecorated(Counter):
    pass


def bases(job):
    """Operations of base classes are there; those that replace others are the ones executed."""
    for at in (0, "replicated"):
        derived, inherits = (job.share(kind, f"{kind.__name__} {at}", at=at)
                             for kind in (Derived, Inherits))
        assert derived.add(1) % 10 == 0 and derived.name() == "Derived of Mixed"
        assert inherits.add(1) <= job.size and inherits.name() == "Mixed"
    raises(weft.ArgumentError, lambda: job.share(Undecorated, "undecorated"), "no class decorated")
    unmarked = type("Unmarked", (Counter,), {"add": lambda self, number: 0})
    raises(weft.ArgumentError, lambda: weft.shared(unmarked), "Unmarked.add replaces an operation")


def interrupts(job):
    """An interrupt that another thread gets waits for the end of the operation, too."""
    world, me = job.world, job.rank
    done = threading.Event()
    threading.Thread(target=done.wait).start()
    odd = job.share(Odd, "odd")
    try:
        if me == 0:
            for _ in range(20):
                raises(KeyboardInterrupt, lambda: odd.interrupted(0))
    finally:
        done.set()
    world.barrier()
    odd.interrupted(None)
    begun, ended = odd.both()
    assert begun == ended >= 21, (begun, ended)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Handled(Exception):
    """Raised by handlers of signals."""


def handlers(job):
    """Handlers of all signals of the program wait for the end of an operation: those that it had
    before, and those that it sets, also by a function that it has imported before."""
    old, set_early = threading.Event(), signal.signal
    threading.Thread(target=old.wait).start()
    called = []

    def handler(number, frame):
        called.append(number)
        raise Handled(number)

    def quiet(number, frame):
        called.append(number)
        # A handler may use shared objects.
        other.add(1)

    try:
        signal.signal(signal.SIGTERM, handler)
        odd, other = job.share(Odd, "odd"), job.share(Counter, "other")
        set_early(signal.SIGUSR1, handler)
        signal.signal(signal.SIGALRM, quiet)
        of_others = [signal.SIGTERM, signal.SIGUSR1, signal.SIGRTMAX]
        assert signal.signal(signal.SIGRTMAX, handler) is signal.SIG_DFL
        if job.rank == 0:
            for number in 5 * of_others:
                error = raises(Handled, lambda: odd.interrupted(0, number))
                assert error.args == (number,) and called.pop() == number
            raises(KeyboardInterrupt, lambda: odd.interrupted(0, 0))
            odd.interrupted(0, signal.SIGALRM)
            assert called.pop() == signal.SIGALRM and other.get() == 1
            # One that is raised again is raised once, and none is left.
            odd.interrupted(None)
            assert not called, called
    finally:
        old.set()
    job.world.barrier()
    odd.interrupted(None)
    begun, ended = odd.both()
    assert begun == ended >= 18, (begun, ended)
    # The program has the handlers that it has set.
    assert signal.getsignal(signal.SIGTERM) is handler
    assert signal.signal(signal.SIGTERM, signal.SIG_IGN) is handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    os.kill(os.getpid(), signal.SIGTERM)
    raises(TypeError, lambda: signal.signal(signal.SIGTERM, "handler"), "signal handler must be")
    raises(Handled, lambda: signal.raise_signal(signal.SIGUSR1))


def copies(job):
    """A copy of the process gets an error also while another thread executes an operation."""
    objects = [job.share(Odd, f"odd {at}", at=at) for at in ("replicated", 0, "adaptive")]
    for odd in objects if job.rank == 0 else ():
        thread = threading.Thread(target=odd.sleeps)
        thread.start()
        time.sleep(0.1)
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            for call in (odd.both, odd.sleeps):
                raises(weft.ForkedError, call)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, odd
        thread.join()


class Differs:
    @weft.writes
    def same(self):
        return 1

    @weft.reads
    def read(self):
        return 2


class Fails:
    def __init__(self):
        self.count = 0

    def __setstate__(self, state):
        if me() == 0:
            raise RuntimeError("read elsewhere")
        vars(self).update(state)

    @weft.writes
    def add(self):
        self.count += 1
        return self.count


def programs(job):
    """A rank whose class or object is another one than elsewhere is told so."""
    if job.rank == 1:
        Differs.more = weft.writes(lambda self: 3)
    weft.shared(Differs)
    weft.shared(Fails)
    differs = job.share(Differs, "differs")
    if job.rank == 1:
        assert differs.more() == 3
        fails = job.share(Fails, "fails")
        assert fails.add() == 1
    job.world.barrier()
    if job.rank == 0:
        text = "rank 0 has no operation 'more' in Differs: ranks run different programs"
        raises(weft.OperationError, differs.same, text)
        raises(weft.OperationError, differs.read, text)
        fails = job.share(Fails, "fails")
        text = "'fails' is broken: rank 0 cannot read its state: RuntimeError: read elsewhere"
        raises(weft.OperationError, fails.add, text)


@weft.shared
class Waits:
    def __init__(self):
        self.calls = 0

    @weft.writes
    def wait(self, kind):
        self.calls += 1
        wait(kind)

    @weft.reads
    def count(self):
        return self.calls


def wait(kind):
    """Makes a call that may wait."""
    job, region = me.job, me.region
    {
        "send": lambda: job.world.send(0, b"", 7),
        "recv": lambda: job.world.recv(0, tag=7),
        "irecv": lambda: job.world.irecv(0, bytearray(1), 7).wait(),
        "probe": lambda: job.world.probe(0, 7),
        "barrier": job.world.barrier,
        "reduce": lambda: job.world.allreduce(1),
        "read": lambda: region.read().__enter__(),
        "write": lambda: region.write().__enter__(),
        "map": lambda: job.map(region.name),
        "delete": lambda: region.delete(),
        "finish": job.finish,
        "run": lambda: me.queue.run(print),
        "share": lambda: job.share(Waits, "inner"),
    }[kind]()


KINDS = ["send", "recv", "irecv", "probe", "barrier", "reduce", "read", "write", "map", "delete",
         "finish", "run", "share"]


def waiting(job):
    """A call that may wait for other ranks is refused inside an operation, on all ranks."""
    me.job, me.region, me.queue = job, job.region(1), job.queue(8)
    for at in ("replicated", 0):
        waits = job.share(Waits, f"waits {at}", at=at)
        if job.rank == 0:
            for kind in KINDS:
                raises(weft.OperationError, lambda: waits.wait(kind), "operation")
            assert waits.count() == len(KINDS)
        job.world.barrier()
    assert job.world.allreduce(1) == job.size


@weft.shared
class Deep:
    def __init__(self):
        self.dives = 0

    @weft.writes
    def dive(self, depth):
        self.dives += 1
        return dive(depth)

    @weft.writes(when=lambda self, depth: dive(depth) == depth)
    def guarded(self, depth):
        self.dives += 1


def dive(depth):
    return 0 if depth == 0 else 1 + dive(depth - 1)


def deep(job):
    """A rank whose stack is too deep for an operation, unlike that of others, has no use for its
    replica any more."""
    room = sys.getrecursionlimit() - 100

    def below(depth, call):
        return call() if depth == 0 else below(depth - 1, call)

    for at, call in [("replicated", Deep.dive), ("replicated", Deep.guarded), (0, Deep.dive)]:
        name = f"{call.__name__} {at}"
        deep = job.share(Deep, name, at=at)
        dives = getattr(deep, call.__name__)
        job.world.barrier()
        if job.rank == 0:
            raises(RecursionError, lambda: below(200, lambda: dives(room)))
            if at != 0:
                raises(weft.OperationError, lambda: dives(1), f"{name!r} is broken", "at rank 0")
        job.world.barrier()
        if job.rank == 1 or at == 0:
            dives(1)
        job.world.barrier()


@weft.shared
class Bag:
    def __init__(self, things):
        self.things = set(things)

    @weft.writes
    def take(self):
        return self.things.pop()

    @weft.writes
    def left(self):
        """Is executed after what other ranks have done before."""
        return sorted(self.things)


def sets(job):
    """Any element of a set of texts is the same one on all ranks."""
    bag = job.share(Bag, "bag", {f"thing {number}" for number in range(100)})
    taken = [bag.take() for _ in range(10)]
    job.world.barrier()
    left = bag.left()
    assert len(left) == 100 - 10 * job.size and not set(taken) & set(left)
    assert len(set(job.world.allgather(repr(left).encode()))) == 1


@weft.shared
class Last:
    def __init__(self):
        self.value = 0

    @weft.writes(post=True)
    def post(self, value):
        self.value = value

    @weft.reads
    def read(self):
        return self.value


def posts(job):
    """An operation comes behind the posts of its rank, on whatever object."""
    mine = [job.share(Last, f"last of {rank}") for rank in range(job.size)][job.rank]
    for value in range(1, 200):
        mine.post(value)
        assert mine.read() == value
    # Of two ranks that post and then read the other's object, one at least sees the other's post.
    first, second = job.share(Last, "first"), job.share(Last, "second", at=0)
    for value in range(1, 200):
        job.world.barrier()
        (second if job.rank else first).post(value)
        seen = (first if job.rank else second).read()
        assert b"1" in job.world.allgather(b"%d" % (seen == value)), value


def awaits(job):
    """A rank that only tests requests executes the operations that others ask it for."""
    odd = job.share(Odd, "odd", at=0)
    for way in ("test", "await"):
        if job.rank != 0:
            assert odd.both() == (0, 0)
            job.world.send(0, b"done")
            continue
        request = job.world.irecv(1, bytearray(4))
        if way == "await":
            asyncio.run(result_of(request))
        while not request.test():
            pass


async def result_of(request):
    return await request


if __name__ == "__main__":
    run()
