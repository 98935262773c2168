"""Actors: arrays of objects that messages drive, and that move between ranks.

The extension has the arrays: where objects are, the order of messages, the end of a run. Here are
the handles by which a program sends, and the turns of objects.
"""

from __future__ import annotations

import pickle
from typing import NamedTuple

from weft import _objects
from weft._errors import ArgumentError, OperationError

#: The kinds of what an object does in a turn, as the extension numbers them.
_SEND, _BROADCAST, _CONTRIBUTE, _MOVE = range(4)
#: Priorities are numbers of 32 bits.
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1

#: Operations of reductions by their names.
_COMBINED = {
    "sum": lambda one, two: one + two,
    "product": lambda one, two: one * two,
    "min": lambda one, two: min(one, two),
    "max": lambda one, two: max(one, two),
    "and": lambda one, two: one and two,
    "or": lambda one, two: one or two,
    "list": lambda one, two: one + two,
}


class Balanced(NamedTuple):
    """What a balance has done."""

    #: The number of objects that moved.
    moved: int
    #: The greatest load of a rank by the mean of all, before and afterwards.
    before: float
    after: float


class _Raised:
    """The exception of a combination, in place of its value."""

    def __init__(self, text):
        self.text = text


def _combine(one, two):
    """Combines two contributions: pickles of an operation and a value."""
    (how, one), (other, two) = pickle.loads(one), pickle.loads(two)
    if isinstance(one, _Raised) or isinstance(two, _Raised):
        value = one if isinstance(one, _Raised) else two
    elif how != other:
        value = _Raised(f"objects contribute by different operations: {how!r} and {other!r}")
    else:
        try:
            value = (_COMBINED[how] if isinstance(how, str) else how)(one, two)
        except Exception as error:
            value = _Raised(f"two contributions cannot be combined: {_objects._text_of(error)}")
    return _dump((how, value))


def _dump(value):
    return _objects._dump(value)


def _value_of(bytes_):
    """Returns the value of a reduction."""
    _, value = pickle.loads(bytes_)
    if isinstance(value, _Raised):
        raise OperationError(value.text)
    return value


class _Method:
    """A method of objects elsewhere: a call of it is a message."""

    __slots__ = ("_name", "_way")

    def __init__(self, way, name):
        self._way = way
        self._name = name

    def __call__(self, *args, **kwargs):
        array = self._way.array
        if not callable(getattr(array.kind, self._name, None)):
            raise AttributeError(f"{array.kind.__qualname__} has no method {self._name!r}")
        self._way.send(_dump((self._name, args, kwargs)))


class _Receiver:
    """One object of an array, or all of a section: its methods are messages to it."""

    __slots__ = ("_to",)

    def __init__(self, to):
        self._to = to

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(f"messages have no method {name!r}: its name begins with _")
        return _Method(self._to, name)


class _ToOne:
    """The way to an object."""

    __slots__ = ("array", "index", "priority", "turn")

    def __init__(self, array, turn, index, priority):
        self.array, self.turn, self.index, self.priority = array, turn, index, priority

    def send(self, message):
        array = self.array
        if self.turn is None:
            array._inner.send(array.number, self.index, self.priority, message)
        else:
            self.turn._did.append((_SEND, array.number, self.index, self.priority, message))


class _ToMany:
    """The way to all objects of a section."""

    __slots__ = ("array", "section", "turn")

    def __init__(self, array, turn, section):
        self.array, self.turn, self.section = array, turn, section

    def send(self, message):
        array = self.array
        if self.turn is None:
            array._inner.broadcast(array.number, self.section, message)
        else:
            self.turn._did.append((_BROADCAST, self.section, [], 0, message))


