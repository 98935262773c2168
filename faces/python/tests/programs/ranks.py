"""Cases that all ranks of a job run: `weft run -n N python ranks.py CASE`. Each rank that has found
everything right prints a line."""

import array
import asyncio
import os
import signal
import sys
import threading

import weft
import weft.names
from cases import Counter, is_right, raises, run


def values(start, count):
    return array.array("d", range(start, start + count))


def messages(job):
    """Messages of all lengths go round, by blocking calls and by requests."""
    world = job.world
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    for length in (0, 1, 100, 5000, 200_000):
        out, into = values(world.rank, length), values(0, length)
        received = world.irecv(left, into, tag=length)
        sent = world.isend(right, out, tag=length)
        status = received.wait(60)
        assert (status.source, status.tag, status.length) == (left, length, 8 * length), status
        assert sent.wait(60) is None and received.test()
        assert into == values(left, length)
    world.barrier()
    if world.rank == 0:
        world.send(1, memoryview(b"as bytes"))
        world.send(1, b"from any", 5)
        request = world.isend(1, bytearray(10), 6, sync=True)
        assert not request.test()
        raises(TimeoutError, lambda: request.wait(0))
        world.send(1, b"go", 7)
        assert request.wait() is None and request.wait() is None
    elif world.rank == 1:
        assert world.probe(0, timeout=60).length == 8
        assert world.recv(0) == b"as bytes"
        room = bytearray(20)
        status = world.recv(None, room, tag=None)
        assert (status.source, status.tag, room[:status.length]) == (0, 5, b"from any"), status
        assert world.recv(0, tag=7) == b"go"
        assert world.probe(0, 8) is None
        short = bytearray(3)
        raises(weft.TruncatedError, lambda: world.recv(0, short, 6), "10 bytes", "room for 3")


