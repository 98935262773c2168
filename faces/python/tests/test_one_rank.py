"""The package in one process: each test calls it, in a job of one rank."""

import ast
import copy
import ctypes
import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import weft
import weft.names
from conftest import PROGRAMS


@pytest.fixture(scope="session")
def queue(job):
    return job.queue(16)


def stub_classes():
    """The classes in the file of types that are there when programs run."""
    text = Path(weft.__file__).with_name("_weft.pyi").read_text(encoding="utf-8")
    classes = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    return [node for node in classes if "Protocol" not in map(ast.unparse, node.bases)]


@pytest.mark.parametrize("node", stub_classes(), ids=lambda node: node.name)
def test_file_of_types_names_all_methods(node):
    named = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
    named |= {part.target.id for part in node.body if isinstance(part, ast.AnnAssign)}
    here = weft if hasattr(weft, node.name) else weft.names
    there = {name for name in vars(getattr(here, node.name)) if not name.startswith("_")}
    assert there == {name for name in named if not name.startswith("_")}


def functions():
    """All functions and methods of the package, by their names."""
    found = {}
    for module in (weft, weft.names):
        for name in module.__all__:
            thing = getattr(module, name)
            parts = vars(thing).items() if isinstance(thing, type) else [(name, thing)]
            found |= {f"{name}.{key}": part for key, part in parts
                      if callable(part) and not key.startswith("_")}
    return found


@pytest.mark.parametrize("name", functions())
def test_signature_shows_each_default(name):
    text = str(inspect.signature(functions()[name]))
    assert not any(part in text for part in ("Ellipsis", "...", "Some"))


@pytest.mark.parametrize("name, text", {
    "Group.recv": "(self, /, source, into=None, tag=0)",
    "Group.irecv": "(self, /, source, into, tag=0)",
    "Group.probe": "(self, /, source=None, tag=0, timeout=0)",
    "Job.queue": "(self, /, size, *, number=0, batch=64)",
    "init.init": "()",
}.items())
def test_signature_is_this(name, text):
    assert str(inspect.signature(functions()[name])) == text


def test_signature_of_classes_and_operations(job):
    stack = job.share(Stack, "of signatures")
    assert str(inspect.signature(stack.at_least)) == "(count)"
    assert str(inspect.signature(weft.Status)) == "(source, tag, length)"


OWNER = weft.names.Owner("pump:7", "10.0.0.1:4000", 0, 5, True, 0, 12)
EVENT = weft.names.Event("published", 1, OWNER, None, None)
MAIL = weft.names.Event("message", 1, OWNER, "cause", b"data")
COPIES = [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))]


@pytest.mark.parametrize("copied", COPIES, ids=["copy", "deepcopy", "pickle"])
@pytest.mark.parametrize("value", [weft.Status(0, 4, 4), OWNER, EVENT, MAIL], ids=repr)
def test_copy_of_a_value_is_equal(value, copied):
    same = copied(value)
    assert same == value and not same != value
    assert hash(same) == hash(value) and repr(same) == repr(value)


@pytest.mark.parametrize("copied", COPIES, ids=["copy", "deepcopy", "pickle"])
def test_copy_of_an_error_has_its_parts(copied):
    same = copied(weft.PeerError("text", 3, "host"))
    assert type(same) is weft.PeerError and isinstance(same, ConnectionError)
    assert (str(same), same.rank, same.host) == ("text", 3, "host")


def test_values_that_differ_are_not_equal(job):
    job.world.send(0, b"four", 4)
    status = job.world.recv(0, bytearray(4), 4)
    assert status == weft.Status(0, 4, 4) != weft.Status(0, 4, 5) and status != (0, 4, 4)
    assert EVENT != MAIL and {EVENT, MAIL} == {copy.copy(EVENT), copy.copy(MAIL)}


def test_objects_of_the_process_are_not_pickled(job, queue):
    request = job.world.irecv(0, bytearray(1), 99)
    for other in (job, job.world, job.region(1), queue, request):
        with pytest.raises(TypeError, match=f"cannot pickle 'weft.{type(other).__name__}'"):
            pickle.dumps(other)


class Pair(ctypes.Structure):
    _fields_ = [("P", ctypes.c_int), ("O", ctypes.c_double)]


