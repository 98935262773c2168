"""Figures of the package `weft`, and of its peers: `python bench.py ROLE ITERATIONS [BYTES]`. The
roles of ranks run under `weft run -n 2` or `weft mpi -n 2`; the others start their second process.
The one that measures prints a line `figure SECONDS`, once all values were right."""

import json
import multiprocessing
import os
import signal
import socket
import sys
import time

#: Bytes of a region, and the two pages that are handed over in it.
REGION = 65536
PAGES = [bytes([number]) * REGION for number in (1, 2)]
#: Seconds that a peer may take to start, and that ranks of an MPI may take: nothing ends them where
#: its launcher does not, as when the benchmark is killed.
START, RUN = 30, 120


def timed(iterations, one):
    """Returns the seconds of one iteration, without those that warm up, and the number of all."""
    warm = iterations // 10 + 1
    for _ in range(warm):
        one()
    start = time.perf_counter()
    for _ in range(iterations):
        one()
    return (time.perf_counter() - start) / iterations, warm + iterations


def rounds(iterations):
    return iterations // 10 + 1 + iterations


def say(seconds):
    print(f"figure {seconds:.12f}", flush=True)


def equal(found, expected):
    if found != expected:
        sys.exit(f"a wrong value: {found!r:.80}, not {expected!r:.80}")


def bind(number):
    """Puts this process on the core of this number among those that it may use."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})


def counters():
    """Returns a class of shared objects. It is one of the module, since pickle finds it there."""
    global Counter
    import weft

    @weft.shared
    class Counter:
        def __init__(self):
            self.value = 0

        @weft.reads
        def get(self):
            return self.value

        @weft.writes
        def null(self):
            """Counts itself, and does nothing else."""
            self.value += 1

        @weft.writes
        def add(self, number):
            self.value += number
            return self.value

    return Counter


def joined(work, iterations):
    import weft

    with weft.init() as job:
        equal(job.size, 2)
        work(job, iterations)
        job.world.barrier()


def read(job, iterations):
    """Rank 0 reads a replicated object."""
    counter = job.share(counters(), "counter")
    counter.add(21)
    job.world.barrier()
    # A change is there when all before it are.
    equal(counter.add(0), 42)
    if job.rank == 0:
        seconds, _ = timed(iterations, counter.get)
        equal(counter.get(), 42)
        say(seconds)


def call(job, iterations):
    """Rank 0 calls an object at rank 1, which waits in a barrier."""
    counter = job.share(counters(), "counter", at=1)
    job.world.barrier()
    if job.rank == 0:
        seconds, all_of_them = timed(iterations, counter.null)
        equal(counter.get(), all_of_them)
        say(seconds)


def change(job, iterations):
    """Rank 0 changes a replicated object, and waits for each change."""
    counter = job.share(counters(), "counter")
    job.world.barrier()
    if job.rank == 0:
        seconds, _ = timed(iterations, lambda: counter.add(1))
        say(seconds)
    job.world.barrier()
    # A change is there when all before it are; a read might come earlier.
    equal(counter.add(0), rounds(iterations))


def region(job, iterations):
    """A region is written by one rank and read by the other, there and back."""
    world, me = job.world, job.rank
    mine = job.region(REGION, "B") if me == 0 else None
    name = world.broadcast(mine.name.encode() if me == 0 else None, 0)
    cells, turn = mine or job.map(name.decode()), bytearray(1)

    def write(page):
        with cells.write() as array, memoryview(array) as view:
            view[:] = page

    def look(page):
        with cells.read() as array:
            equal(bytes(array) == page, True)

    def there_and_back():
        write(PAGES[0])
        world.send(1, turn)
        world.recv(1, turn)
        look(PAGES[1])

    world.barrier()
    if me == 0:
        seconds, _ = timed(iterations, there_and_back)
        say(seconds)
        return
    for _ in range(rounds(iterations)):
        world.recv(0, turn)
        look(PAGES[0])
        write(PAGES[1])
        world.send(0, turn)


def pass_array(me, send, receive, iterations, size):
    """An array goes to the other rank and back: half of that is one way."""
    import numpy

    data = numpy.arange(size).astype("u1") + numpy.uint8(1)
    into = numpy.zeros(size, "u1")

    def there_and_back():
        send(data)
        receive(into)

    if me == 0:
        seconds, _ = timed(iterations, there_and_back)
        equal(bool((into == data).all()), True)
        say(seconds / 2)
        return
    for _ in range(rounds(iterations)):
        receive(into)
        send(into)


def array_of_weft(iterations, size):
    import weft

    with weft.init() as job:
        world, other = job.world, 1 - job.rank
        world.barrier()
        send = lambda data: world.send(other, data)
        receive = lambda into: world.recv(other, into)
        pass_array(job.rank, send, receive, iterations, size)
        world.barrier()


def array_of_mpi(iterations, size):
    signal.alarm(RUN)
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    me = comm.Get_rank()
    equal(comm.Get_size(), 2)
    bind(me)
    comm.Barrier()
    send = lambda data: comm.Send(data, 1 - me)
    receive = lambda into: comm.Recv(into, 1 - me)
    pass_array(me, send, receive, iterations, size)
    comm.Barrier()


def two_processes(child, *arguments):
    """Starts a second process, which ends with this one; each on a core of its own."""
    context, parent = multiprocessing.get_context("fork"), os.getpid()

    def second():
        import ctypes

        # PR_SET_PDEATHSIG (prctl(2)).
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() == parent:
            bind(1)
            child(*arguments)

    process = context.Process(target=second, daemon=True)
    process.start()
    bind(0)
    return process


def ended(process):
    process.join(START)
    equal(process.exitcode, 0)


def memory(iterations):
    """What `region` does, in shared memory of the standard library, handed over by semaphores."""
    from multiprocessing.shared_memory import SharedMemory

    context = multiprocessing.get_context("fork")
    there, back = context.Semaphore(0), context.Semaphore(0)
    shared = SharedMemory(create=True, size=REGION)

    def write(page):
        shared.buf[:REGION] = page

    def look(page):
        equal(bytes(shared.buf[:REGION]) == page, True)

    def second():
        for _ in range(rounds(iterations)):
            there.acquire()
            look(PAGES[0])
            write(PAGES[1])
            back.release()

    def there_and_back():
        write(PAGES[0])
        there.release()
        equal(back.acquire(timeout=START), True)
        look(PAGES[1])

    try:
        process = two_processes(second)
        seconds, _ = timed(iterations, there_and_back)
        ended(process)
        say(seconds)
    finally:
        shared.close()
        shared.unlink()


def places():
    """Returns two addresses of loopback that nobody has now."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    names = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in listeners]
    for listener in listeners:
        listener.close()
    return names


