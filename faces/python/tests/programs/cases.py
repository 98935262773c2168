"""Parts of the programs of cases, which all ranks of a job run: `weft run -n N python FILE CASE`.
Each rank that has found everything right prints a line."""

import reprlib
import sys
import traceback

import weft

SHORT = reprlib.Repr()
SHORT.maxother = 200


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


def explain(kind, error, trace):
    """Prints an exception, and behind a failed assertion the variables of the case."""
    traceback.print_exception(kind, error, trace)
    if not issubclass(kind, AssertionError):
        return
    for frame, _ in traceback.walk_tb(trace):
        if frame.f_code.co_filename != __file__ and frame.f_code.co_name != "<module>":
            shown = (f"{name} = {SHORT.repr(value)}" for name, value in frame.f_locals.items())
            print(f"in {frame.f_code.co_name}:", *shown, sep="\n    ", file=sys.stderr)


def run():
    """Runs the case of the command line, a function of the program."""
    sys.excepthook = explain
    case = getattr(sys.modules["__main__"], sys.argv[1])
    with weft.init() as job:
        _joined.append(job)
        case(job)
        job.world.barrier()
        is_right(job)