class Link(ctypes.Structure):
    _fields_ = [("next", ctypes.POINTER(Pair)), ("value", ctypes.c_int)]


def of_numpy(make):
    return lambda: make(pytest.importorskip("numpy"))


def two_of(kind):
    return lambda: (kind * 2)()


ADDRESSES = {
    "py_object": two_of(ctypes.py_object),
    "c_void_p": two_of(ctypes.c_void_p),
    "c_char_p": two_of(ctypes.c_char_p),
    "c_wchar_p": two_of(ctypes.c_wchar_p),
    "structure": two_of(Link),
    "pointer": two_of(ctypes.POINTER(ctypes.c_int)),
    "function": two_of(ctypes.CFUNCTYPE(None)),
    "numpy": of_numpy(lambda numpy: numpy.array(["text", None], dtype=object)),
    "numpy-field": of_numpy(lambda numpy: numpy.zeros(2, dtype=[("a", "f8"), ("b", object)])),
}
USES = {
    "send": lambda world, queue, memory: world.send(0, memory),
    "isend": lambda world, queue, memory: world.isend(0, memory),
    "recv": lambda world, queue, memory: world.recv(0, memory),
    "irecv": lambda world, queue, memory: world.irecv(0, memory),
    "broadcast": lambda world, queue, memory: world.broadcast(memory),
    "gather": lambda world, queue, memory: world.gather(memory),
    "scatter": lambda world, queue, memory: world.scatter([memory]),
    "alltoall": lambda world, queue, memory: world.alltoall([memory]),
    "allgather": lambda world, queue, memory: world.allgather(memory),
    "allreduce": lambda world, queue, memory: world.allreduce(memory),
    "push": lambda world, queue, memory: queue.push(0, memory),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("memory", ADDRESSES)
def test_memory_with_addresses_is_refused(job, queue, memory, use):
    with pytest.raises(weft.ArgumentError, match="addresses of this process"):
        USES[use](job.world, queue, ADDRESSES[memory]())


@pytest.mark.parametrize("use", ["send", "irecv", "scatter", "push"])
@pytest.mark.parametrize("thing", [[1, 2], "text", 5, None], ids=repr)
def test_objects_without_a_buffer_are_refused(job, queue, thing, use):
    with pytest.raises(TypeError, match=f"a {type(thing).__name__} has no buffer: pass bytes"):
        USES[use](job.world, queue, thing)


@pytest.mark.parametrize("use", ["send", "irecv", "scatter", "push"])
def test_a_job_has_no_buffer(job, queue, use):
    with pytest.raises(TypeError, match="a weft.Job has no buffer"):
        USES[use](job.world, queue, job)


@pytest.mark.parametrize("kind", [Pair, ctypes.c_double, ctypes.c_char, ctypes.c_wchar])
def test_memory_without_addresses_is_sent(job, kind):
    job.world.send(0, (kind * 2)())
    job.world.recv(0, (kind * 2)())


@pytest.mark.parametrize("call", [
    lambda job: job.world.send(-1, b""),
    lambda job: job.world.send(0, b"", -1),
    lambda job: job.world.isend(0, b"", 1 << 32),
    lambda job: job.world.recv(-1),
    lambda job: job.world.irecv(0, bytearray(1), -1),
    lambda job: job.world.probe(-1),
    lambda job: job.world.subset([-1], 1),
    lambda job: job.world.subset([0], 1 << 16),
    lambda job: job.world.broadcast(b"", -1),
    lambda job: job.world.gather(b"", -1),
    lambda job: job.world.reduce(1, root=-1),
    lambda job: job.world.allreduce(1 << 70),
    lambda job: job.world.ibarrier().wait(10**400),
    lambda job: job.region(-1),
    lambda job: job.region(1 << 70),
    lambda job: job.queue(-1, number=1),
    lambda job: job.queue(8, number=-1),
    lambda job: job.queue(8, number=1, batch=-1),
], ids=lambda call: " ".join(call.__code__.co_names))
def test_numbers_out_of_range_are_refused(job, call):
    with pytest.raises(weft.ArgumentError, match="out of range: pass a "):
        call(job)


def test_rank_of_a_push_out_of_range_is_refused(queue):
    with pytest.raises(weft.ArgumentError, match="out of range: pass a "):
        queue.push(-1, bytes(16))


def test_rank_that_is_no_number_is_refused(job):
    with pytest.raises(TypeError, match="str"):
        job.world.send("0", b"")


@pytest.mark.parametrize("call, limit", [
    (lambda job: job.region(1 << 40, "d"), "at most 268435456 bytes.*33554432"),
    (lambda job: job.queue(1 << 40), "at most 268435455"),
    (lambda job: job.map("4294967296:0:d"), "no name of a region"),
], ids=["region", "queue", "map"])
def test_lengths_above_the_limit_are_refused(job, call, limit):
    with pytest.raises(weft.ArgumentError, match=limit):
        call(job)


@weft.shared
class Stack:
    def __init__(self):
        self.items = []

    @weft.writes
    def push(self, item):
        self.items.append(item)

    @weft.reads
    def all(self):
        return list(self.items)

    @weft.reads(when=lambda self, count: len(self.items) >= count)
    def at_least(self, count):
        return len(self.items)


async def waits(self):
    pass


async def yields_and_waits(self):
    yield


def yields(self):
    yield


MARKS = {"reads": weft.reads, "writes": weft.writes, "post": weft.writes(post=True)}


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("wrong", [staticmethod(yields), classmethod(yields), property(yields),
                                   Stack], ids=lambda wrong: type(wrong).__name__)
def test_mark_of_no_method_is_refused(wrong, mark):
    with pytest.raises(weft.ArgumentError, match="is no method.*plain function"):
        MARKS[mark](wrong)


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("function", [waits, yields, yields_and_waits])
def test_mark_of_a_function_that_could_wait_is_refused(function, mark):
    with pytest.raises(weft.ArgumentError, match=f"{function.__name__}.*plain function"):
        MARKS[mark](function)


@pytest.mark.parametrize("function", [waits, yields, yields_and_waits])
def test_guard_that_could_wait_is_refused(function):
    with pytest.raises(weft.ArgumentError, match="the guard.*plain function"):
        weft.writes(when=function)


@pytest.mark.parametrize("call, text", [
    (lambda: weft.reads(when=5), "5 is no guard"),
    (lambda: weft.shared(placement="anywhere"), "not 'anywhere'"),
    (lambda: weft.shared("replicated"), "is no class"),
], ids=["guard", "placement", "class"])
def test_wrong_argument_of_a_mark_is_refused(call, text):
    with pytest.raises(weft.ArgumentError, match=text):
        call()


@pytest.mark.parametrize("wrong", [
    lambda stack: setattr(stack, "items", 5),
    lambda stack: delattr(stack, "push"),
], ids=["set", "delete"])
def test_attribute_of_a_shared_object_stays(job, wrong):
    stack = job.share(Stack, "of attributes")
    with pytest.raises(AttributeError, match="of the shared object 'of attributes'.*weft.writes"):
        wrong(stack)


@pytest.mark.parametrize("wrong", [lambda stack: stack.items, lambda stack: stack.peek()],
                         ids=["state", "unknown"])
def test_attribute_that_is_no_operation_is_refused(job, wrong):
    stack = job.share(Stack, "of names")
    text = "the shared object 'of names' has no operation.*weft.reads"
    with pytest.raises(AttributeError, match=text):
        wrong(stack)


def test_copy_of_a_shared_object_is_the_object(job):
    stack = job.share(Stack, "copied")
    assert not hasattr(stack, "_items") and copy.copy(stack).all() == []
    stack.push(1)
    assert copy.copy(stack).all() == stack.all() == [1]


def test_job_is_joined_once(job):
    assert weft.init() is job


AGAIN = """
import weft
for turn in range(3):
    with weft.init() as job:
        assert weft.init() is job
        assert job.world.allreduce(turn) == turn
        counter = job.share(Counter, "counter")
        assert counter.add(1) == 1
print("done")
"""


def test_cell_of_a_notebook_that_runs_again_has_a_job(tmp_path):
    counter = "from cases import Counter\n"
    code = f"import sys; sys.path.insert(0, {str(PROGRAMS)!r})\n{counter}{AGAIN}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr
