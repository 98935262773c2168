"""Cases that all ranks of a job run: `weft run -n N python ranks.py CASE`. Each rank that has found
everything right prints a line."""

import array
import os
import signal
import sys
import threading

import weft


def raises(kind, call, *parts):
    """Returns the exception of this class that the call raises, with these parts in its text."""
    try:
        call()
    except kind as error:
        assert all(part in str(error) for part in parts), error
        return error
    raise AssertionError(f"no {kind.__name__}")


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


CASES = {case.__name__: case for case in [messages, misuse]}

if __name__ == "__main__":
    with weft.init() as joined:
        CASES[sys.argv[1]](joined)
        joined.world.barrier()
        print(f"rank {joined.rank} of {joined.size} is right: {sys.argv[1]}")