def misuse(job):
    """Locked buffers, dropped requests, Ctrl-C, threads, a fork."""
    world = job.world
    if world.rank > 0:
        world.recv(0, tag=12)
        for number in range(4):
            world.send(0, b"thread %d" % number, 11)
        return
    room = bytearray(100_000)
    request = world.irecv(1, room, 9)
    raises(BufferError, lambda: room.append(1))
    del request
    room.append(1)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    raises(KeyboardInterrupt, lambda: world.recv(1, room, 10))
    room.append(1)
    raises(weft.ArgumentError, lambda: world.recv(1, b"read-only"), "read-only")
    raises(weft.ArgumentError, lambda: world.send(2, b""), "no rank 2")
    rooms = [bytearray(8) for _ in range(4)]
    threads = [threading.Thread(target=world.recv, args=(1, room, 11)) for room in rooms]
    for thread in threads:
        thread.start()
    world.send(1, b"go", 12)
    for thread in threads:
        thread.join()
    assert sorted(rooms) == [b"thread %d" % number for number in range(4)], rooms
    child = os.fork()
    if child == 0:
        raises(weft.ForkedError, lambda: world.send(1, b""), "fork")
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    # A copy that leaves the block of the job leaves the job of nobody.
    child = os.fork()
    if child == 0:
        try:
            with job:
                sys.exit(8)
        except SystemExit as left:
            os._exit(left.code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 8


def collectives(job):
    """All collective operations, with bytes, buffers and numbers; groups of some ranks."""
    world, me, size = job.world, job.rank, job.size
    last = size - 1
    assert world.broadcast(b"to all" if me == last else None, last) == b"to all"
    room = values(0, 4)
    assert world.broadcast(values(7, 4), into=room) is room and room == values(7, 4)
    assert world.gather(b"%d" % me, last) == (
        [b"%d" % rank for rank in range(size)] if me == last else None)
    parts = [b"part %d" % rank for rank in range(size)] if me == 0 else None
    assert world.scatter(parts) == b"part %d" % me
    assert world.allgather(b"x" * me) == [b"x" * rank for rank in range(size)]
    all_of_them = values(0, 3 * size)
    assert world.allgather(values(3 * me, 3), into=all_of_them) == values(0, 3 * size)
    out = [b"%d to %d" % (me, rank) for rank in range(size)]
    assert world.alltoall(out) == [b"%d to %d" % (rank, me) for rank in range(size)]
    assert world.allreduce(me) == sum(range(size)) and world.allreduce(0.5) == 0.5 * size
    assert world.allreduce(me + 1, "max") == size and world.allreduce(1 << me, "or") == 2**size - 1
    assert world.reduce(2, "product", last) == (2**size if me == last else None)
    for letter in "bBhHiIlLqQfd":
        numbers = array.array(letter, [me, 1, 2])
        assert world.allreduce(numbers) is numbers
        assert numbers == array.array(letter, [sum(range(size)), size, 2 * size]), letter
    numbers, into = values(me, 2), values(0, 2)
    assert world.reduce(numbers, "min", into=into) is (into if me == 0 else None)
    assert numbers == values(me, 2) and into == values(0, 2)
    raises(weft.ArgumentError, lambda: world.allreduce(1, "mean"), "mean", "product")
    raises(weft.ArgumentError, lambda: world.allreduce(1, "average"), "averages take")
    assert world.allreduce(float(me), "average") == (size - 1) / 2
    flags = memoryview(bytearray([me == 0, True])).cast("?")
    assert world.allreduce(flags, "and").tolist() == [size == 1, True]
    raises(weft.ArgumentError, lambda: world.allreduce(b"bytes?".decode().encode()), "read-only")
    raises(weft.ArgumentError, lambda: world.allreduce(memoryview(b"c").cast("c")), 'type "c"')
    raises(weft.ArgumentError, lambda: world.subset([size], 1), f"no rank {size}")
    raises(weft.ArgumentError, lambda: world.subset([0, 0], 1), "rank 0 is in the list twice")
    even = world.subset(range(0, size, 2), 3)
    if me % 2:
        assert even is None
    else:
        assert (even.rank, even.size) == (me // 2, (size + 1) // 2)
        assert even.allreduce(1) == even.size
        even.ibarrier().wait(60)
        raises(weft.ArgumentError, lambda: world.subset([0], 3), "group 3")


def awaits(job):
    """Requests under `await`, more of them than the threads that wait for them."""
    world, count = job.world, 100
    other = 1 - world.rank

    async def run():
        rooms = [bytearray(4) for _ in range(count)]
        received = [world.irecv(other, room, tag) for tag, room in enumerate(rooms)]
        sent = [world.isend(other, b"%04d" % tag, tag) for tag in reversed(range(count))]
        statuses = [await request for request in reversed(received)]
        assert [status.tag for status in statuses] == list(reversed(range(count)))
        assert rooms == [b"%04d" % tag for tag in range(count)]
        assert await asyncio.gather(*sent) == [None] * count
        room = bytearray(4)
        late = world.irecv(other, room, 1000)
        try:
            await asyncio.wait_for(late, 0.05)
            raise AssertionError("nothing was sent")
        except TimeoutError:
            pass
        late.cancel()
        try:
            await late
            raise AssertionError("it was cancelled")
        except weft.CancelledError:
            pass

    asyncio.run(run())


def leaves(job):
    """Receives from any rank end when no rank remains that could send: with or without a buffer,
    as a request, as a probe; and once for a rank that has ended."""
    world = job.world
    world.barrier()
    if world.rank > 0:
        job.finish()
        is_right(job)
        sys.exit()
    room = bytearray(10)
    request = world.irecv(None, room, 1)
    for call in [
        lambda: world.recv(None),
        lambda: world.recv(None, room),
        lambda: world.probe(timeout=None),
        request.wait,
    ]:
        raises(weft.PeerError, call, "rank ")
    room.append(1)
    is_right(job)
    sys.exit()


def as_list(array):
    return array.tolist()


def regions(job):
    """Regions of all types, by name; operations of all ranks; wrong uses."""
    world, me, size = job.world, job.rank, job.size
    for letter in "BbHhIiQqfd":
        mine = job.region(10, letter)
        with mine.write() as array_:
            array_[3] = me
        names = [name.decode() for name in world.allgather(mine.name.encode())]
        next_ = job.map(names[(me + 1) % size])
        assert (len(next_), next_.format, next_.home) == (10, letter, (me + 1) % size)
        with next_.read() as array_:
            assert as_list(array_) == [0] * 3 + [(me + 1) % size] + [0] * 6, letter
        world.barrier()
    counts = job.map(names[0])
    for _ in range(50):
        with counts.write() as array_:
            array_[0] += 1
            array_[1] -= 1
        with counts.read() as array_:
            assert array_[0] == -array_[1] > 0
    world.barrier()
    with counts.read() as kept, counts.read() as again:
        assert kept[0] == again[0] == 50 * size
        raises(weft.ArgumentError, counts.write().__enter__, "this thread is in an operation")
        with memoryview(kept) as view:
            assert view.readonly and view.nbytes == 80
    hold = counts.write()
    with hold as array_:
        view = memoryview(array_)
        raises(weft.ArgumentError, counts.delete, "this thread is in an operation")
    # Its memory stays beyond the operation, the region and the job.
    value = view[0]
    counts.prefetch()
    counts.flush()
    world.barrier()
    raises(weft.ArgumentError, lambda: job.region(0), "has elements")
    raises(weft.ArgumentError, lambda: job.region(1, "x"), "the types are B b")
    raises(weft.ArgumentError, lambda: job.map("0:1"), "no name of a region")
    raises(weft.ArgumentError, lambda: job.map(f"{size}:0:d"), "no rank")
    raises(weft.ArgumentError, lambda: job.map("0:999:d"), "deleted, or never was")
    if me == size - 1:
        del mine
        counts.delete()
    world.barrier()
    raises(weft.ArgumentError, counts.read().__enter__)
    world.barrier()
    job.finish()
    del counts, hold, array_
    assert view[0] == value
    raises(weft.FinishedError, lambda: job.region(1))
    is_right(job)
    sys.exit()


def queues(job):
    """Jobs go to their owners until none is left, twice over."""
    world, size, most = job.world, job.size, 3000
    queue = job.queue(8)
    seen = set()

    def work(record):
        number = int.from_bytes(record, "little")
        if number not in seen:
            seen.add(number)
            for other in (2 * number, 3 * number + 1):
                if other < most:
                    queue.push(other % size, other.to_bytes(8, "little"))

    for _ in range(2):
        seen.clear()
        if world.rank == 1 % size:
            queue.push(1 % size, (1).to_bytes(8, "little"))
        done = queue.run(work)
        assert done >= len(seen)
        alone, left = {1}, [1]
        while left:
            number = left.pop()
            for other in (2 * number, 3 * number + 1):
                if other < most and other not in alone:
                    alone.add(other)
                    left.append(other)
        assert world.allreduce(len(seen)) == len(alone)
    if size > 1:
        other = job.queue(8 + world.rank, number=2)
        other.push((world.rank + 1) % size, bytes(other.size))
        error = lambda: other.run(work)
        raises(weft.MismatchError, error, "queue 2 of records of ", "the same number and size")
    # An exception of the work ends one call, and loses no other record.
    if world.rank == 0:
        for number in range(100):
            queue.push(0, number.to_bytes(8, "little"))
    fails, done = [3, 50, 97], []

    def work_or_fail(record):
        number = int.from_bytes(record, "little")
        if number in fails:
            fails.remove(number)
            raise KeyError(number)
        done.append(number)

    for _ in range(3 if world.rank == 0 else 0):
        raises(KeyError, lambda: queue.run(work_or_fail))
    queue.run(work_or_fail)
    left = sorted(set(range(100)) - {3, 50, 97}) if world.rank == 0 else []
    assert sorted(done) == left, done
    raises(weft.ArgumentError, lambda: queue.push(0, b"short"), "5 bytes, not 8")
    raises(weft.ArgumentError, lambda: queue.push(size, bytes(8)), "ranks, from 0")
    raises(weft.ArgumentError, lambda: job.queue(8), "open already")
    raises(weft.ArgumentError, lambda: job.queue(8, number=256), "numbers below")
    last = job.queue(8, number=255)
    last.push((world.rank + 1) % size, bytes(8))
    assert last.run(lambda record: None) == 1


@weft.shared
class Stack:
    """What ranks have pushed."""

    def __init__(self, *items):
        self.items = list(items)

    @weft.writes
    def push(self, item):
        self.items.append(item)
        return len(self.items)

    @weft.writes(post=True)
    def post(self, item):
        self.push(item)

    @weft.writes(when=lambda self: self.items)
    def pop(self):
        return self.items.pop()

    @weft.writes
    def half(self, fails):
        """Changes the state and raises."""
        self.items.append("half")
        raise KeyError(fails)

    @weft.writes
    def strange(self):
        return lambda: 0

    @weft.reads
    def all(self):
        return list(self.items)

    @weft.reads(when=lambda self, count: len(self.items) >= count)
    def at_least(self, count):
        return len(self.items)

    @weft.reads
    def broken(self):
        raise RuntimeError("a read that fails")


@weft.shared
class Wrong:
    @weft.writes
    def calls(self, other):
        other.push(1)

    @weft.writes
    def leaves(self):
        sys.exit(3)


def objects(job):
    """Replicated objects and objects at a rank: order, guards, exceptions, misuse."""
    world, me, size = job.world, job.rank, job.size
    last = size - 1
    for at in (None, last):
        stack = job.share(Stack, f"at {at}", "first", at=at)
        assert stack.push(me) in range(2, size + 2) and "Stack" in repr(stack)
        assert stack.at_least(size + 1) >= size + 1
        world.barrier()
        everywhere = world.allgather(repr(stack.all()).encode())
        assert everywhere == [everywhere[0]] * size and sorted(stack.all()[1:]) == list(range(size))
        world.barrier()
        # A rank waits for what the others push.
        if me == 0:
            taken = [str(stack.pop()) for _ in range(3 * size - 1)]
            pushed = [str(rank) for rank in range(size)]
            assert sorted(taken) == sorted(
                ["first"] + pushed + pushed[1:] + ["0"] * (size - 1)), taken
        else:
            stack.post(me)
            stack.post(0)
        if me == 0:
            stack.push(0)
            assert stack.pop() is not None
        world.barrier()
        for part in [f"rank {me}"]:
            error = raises(KeyError, lambda: stack.half(part), part)
            assert at is None or me == last or f"raised at rank {last}" in str(error.__notes__)
        raises(RuntimeError, stack.broken, "a read that fails")
        if at is None:
            assert callable(stack.strange())
        elif me != last:
            raises(weft.OperationError, stack.strange, "its result cannot be sent")
        world.barrier()
        everywhere = world.allgather(repr(stack.all()).encode())
        assert everywhere == [everywhere[0]] * size and stack.all().count("half") == size
        world.barrier()
    # Names: made once, by whoever is first; another kind of this name is refused.
    again = job.share(Stack, "at None", "ignored")
    assert "ignored" not in again.all()
    raises(weft.ArgumentError, lambda: job.share(Wrong, "at None"), "is there already")
    raises(weft.ArgumentError, lambda: job.share(int, "number"), "no class decorated")
    raises(weft.ArgumentError, lambda: job.share(Stack, "nowhere", at=size), f"no rank {size}")
    raises(weft.ArgumentError, lambda: weft.shared(int), "no method marked")
    raises(weft.ArgumentError, lambda: again.push(lambda: 0), "cannot be sent")
    wrong = job.share(Wrong, "wrong")
    raises(weft.OperationError, lambda: wrong.calls(again), "must not wait")
    raises(SystemExit, wrong.leaves, "3")
    # Objects are arguments; operations of threads.
    threads = [threading.Thread(target=again.push, args=(again,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    world.barrier()
    assert sum(isinstance(item, weft.Shared) for item in again.all()) == 3 * size
    world.barrier()


@weft.shared(placement="adaptive")
class Tally(Counter):
    @weft.writes(post=True)
    def post(self, number):
        self.count += number

    @weft.writes
    def fails(self):
        raise KeyError("fails")

    @weft.reads(when=lambda self, number: self.count >= number)
    def at_least(self, number):
        return self.count


def use_until(tally, use, place):
    """Uses an object until it is at a place."""
    for _ in range(20_000):
        if place in repr(tally):
            return
        use()
    raise AssertionError(f"{tally!r} is not {place}")


def adaptive(job):
    """An adaptive object goes to the rank that writes, is replicated when all read, and loses no
    operation on its way."""
    world, me, size = job.world, job.rank, job.size
    last = size - 1
    tally = job.share(Tally, "tally")
    assert "adaptive, now replicated" in repr(tally), repr(tally)
    world.barrier()
    if me == last:
        use_until(tally, lambda: tally.add(1), f"now at rank {last}")
        tally.add(1)
    # Who waits for the object goes with it, and gets its exceptions where it is.
    count = world.allreduce(tally.get() if me == last else 0)
    assert tally.at_least(count) >= count
    assert f"now at rank {last}" in repr(tally), repr(tally)
    raises(KeyError, tally.fails, "fails")
    world.barrier()
    if size > 1:
        use_until(tally, tally.get, "now replicated")
    world.barrier()
    # The object moves to and fro while all ranks write, and while one waits.
    times = 300
    before = world.allreduce(tally.at_least(count) if me == last else 0)
    if me == 0 and size > 1:
        assert tally.at_least(before + times // 2) >= before + times // 2
    else:
        for number in range(times):
            tally.add(1) if number % 3 else tally.post(1)
            (tally.get() if number % 2 else None)
    writers = max(1, size - 1)
    assert tally.at_least(before + times * writers) == before + times * writers
    # The argument of Job.share has the last word.
    fixed = job.share(Tally, "fixed", at="replicated")
    assert "adaptive" not in repr(fixed) and "at rank 0" in repr(job.share(Tally, "zero", at=0))
    raises(weft.ArgumentError, lambda: job.share(Tally, "fixed"), "is there already")
    raises(weft.ArgumentError, lambda: weft.shared(Tally, placement="here"), "not 'here'")
    raises(weft.ArgumentError, lambda: job.share(Tally, "odd", at=True), "not True")
    world.barrier()


def names(job):
    """Ranks claim names, find each other, are told of changes, and send messages to names."""
    world, me, last = job.world, job.rank, job.size - 1
    with weft.names.connect() as names:
        claim = names.publish(f"py:{me}", f"127.0.0.1:{4000 + me}", messages=True)
        rank = names.publish(f"rank:{me}", job)
        owners = names.wait("py", job.size, timeout=60)
        assert sorted(owner.name for owner in owners) == [f"py:{rank}" for rank in range(job.size)]
        found = names.find(f"py:{last}")
        assert found.address == f"127.0.0.1:{4000 + last}" and found.here, found
        assert names.find(f"rank:{me}").endpoint and names.find("py:1000") is None
        assert len(names.find_all("py")) == job.size and names.cluster == "test"
        with names.watch(f"py:{last}") as watch:
            first, mark = watch.next(60), next(watch)
            assert (first.kind, first.owner.name) == ("published", f"py:{last}"), first
            assert (mark.kind, mark.number) == ("all", 2) and watch.next(0) is None
            world.barrier()
            names.send(f"py:{(me + 1) % job.size}", b"from %d" % me)
            mail = names.next(60)
            assert (mail.kind, mail.number) == ("message", claim), mail
            assert mail.data == b"from %d" % ((me - 1) % job.size) and mail.owner.here
            world.barrier()
            if me == last:
                names.withdraw(claim)
            gone = watch.next(60)
            assert gone.kind == "withdrawn" and "withdrawn" in gone.cause, gone
        # The end of the time ends a subscription, and the iteration.
        kinds = [event.kind for event in names.watch("nobody", timeout=0.01)]
        assert kinds == ["all", "timeout"], kinds
        raises(TimeoutError, lambda: names.wait("nobody", timeout=0), "0 of 1 owners")
        raises(weft.ArgumentError, lambda: names.find("a b"), "is no name")
        raises(weft.ArgumentError, lambda: names.withdraw(-1), "out of range")
        raises(weft.ArgumentError, lambda: names.wait("py", -1), "out of range")
        raises(weft.ArgumentError, lambda: names.find("py", pick="any"), 'pick="any"')
        raises(weft.ArgumentError, lambda: names.publish("x", "here"), "is no address")
        raises(weft.ArgumentError, lambda: names.publish("x", 5), "an address, a text")
        raises(weft.RefusedError, lambda: names.send("py:1000", b"x"))
        names.withdraw(rank)
        world.barrier()
    raises(weft.AgentError, lambda: names.find("py"), "closed by this program")
    raises(weft.AgentError, lambda: weft.names.connect("@weft-nobody"), "no agent of a cluster")


def waits(job):
    """A guard that nobody makes true is told; an interrupt ends a wait, and replicas are equal."""
    stack = job.share(Stack, "empty")
    if job.rank == 0:
        threading.Timer(0.6, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        raises(KeyboardInterrupt, lambda: stack.at_least(5))
        for item in range(5):
            stack.push(item)
    assert stack.at_least(5) == 5
    job.world.barrier()


@weft.shared
class Blob:
    @weft.writes
    def take(self, data):
        return len(data)

    @weft.reads
    def give(self, length):
        return bytes(length)


def limits(job):
    """Arguments and results that are too long get errors that name the limit."""
    world, me, long = job.world, job.rank, 257 << 20
    blobs = [job.share(Blob, f"at {at}", at=at) for at in (0, "replicated")]
    if me == 1:
        raises(weft.OperationError, lambda: blobs[0].give(long), "result", "268435392 are the most")
        for blob in blobs:
            take = lambda: blob.take(bytes(long))
            raises(weft.ArgumentError, take, "the arguments of take of 'at ", "268435392 are")
        assert blobs[0].take(b"abc") == blobs[1].take(b"abc") == 3
    world.barrier()


def scalars(job):
    """Numbers of numpy, and arrays of one number without a dimension."""
    import numpy

    world, size = job.world, job.size
    for number in (numpy.int64(3), numpy.uint8(3), numpy.float32(3), numpy.float64(3)):
        total = world.allreduce(number)
        assert total == 3 * size and type(total) is type(number.item()), total
        if world.rank == 0:
            world.send(1 % size, number)
        if world.rank == 1 % size:
            assert numpy.frombuffer(world.recv(0), number.dtype)[0] == number
        raises(weft.ArgumentError, lambda: world.irecv(0, number), "read-only")
    array = numpy.array(2.5)
    assert world.allreduce(array) is array and array == 2.5 * size
    into = numpy.array(0)
    world.send(world.rank, numpy.array(7))
    assert world.recv(world.rank, into).length == 8 and into == 7
    raises(weft.ArgumentError, lambda: world.allreduce(numpy.array(1j)), "cannot be combined")


if __name__ == "__main__":
    run()
