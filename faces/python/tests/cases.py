"""Parts of the programs of cases, which all ranks of a job run: `weft run -n N python FILE CASE`.
Each rank that has found everything right prints a line."""

import sys

import weft


def raises(kind, call, *parts):
    """Returns the exception of this class that the call raises, with these parts in its text."""
    try:
        call()
    except kind as error:
        assert all(part in str(error) for part in parts), error
        return error
    raise AssertionError(f"no {kind.__name__}")


@weft.shared
class Counter:
    def __init__(self):
        self.count = 0

    @weft.writes
    def add(self, number):
        self.count += number
        return self.count

    @weft.reads
    def get(self):
        return self.count


_joined = []


def me():
    """The number of this rank."""
    return _joined[0].rank


def is_right(job):
    """Tells that this rank has found everything right."""
    print(f"rank {job.rank} of {job.size} is right: {sys.argv[1]}")


def run(*cases):
    """Runs the case of the command line."""
    case = {case.__name__: case for case in cases}[sys.argv[1]]
    with weft.init() as job:
        _joined.append(job)
        case(job)
        job.world.barrier()
        is_right(job)
