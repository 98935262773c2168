"""Reads and guards of shared objects change nothing: a change would be on one rank alone.

The state of an object is frozen unless a write of the object is executed. Setting or deleting an
attribute of a frozen state is refused; reads pay nothing for that, and writes some 0.1 us for each
attribute.

Changes inside attributes (of lists, dictionaries, arrays) are found by comparison of the pickled
state before and after the 1st, 2nd, 4th, 8th, ... execution of a read or a guard. They are undone,
so that the replica stays equal to the others. A state that cannot be pickled, is long, or has
another pickle each time is not compared. New attributes of the objects inside do not count: they
are caches.
"""

from __future__ import annotations

import contextlib
import copyreg
import inspect
import io
import pickle
import sys
import types

from weft._errors import OperationError

#: The numbers (`id`) of the frozen states, and the objects of all states by these numbers.
FROZEN: set[int] = set()
_replicas: dict[int, object] = {}

#: Most bytes of a state that is compared, when pickled.
_MOST = 1 << 20


class Turns:
    """Says at which executions a function is checked: the 1st, 2nd, 4th, 8th, ..."""

    __slots__ = ("left", "gap")

    def __init__(self):
        #: Executions until the next one that is checked; and those after that.
        self.left = self.gap = 0

    def is_due(self):
        if self.left > 0:
            self.left -= 1
            return False
        self.left = self.gap
        self.gap = 2 * self.gap + 1
        return True


def freeze(replica):
    """Has the state of an object that is here change in writes alone."""
    state = replica.state
    if state is None:
        return
    if isinstance(state, replica.kind):
        _install(type(state))
    _replicas[id(state)] = replica
    FROZEN.add(id(state))


def thaw(replica):
    """Has the state of an object be any value."""
    if _replicas.pop(id(replica.state), None) is not None:
        FROZEN.discard(id(replica.state))


def _install(kind):
    """Has a class refuse to set and delete attributes of frozen states. A decorator around
    `weft.shared` may make another class or functions of these names: so this is done late."""
    for name in ("__setattr__", "__delattr__"):
        inner = getattr(kind, name)
        if not getattr(inner, "__weft_refuses__", False):
            refuses = _refuse_to_set(inner) if name == "__setattr__" else _refuse_to_delete(inner)
            refuses.__name__, refuses.__qualname__ = name, f"{kind.__qualname__}.{name}"
            refuses.__doc__ = inner.__doc__
            refuses.__weft_refuses__ = True
            setattr(kind, name, refuses)


def _refuse_to_set(inner):
    def refuses(self, name, value):
        if id(self) in FROZEN:
            raise _refusal(self, name, sys._getframe(1))
        inner(self, name, value)

    return refuses


def _refuse_to_delete(inner):
    def refuses(self, name):
        if id(self) in FROZEN:
            raise _refusal(self, name, sys._getframe(1))
        inner(self, name)

    return refuses


def _refusal(state, name, frame):
    replica = _replicas[id(state)]
    of = _operation_of(replica, frame)
    if of is None:
        kind = replica.kind.__qualname__
        what = f"the attribute {name!r} of the shared object {replica.name!r}"
        why = f"call a method of {kind} that is marked by weft.writes"
        return OperationError(f"{what} would change on this rank alone: {why}")
    return OperationError(_text(replica, *of, f"would change the attribute {name!r}"))


def _operation_of(replica, frame):
    """Returns the method around a frame, and true for its guard, or those that have this guard."""
    found = None
    while frame is not None:
        code = frame.f_code
        methods = [name for name, spec in replica.methods.items() if _has(spec.function, code)]
        guarded = [name for name, spec in replica.methods.items() if _has(spec.when, code)]
        if (methods or guarded) and code.co_argcount:
            # A method may call others: the outermost one is the operation.
            of = frame.f_locals.get(code.co_varnames[0])
            found = (methods, guarded) if of is replica.state else found
        frame = frame.f_back
    if found is None:
        return None
    methods, guarded = found
    reads = [name for name in methods if not replica.methods[name].writes]
    names = " and ".join(reads or guarded)
    return (names, not reads) if names else None


def _has(function, code):
    return getattr(inspect.unwrap(function), "__code__", None) is code


def _text(replica, method, is_guard, deed):
    title = f"{replica.kind.__qualname__}.{method} of {replica.name!r}"
    if is_guard:
        rule = "a guard may change nothing; move the change into a method marked by weft.writes"
        return f"the guard of {title} {deed}: {rule}"
    rule = "it may change nothing, since it is executed on one rank alone; mark it by weft.writes"
    return f"{title}, which is marked by weft.reads, {deed}: {rule}"


def changing(replica, function, args, kwargs):
    """Executes a write."""
    number = id(replica.state)
    FROZEN.discard(number)
    try:
        return function(replica.state, *args, **kwargs)
    finally:
        FROZEN.add(number)