class _Way:
    """An array, from a turn or from the program: `way[index].method(...)` sends a message."""

    __slots__ = ("_array", "_priority", "_turn")

    def __init__(self, array, turn=None, priority=0):
        self._array, self._turn, self._priority = array, turn, priority

    def __getitem__(self, index):
        array = self._array
        return _Receiver(_ToOne(array, self._turn, array._numbers(index), self._priority))

    def at(self, priority):
        """Returns the array with a priority for messages: the least number comes first, and 0 is
        that of others."""
        if not isinstance(priority, int) or not _LEAST <= priority <= _MOST:
            raise ArgumentError(f"a priority is a whole number of 32 bits, not {priority!r}")
        return _Way(self._array, self._turn, priority)

    @property
    def all(self):
        """All objects of the array: each gets the message."""
        return self.section(0)

    def section(self, number):
        """The objects of a section."""
        array, turn = self._array, self._turn
        if number not in array._sections:
            raise ArgumentError(f"the array has no section {number!r}: make_section makes one")
        if turn is not None and turn._array is not array:
            raise ArgumentError("a turn sends to all objects of its own array only")
        return _Receiver(_ToMany(array, turn, number))


class Turn:
    """The turn of an object: what it may do while it has a message."""

    __slots__ = ("_array", "_did", "index", "rank")

    def __init__(self, array, index, rank):
        self._array = array
        #: The index of the object: a number, or a tuple of numbers.
        self.index = array._index(index)
        #: The rank at which it is.
        self.rank = rank
        self._did = []

    @property
    def array(self):
        """The array of the object: `turn.array[index].method(...)` sends a message."""
        return _Way(self._array, self)

    def to(self, array):
        """Returns another array, to whose objects the turn sends."""
        return _Way(array, self)

    def contribute(self, value, how="sum", section=0):
        """Contributes to the next reduction of the array, or of a section. `how` is "sum",
        "product", "min", "max", "and", "or", "list", or a function of two values at the top level
        of a module, which has to be associative and commutative. All objects get the result by
        their method `reduced(turn, value, section)`."""
        if isinstance(how, str) and how not in _COMBINED:
            names = ", ".join(_COMBINED)
            raise ArgumentError(f"no operation {how!r}: {names}, or a function of two values")
        if section not in self._array._sections:
            raise ArgumentError(f"the array has no section {section!r}")
        self._did.append((_CONTRIBUTE, section, [], 0, _dump((how, value))))

    def move_to(self, rank):
        """Moves the object to a rank when the turn is over. Messages follow it."""
        if not isinstance(rank, int) or not 0 <= rank < self._array._size:
            raise ArgumentError(f"there is no rank {rank!r}")
        self._did.append((_MOVE, rank, [], 0, b""))


class Array:
    """An array of actors. `array[index].method(...)` sends a message, which has its turn in a
    run."""

    def __init__(self, actors, number, kind, shape):
        self.kind = kind
        self.number = number
        #: The lengths of the dimensions.
        self.shape = shape
        #: Their number.
        self.dims = len(shape)
        self._inner = actors._inner
        self._size = actors._job.size
        self._sections = {0}

    def _numbers(self, index):
        """Returns an index as a list of numbers, which is in the array."""
        numbers = [index] if isinstance(index, int) else list(index)
        is_in = len(numbers) == self.dims and all(
            isinstance(number, int) and 0 <= number < most
            for number, most in zip(numbers, self.shape, strict=True))
        if not is_in:
            shape = self.shape[0] if self.dims == 1 else self.shape
            raise ArgumentError(f"no object {index!r} in an array of shape {shape}")
        return numbers

    def _index(self, numbers):
        return numbers[0] if self.dims == 1 else tuple(numbers)

    def __getitem__(self, index):
        return _Way(self)[index]

    def at(self, priority):
        """Returns the array with a priority for messages: the least number comes first, and 0 is
        that of others."""
        return _Way(self).at(priority)

    @property
    def all(self):
        """All objects: `array.all.method(...)` sends each a message."""
        return _Way(self).all

    def section(self, number):
        """The objects of a section that `make_section` has made."""
        return _Way(self).section(number)

    def make_section(self, number, objects):
        """Makes a section: all ranks call this with the same number, from 1, and the same
        indices."""
        if not isinstance(number, int) or not 0 < number < 1 << 16:
            raise ArgumentError(f"sections have numbers from 1 to 65535, not {number!r}")
        self._inner.section(self.number, number, [self._numbers(index) for index in objects])
        self._sections.add(number)

    @property
    def result(self):
        """The result of the last reduction of the array; `None` before the first."""
        return self.result_of(0)

    def result_of(self, section):
        """Returns the result of the last reduction of a section; `None` before the first."""
        bytes_ = self._inner.result(self.number, section)
        return None if bytes_ is None else _value_of(bytes_)

    def here(self):
        """Returns the objects that are at this rank, by their indices, between runs."""
        found = self._inner.here(self.number, self.dims)
        return {self._index(numbers): state for numbers, state in found}

    def rank_of(self, index):
        """Returns the rank at which an object is, as far as this one knows: exact after a
        balance."""
        return self._inner.rank_of(self.number, self._numbers(index))

    def __repr__(self):
        return f"<weft.Array {self.number} of {self.kind.__qualname__}, shape {self.shape}>"

    def _receive(self, state, index, rank, _section, message):
        """Gives an object a message; returns what it has done."""
        name, args, kwargs = pickle.loads(message)
        turn = Turn(self, index, rank)
        getattr(state, name)(turn, *args, **kwargs)
        return turn._did

    def _reduced(self, state, index, rank, section, value):
        """Gives an object the result of a reduction; returns what it has done."""
        value = _value_of(value)
        turn = Turn(self, index, rank)
        reduced = getattr(state, "reduced", None)
        if reduced is not None:
            reduced(turn, value, section)
        return turn._did


