"""Reads and guards that change nothing are not taken for others, in classes of all kinds; those
that change something are told. All in a job of one rank."""

import collections
import dataclasses
import functools
import threading
import time

import pytest

import weft


class Base:
    """The operations of all classes here, on an attribute `items`."""

    @weft.reads
    def all(self):
        return sorted(self.items)

    @weft.reads(when=lambda self, count: len(self.items) >= count)
    def at_least(self, count):
        return len(self.items)

    @weft.writes
    def put(self, item):
        self.items = self.items | {item}

    @weft.writes(when=lambda self, count: len(self.items) >= count)
    def empty(self, count):
        self.items = set()
        return count

    @weft.reads
    def spoils(self):
        self.items.add("spoilt")

    @weft.reads
    def assigns(self):
        self.items = set()


@weft.shared
class Plain(Base):
    def __init__(self):
        self.items = set()


@weft.shared
class Derived(Plain):
    """One whose base class is shared, too."""


@weft.shared
@dataclasses.dataclass
class Data(Base):
    items: set = dataclasses.field(default_factory=set)


@dataclasses.dataclass(slots=True)
@weft.shared
class DataSlots(Base):
    items: set = dataclasses.field(default_factory=set)


class MadeFrozen(Base):
    @weft.writes
    def put(self, item):
        self.items.add(item)

    @weft.writes(when=lambda self, count: len(self.items) >= count)
    def empty(self, count):
        self.items.clear()
        return count


@dataclasses.dataclass(frozen=True)
@weft.shared
class Frozen(MadeFrozen):
    items: set = dataclasses.field(default_factory=set)


@weft.shared
@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlots(MadeFrozen):
    items: set = dataclasses.field(default_factory=set)


@weft.shared
class Slots(Base):
    __slots__ = ("items",)

    def __init__(self):
        self.items = set()


@weft.shared
class Setter(Base):
    """One with functions of its own for attributes."""

    def __init__(self):
        self.items = set()

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        vars(self)["last"] = name

    def __delattr__(self, name):
        super().__delattr__(name)


@weft.shared
class DerivedSetter(Setter):
    def __setattr__(self, name, value):
        super().__setattr__(name, set(value))


@weft.shared
class Caches(Base):
    """One that keeps what it has computed."""

    def __init__(self):
        self.items, self.inner = set(), Inner()

    @functools.cached_property
    def answer(self):
        return 42

    @weft.reads
    def all(self):
        assert self.answer == 42 and self.inner.cached == [1]
        return sorted(self.items)


class Inner:
    @functools.cached_property
    def cached(self):
        return [1]


@weft.shared
class Clock(Base):
    """One whose pickle is another one each time."""

    def __init__(self):
        self.items = set()

    def __getstate__(self):
        return vars(self) | {"time": time.perf_counter_ns()}


@weft.shared
class Strange(Base):
    """One that cannot be pickled."""

    def __init__(self):
        self.items, self.lock = set(), threading.Lock()


@weft.shared
class Long(Base):
    """One whose pickle is long."""

    def __init__(self):
        self.items, self.bytes = set(), bytes(4 << 20)


@weft.shared
class Things(Base):
    """One with sets of objects, and with parts that are the same object or equal ones."""

    def __init__(self):
        self.items, self.things = set(), {Inner() for _ in range(20)}
        self.counts = collections.Counter("abc")
        self.pair, self.name = [self.things, "name" + str(len(self.things))[:0]], "name"

    @weft.reads
    def all(self):
        assert len([thing for thing in self.things]) == 20 and self.counts["z"] == 0
        assert self.pair[0] is self.things
        return sorted(self.items)


@weft.shared
class List(list, Base):
    @property
    def items(self):
        return set(self)

    @weft.writes
    def put(self, item):
        self.append(item)

    @weft.writes(when=lambda self, count: len(self) >= count)
    def empty(self, count):
        self.clear()
        return count

    @weft.reads
    def spoils(self):
        self.append("spoilt")

    @weft.reads
    def assigns(self):
        self.other = 1


COMPARED = [Plain, Derived, Data, DataSlots, Frozen, FrozenSlots, Slots, Setter, DerivedSetter,
            Caches, Things, List]
SKIPPED = [Clock, Strange, Long]