def unchanging(replica, method, is_guard, due, args, kwargs):
    """Executes a read or a guard, and checks it if it is due."""
    args = (replica.state, *args)
    if due:
        return checked(replica, method, is_guard, args, kwargs)
    spec = replica.methods[method]
    return (spec.when if is_guard else spec.function)(*args, **kwargs)


def checked(replica, method, is_guard, args, kwargs):
    """Calls a read or a guard, and undoes what it changes. `args` has the state first."""
    spec = replica.methods[method]
    function = spec.when if is_guard else spec.function
    # In a write of the same object a read changes it on all ranks, or it is at this rank alone.
    before = _image_of(replica.state) if id(replica.state) in FROZEN else None
    if before is None:
        return function(*args, **kwargs)
    text = _text(replica, method, is_guard, "has changed the object, and the change was undone")
    try:
        result = function(*args, **kwargs)
    except BaseException as error:
        if _undo(replica, before):
            # Its class may have functions of its own.
            with contextlib.suppress(Exception):
                error.add_note(text)
        raise
    if _undo(replica, before):
        raise OperationError(text)
    return result


def _undo(replica, before):
    """Has an object be as before. False: it is."""
    state = replica.state
    after = _image_of(state)
    if after is None or after == before:
        return False
    try:
        if not before.differs_from(after):
            return False
        if after.pickle != before.pickle or not before.fill(state):
            state = before.load()
    except Exception:
        # There is no way to tell what has changed, or to undo it.
        return False
    replica.put(state)
    return True


def _image_of(state):
    try:
        return _Image(state)
    except Exception:
        # The state cannot be pickled, or is too long.
        return None


class _Image:
    """A pickled state."""

    def __init__(self, state):
        self.room, self.parts, self.arrays = _MOST, [], []
        pickle.Pickler(self, pickle.HIGHEST_PROTOCOL, buffer_callback=self.keep).dump(state)
        self.pickle = b"".join(self.parts)

    def write(self, part):
        """Takes a part of the pickle."""
        self.take(len(part))
        self.parts.append(bytes(part))

    def keep(self, array):
        """Copies memory of the state, such as that of an array of numpy."""
        with array.raw() as memory:
            self.take(len(memory))
            self.arrays.append(bytes(memory))

    def take(self, length):
        self.room -= length
        if self.room < 0:
            raise OverflowError

    def __eq__(self, other):
        return self.pickle == other.pickle and self.arrays == other.arrays

    def load(self):
        return pickle.loads(self.pickle, buffers=map(bytearray, self.arrays))

    def fill(self, state):
        """Writes the memory of a state that has another one and the same pickle: views of an array
        stay views. False if it cannot be written."""
        arrays = []
        pickle.Pickler(io.BytesIO(), pickle.HIGHEST_PROTOCOL, buffer_callback=arrays.append).dump(
            state
        )
        memory = [array.raw() for array in arrays]
        if any(there.readonly for there in memory):
            return False
        for there, old in zip(memory, self.arrays, strict=True):
            there[:] = old
        return True

    def differs_from(self, after):
        """True if states differ in more than their identities and new attributes. False as well if
        the pickle of one state is another one each time."""
        known = []
        first = _plain(self, (), known)
        if any(_plain(self, known, []) != first for _ in range(2)):
            return False
        then = _plain(after, known, [])
        return then != first and then == _plain(after, known, [])


def _plain(image, known, shapes):
    """Returns a pickle of a state that was read from a pickle: so equal states have equal ones,
    unlike those of states that share their equal parts and of states that do not."""
    to = io.BytesIO()
    _Plain(to, known, shapes).dump(image.load())
    return to.getvalue()


class _Plain(pickle.Pickler):
    """Pickles no attribute that a state did not have before: it is a cache."""

    def __init__(self, to, known, shapes):
        super().__init__(to, pickle.HIGHEST_PROTOCOL)
        #: The kinds of the objects in the state before, with their attributes, in their order.
        self.known = known
        self.shapes = shapes

    def reducer_override(self, thing):
        plain = (type, types.FunctionType, types.BuiltinFunctionType)
        if isinstance(thing, plain) or type(thing) in copyreg.dispatch_table:
            return NotImplemented
        reduced = thing.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        if not isinstance(reduced, tuple):
            return reduced
        function, args, state, *items = *reduced, *(None,) * (3 - len(reduced))
        # The attributes, or a pair of these and the slots; `None`: it has none.
        is_pair = isinstance(state, tuple) and len(state) == 2
        pair = state if is_pair else (state,)
        shape = type(thing), [set(part or ()) if _is_named(part) else None for part in pair]
        old = self.known[len(self.shapes)] if len(self.shapes) < len(self.known) else shape
        self.shapes.append(shape)
        _, names = old if old[0] is type(thing) and len(old[1]) == len(pair) else shape
        kept = tuple(map(_kept, pair, names))
        return function, args, kept if is_pair else kept[0], *items


def _is_named(part):
    return part is None or type(part) is dict


def _kept(part, names):
    if names is None or not _is_named(part):
        return part
    return {name: value for name, value in (part or {}).items() if name in names} or None