class Actors:
    """The actors of a job: arrays of many objects, more than there are ranks."""

    def __init__(self, job):
        self._job = job
        self._inner = job._driven()
        self._arrays = 0

    def array(self, kind, shape, *args, **kwargs):
        """Makes an array of objects of a class. All ranks call this, in the same order, with the
        same class and shape: a number, or up to three. Each object begins at one rank, in blocks of
        their numbers, as `kind(index, *args, **kwargs)`."""
        if not isinstance(kind, type):
            raise ArgumentError(f"{kind!r} is no class")
        _objects._check_found(kind)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        is_right = all(isinstance(most, int) and 0 <= most < 1 << 32 for most in shape)
        if not is_right or not 1 <= len(shape) <= 3:
            raise ArgumentError(f"a shape is a number, or up to three, not {shape!r}")
        self._arrays += 1
        array = Array(self, self._arrays, kind, shape)

        def make(numbers):
            return kind(array._index(numbers), *args, **kwargs)

        self._inner.array((array.number, list(shape)), kind.__qualname__, array, make)
        return array

    def run(self):
        """Gives objects their turns until no message is left at any rank. All ranks call this."""
        self._inner.run()

    def measure(self, is_wanted=True):
        """Begins or ends the counting of times and messages, by which objects are balanced."""
        self._inner.measure(is_wanted)

    def balance(self, strategy="refine"):
        """Moves objects by the times of their turns and the messages since `measure`, or since the
        last balance. All ranks call this, between runs. `strategy` is "greedy", "refine",
        "refine-comm", "rotate", or a function: rank 0 calls it with the number of ranks, a list
        of (rank, seconds) for all objects, and a list of (from, to, messages, bytes) by places in
        that list; it returns the list of new ranks."""
        return Balanced(*self._inner.balance(strategy))

    def checkpoint(self, path):
        """Writes all objects to a file at rank 0. All ranks call this, between runs."""
        self._inner.checkpoint(path)

    def restore(self, path):
        """Replaces all objects by those of a file at rank 0, which any number of ranks may have
        written. All ranks have made the same arrays, and call this between runs."""
        self._inner.restore(path)

    @property
    def turns(self):
        """The number of turns that objects have had at this rank."""
        return self._inner.turns()

    def __repr__(self):
        return f"<weft.Actors of {self._job!r}>"


_opened: dict[int, Actors] = {}


def open_actors(job):
    """`Job.actors`."""
    _objects.runtime_of(job)
    found = _opened.get(id(job))
    if found is None:
        found = _opened[id(job)] = Actors(job)
    return found