def replicated_counter(mine, other):
    """Returns a counter of PySyncObj."""
    from pysyncobj import SyncObj, SyncObjConf, replicated

    class Counter(SyncObj):
        def __init__(self):
            # With its own periods of 50 and 100 ms an operation takes 100 ms.
            often = SyncObjConf(autoTickPeriod=0.001, appendEntriesPeriod=0.001)
            super().__init__(mine, [other], often)
            self.value = 0

        @replicated
        def add(self, number):
            self.value += number
            return self.value

    return Counter()


def until(holds, what):
    end = time.monotonic() + START
    while not holds():
        if time.monotonic() > end:
            sys.exit(f"{what}: no end")
        time.sleep(0.001)


def pysyncobj(iterations):
    """What `change` does, by PySyncObj: two processes over loopback."""
    context = multiprocessing.get_context("fork")
    first, other = places()
    over = context.Event()

    def second():
        counter = replicated_counter(other, first)
        until(lambda: counter.value == rounds(iterations), "the other replica")
        over.wait()
        os._exit(0)

    process = two_processes(second)
    counter = replicated_counter(first, other)
    until(counter.isReady, "the election of a leader")
    seconds, all_of_them = timed(iterations, lambda: counter.add(1, sync=True, timeout=START))
    equal(counter.value, all_of_them)
    over.set()
    ended(process)
    say(seconds)


def check():
    """Prints what this Python has: each with `null`, or with the reason for its absence."""
    found = {"python": sys.version.split()[0]}
    for name in ("weft", "numpy", "mpi4py", "pysyncobj"):
        try:
            __import__(name)
            found[name] = None
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    if found["mpi4py"] is None:
        try:
            import mpi4py

            mpi4py.rc.initialize = False
            from mpi4py import MPI

            found["mpi"] = MPI.Get_library_version().split("\n")[0].strip("\0 ")
        except Exception as error:
            found["mpi4py"] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))


JOINED = {work.__name__: work for work in (read, call, change, region)}
OTHERS = {work.__name__: work for work in (array_of_weft, array_of_mpi, memory, pysyncobj, check)}

if __name__ == "__main__":
    role, numbers = sys.argv[1], [int(word) for word in sys.argv[2:]]
    if role in JOINED:
        joined(JOINED[role], *numbers)
    else:
        OTHERS[role](*numbers)