@pytest.mark.parametrize("at", ["replicated", 0, "adaptive"])
@pytest.mark.parametrize("kind", COMPARED + SKIPPED)
def test_no_false_alarm(job, kind, at):
    thing = job.share(kind, f"{kind.__name__} at {at}", at=at)
    for turn in range(3):
        for number in range(9):
            assert thing.all() == list(range(number))
            assert thing.put(number) is None
            assert thing.at_least(number + 1) == number + 1
        assert thing.empty(9) == 9


@pytest.mark.parametrize("at", ["replicated", 0, "adaptive"])
@pytest.mark.parametrize("kind", COMPARED)
def test_read_that_changes_a_part_is_told_and_undone(job, kind, at):
    thing = job.share(kind, f"{kind.__name__} that is spoilt at {at}", at=at)
    thing.put("first")
    # The counts start anew: reads of a rank are counted for all objects of the class.
    kind.__weft_methods__["spoils"].turns[1].__init__()
    for _ in range(2):
        with pytest.raises(weft.OperationError, match="spoils of .* was undone: .*weft.writes"):
            thing.spoils()
    assert thing.all() == ["first"]
    thing.put("second")
    assert thing.all() == ["first", "second"]


@pytest.mark.parametrize("kind", COMPARED + SKIPPED)
def test_read_that_assigns_is_told(job, kind):
    thing = job.share(kind, f"{kind.__name__} that is assigned to")
    thing.put("first")
    for _ in range(5):
        with pytest.raises(weft.OperationError, match="assigns of .* the attribute '.*weft.writes"):
            thing.assigns()
    assert thing.all() == ["first"]


@pytest.mark.parametrize("kind", [Plain, Data, DataSlots, Setter])
def test_objects_of_the_class_that_are_not_shared_change(job, kind):
    job.share(kind, f"{kind.__name__} beside others").put(1)
    alone = kind()
    alone.items = {1}
    alone.spoils()
    alone.assigns()
    assert alone.items == set()
    del alone.items


@weft.shared
class Array:
    def __init__(self):
        import numpy

        self.array = numpy.zeros(8)
        self.part = self.array[2:4]
        self.turned = numpy.arange(12.0).reshape(3, 4)[:, ::2]
        self.names = numpy.array(["a", None], dtype=object)

    @weft.reads
    def sum(self):
        return float(self.array.sum() + self.turned.sum())

    @weft.reads
    def spoils(self):
        self.array += 1

    @weft.reads
    def spoils_turned(self):
        self.turned[0, 0] = 7

    @weft.writes
    def set_part(self):
        self.part[:] = 1


def test_arrays_of_numpy(job):
    pytest.importorskip("numpy")
    array = job.share(Array, "array")
    for _ in range(9):
        assert array.sum() == 30
    for call in (array.spoils, array.spoils_turned, array.spoils):
        with pytest.raises(weft.OperationError, match="was undone"):
            call()
        assert array.sum() == 30


def test_parts_of_arrays_stay_parts(job):
    pytest.importorskip("numpy")
    array = job.share(Array, "array with a part")
    Array.__weft_methods__["spoils"].turns[1].__init__()
    with pytest.raises(weft.OperationError, match="was undone"):
        array.spoils()
    array.set_part()
    assert array.sum() == 32


def wrapped(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)

    return call


@weft.shared
class Gives:
    def __init__(self):
        self.items = collections.defaultdict(list)

    @weft.reads
    def myself(self):
        return self

    @weft.reads
    def of(self, key):
        return list(self.items[key])

    @weft.reads
    @wrapped
    def sets(self):
        self.items = 1

    @weft.writes
    def put(self, key, item):
        self.items[key].append(item)


def test_state_that_is_given_away_is_refused_to_set(job):
    gives = job.share(Gives, "gives")
    text = "'items' of the shared object 'gives' would change on this rank alone.*weft.writes"
    with pytest.raises(weft.OperationError, match=text):
        gives.myself().items = 1
    with pytest.raises(weft.OperationError, match=text):
        del gives.myself().items


def test_read_that_has_a_decorator_of_its_own_is_named(job):
    gives = job.share(Gives, "gives nothing")
    with pytest.raises(weft.OperationError, match="Gives.sets of 'gives nothing'.*'items'"):
        gives.sets()


def test_key_that_a_read_adds_is_told(job):
    gives = job.share(Gives, "gives keys")
    with pytest.raises(weft.OperationError, match="Gives.of of .* was undone"):
        gives.of("key")
    gives.put("key", 1)
    assert gives.of("key") == [1]
