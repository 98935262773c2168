"""Cases of actors, which all ranks of a job run: `weft run -n N python driven.py CASE`. Each rank
that has found everything right prints a line."""

import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import weft
from cases import is_right, raises, run


def shown(job, value):
    """Returns the value of each rank."""
    return [pickle.loads(part) for part in job.world.allgather(pickle.dumps(value))]


class Place:
    """A place of a ring, which counts how often the token has passed."""

    def __init__(self, index, length=8):
        self.index = index
        self.length = length
        self.passed = 0
        self.results = []

    def token(self, turn, left):
        assert turn.index == self.index
        self.passed += 1
        if left == 0:
            turn.array.all.stop(last=self.index)
        else:
            turn.array[(self.index + 1) % self.length].token(left - 1)

    def stop(self, turn, *, last):
        turn.contribute(self.passed)
        turn.contribute([(self.index, last)], "list")

    def reduced(self, turn, value, section):
        assert section == 0
        self.results.append(value)


def ring(job):
    """A token passes through a ring; two reductions come in order; objects keep their states."""
    actors = job.actors()
    assert job.actors() is actors
    places = actors.array(Place, 8)
    assert places.result is None
    if job.rank == 0:
        places[3].token(99)
    actors.run()
    assert sorted(places.result) == [(index, 6) for index in range(8)]
    here = places.here()
    for index, place in here.items():
        assert place.index == index and places.rank_of(index) == job.rank
        assert place.results[0] == 100, place.results
        assert place.passed == 12 + (3 <= index <= 6)
    counts = shown(job, len(here))
    assert sum(counts) == 8 and max(counts) - min(counts) <= 1
    # The next run begins where this one ended.
    if job.rank == job.size - 1:
        places[0].token(7)
    actors.run()
    assert all(place.passed == 13 + (3 <= index <= 6) for index, place in places.here().items())


class Cell:
    def __init__(self, index, seen=()):
        self.at = index
        self.seen = list(seen)

    def note(self, turn, what, reply=None):
        self.seen.append(what)
        if reply is not None:
            turn.to(ARRAYS[1])[reply].note((turn.index, what))

    def burst(self, turn):
        """Sends to itself: the least priority comes first, and equal ones in their order."""
        for priority in (3, 0, -2, 3):
            turn.array.at(priority)[self.at].note(priority)

    def vote(self, turn, section):
        turn.contribute(len(self.seen), max, section)
        turn.contribute(float(self.at[0]), "min", section)

    def reduced(self, turn, value, section):
        self.seen.append((section, value))


ARRAYS = []


def grid(job):
    """Two dimensions, priorities, sections, and messages to another array."""
    actors = job.actors()
    ARRAYS[:] = [actors.array(Cell, (3, 4)), actors.array(Cell, 2, seen=[0])]
    cells, others = ARRAYS
    cells.make_section(1, [(0, 1), (2, 3)])
    if job.rank == 0:
        cells[1, 2].burst()
        cells[2, 0].note("far", reply=1)
        cells.section(1).note("some")
        cells.section(1).vote(1)
    actors.run()
    for index, cell in cells.here().items():
        if index == (1, 2):
            assert cell.seen == [-2, 0, 3, 3], cell.seen
        elif index == (2, 0):
            assert cell.seen == ["far"], cell.seen
        elif index in [(0, 1), (2, 3)]:
            assert cell.seen == ["some", (1, 1), (1, 0.0)], cell.seen
        else:
            assert cell.seen == [], (index, cell.seen)
    for index, cell in others.here().items():
        assert cell.seen == ([0, ((2, 0), "far")] if index == 1 else [0]), cell.seen
    assert cells.result_of(1) == 0.0 and cells.result is None


class Heavy:
    def __init__(self, index):
        self.index = index
        self.ranks = []

    def work(self, turn):
        self.ranks.append(turn.rank)
        end = time.process_time() + (0.01 if self.index < 4 else 0.001)
        while time.process_time() < end:
            pass

    def go(self, turn, to):
        turn.move_to(to)
        turn.array[self.index].work()


def moves(job):
    """Objects move by themselves and by balances, with their states; messages follow."""
    actors = job.actors()
    heavy = actors.array(Heavy, 12)
    if job.rank == 0:
        heavy[0].go(job.size - 1)
    actors.run()
    assert heavy.rank_of(0) == job.size - 1 or job.rank not in (0, job.size - 1)
    actors.measure()
    heavy.all.work() if job.rank == 0 else None
    actors.run()
    found = shown(job, {index: place.ranks for index, place in heavy.here().items()})
    whole = {index: ranks for part in found for index, ranks in part.items()}
    assert whole[0] == [job.size - 1] * 2 and len(whole) == 12, whole
    moved = actors.balance("rotate")
    assert moved.moved == (12 if job.size > 1 else 0), moved
    heavy.all.work() if job.rank == 0 else None
    actors.run()
    for _, place in heavy.here().items():
        assert place.ranks[-1] == job.rank == (place.ranks[-2] + 1) % job.size
    balanced = actors.balance()
    assert balanced.after <= balanced.before or balanced.moved == 0, balanced
    heavy.all.work() if job.rank == 0 else None
    actors.run()
    half = actors.balance(lambda ranks, objects, edges: [0] * len(objects))
    assert abs(half.after - job.size) < 1e-9, half
    assert len(heavy.here()) == (12 if job.rank == 0 else 0)
    wrong = "places" if job.rank else "ZeroDivisionError"
    error = raises(weft.ActorError, lambda: actors.balance(lambda *_: 1 // 0), "places")
    assert job.rank or wrong in repr(error.__cause__), error.__cause__


def files(job):
    """A checkpoint is read by the same program; a damaged one is refused and objects stay."""
    actors = job.actors()
    places = actors.array(Place, 8)
    if job.rank == 0:
        places[0].token(15)
    actors.run()
    folder = shown(job, tempfile.mkdtemp() if job.rank == 0 else None)[0]
    path = Path(folder) / "actors"
    actors.checkpoint(path)
    places.all.stop(last=0) if job.rank == 0 else None
    places[0].token(31) if job.rank == 0 else None
    actors.run()
    actors.restore(path)
    assert all(place.passed == 2 for place in places.here().values())
    if job.rank == 0:
        path.write_bytes(path.read_bytes()[:-9])
    raises(weft.ActorError, lambda: actors.restore(path), "checkpoint")
    assert all(place.passed == 2 for place in places.here().values())
    actors.run()
    raises(weft.ActorError, lambda: actors.checkpoint("/nowhere/at/all"), "/nowhere")
    if job.rank == 0:
        path.unlink(missing_ok=True)
        path.parent.rmdir()


class Wrong:
    def __init__(self, index):
        self.index = index
        self.lock = None

    def fails(self, turn):
        raise ValueError("not today")

    def waits(self, turn):
        turn.array.all.nothing()
        JOB[0].world.barrier()

    def far(self, turn):
        turn.array[99].nothing()

    def stuck(self, turn):
        self.lock = threading.Lock()
        turn.move_to((turn.rank + 1) % JOB[0].size)

    def uneven(self, turn, how):
        turn.contribute(1, how)

    def nothing(self, turn):
        pass

    def interrupted(self, turn):
        if turn.rank == 0:
            os.kill(os.getpid(), signal.SIGINT)
        self.lock = "held back"


JOB = []


def faults(case, kind, *parts):
    def of(job):
        JOB[:] = [job]
        actors = job.actors()
        wrongs = actors.array(Wrong, 4)
        if job.rank == 0:
            getattr(wrongs[3], case)()
        error = raises(weft.ActorError, actors.run, "object [3] of Wrong at rank", *parts)
        if 3 in wrongs.here():
            assert isinstance(error.__cause__, kind), repr(error.__cause__)
        raises(weft.ActorError, actors.run, *parts)

    return of


def uneven(job):
    """Contributions that cannot be combined end the run by the turn of their result."""
    actors = job.actors()
    wrongs = actors.array(Wrong, 4)
    if job.rank == 0:
        for index, how in enumerate(["sum", "max", "sum", "sum"]):
            wrongs[index].uneven(how)
    raises(weft.ActorError, actors.run, "different operations")


def interrupt(job):
    """Ctrl-C in a turn comes at its end, and the turn is whole."""
    actors = job.actors()
    wrongs = actors.array(Wrong, 4)
    if job.rank == 0:
        wrongs.all.interrupted()
    if job.rank == 0:
        raises(KeyboardInterrupt, actors.run)
        assert all(wrong.lock in (None, "held back") for wrong in wrongs.here().values())
    actors.run()
    assert all(wrong.lock == "held back" for wrong in wrongs.here().values())


def arguments(job):
    """Arguments that are wrong are refused at once, at this rank."""
    actors = job.actors()
    wrongs = actors.array(Wrong, 4)
    raises(weft.ArgumentError, lambda: wrongs[4], "no object 4", "shape 4")
    raises(weft.ArgumentError, lambda: wrongs[0, 0], "no object (0, 0)")
    raises(AttributeError, lambda: wrongs[0].absent(), "Wrong has no method 'absent'")
    raises(AttributeError, lambda: wrongs[0]._hidden)
    raises(weft.ArgumentError, lambda: wrongs.section(7), "no section 7")
    raises(weft.ArgumentError, lambda: wrongs.make_section(0, []), "from 1")
    raises(weft.ArgumentError, lambda: wrongs.at(1 << 40), "32 bits")
    raises(weft.ArgumentError, lambda: actors.array(3, 4), "no class")
    raises(weft.ArgumentError, lambda: actors.array(Wrong, ()), "a shape")
    raises(weft.ArgumentError, lambda: actors.array(Wrong, (1 << 31, 4)), "2^32")
    raises(weft.ArgumentError, lambda: actors.balance("best"), "greedy", "best")
    raises(weft.ArgumentError, lambda: wrongs[0].uneven(threading.Lock()), "cannot be sent")

    class Inner:
        pass

    raises(weft.ArgumentError, lambda: actors.array(Inner, 4), "top level")


def death(job):
    """The death of a rank ends the run at all others, with its name."""
    actors = job.actors()
    places = actors.array(Place, 8, length=1 << 40)
    if job.rank == job.size - 1:
        is_right(job)
        sys.stdout.flush()
        os._exit(0)
    places.all.stop(last=0)
    error = raises(weft.PeerError, actors.run, f"rank {job.size - 1}", "its objects are lost")
    assert error.rank == job.size - 1
    is_right(job)
    sys.stdout.flush()
    os._exit(0)


fails = faults("fails", ValueError, "ValueError: not today")
waits = faults("waits", weft.OperationError, "may wait for other ranks")
far = faults("far", weft.ArgumentError, "no object 99")
stuck = faults("stuck", weft.ArgumentError, "its state has no bytes")

if __name__ == "__main__":
    run()
