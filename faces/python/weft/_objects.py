"""Shared objects: replicated on all ranks, at one, or adaptive.

The extension has the objects: their order, their calls, their moves and what a failed rank means
for them. Here are the decorators, the handles, and for each object the state that is at this rank,
which the extension has made, read, changed and sent.

The state of a new object comes from one rank, the one that makes it: all ranks read its pickle. An
object that is always at a rank is made at that rank from the arguments of its class, so its state
need not be pickled.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import pickle
import threading
import types

from weft import _frozen, _signals
from weft._errors import ArgumentError, OperationError
from weft._weft import _Messages

_log = logging.getLogger("weft")

#: Most bytes of a message to other ranks, and of a result.
_LONGEST = _Messages.LONGEST
#: The places besides numbers of ranks, as the extension has them.
_PLACES = {"replicated": -1, "adaptive": -2}


class _Method:
    """A marked method of a class."""

    def __init__(self, function, writes, when, post):
        self.function = function
        self.writes = writes
        self.when = when
        self.post = post
        #: The executions of guard and method by reads of this rank that are checked.
        self.turns = _frozen.Turns(), _frozen.Turns()
        self.__doc__ = function.__doc__

    def __get__(self, instance, kind=None):
        """Returns a plain method: a base class need not be decorated itself."""
        return self.function if instance is None else types.MethodType(self.function, instance)


def _check_function(function, what):
    if not callable(function) or isinstance(function, (type, staticmethod, classmethod)):
        raise ArgumentError(f"{function!r} is no {what}: write a plain function")
    waits = [inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction]
    if any(is_one(function) for is_one in waits):
        name = getattr(function, "__qualname__", repr(function))
        text = "is async or a generator, and would run after its turn: write a plain function"
        raise ArgumentError(f"the {what} {name} {text}")


def _mark(writes, when, post):
    if when is not None:
        _check_function(when, "guard")

    def mark(function):
        _check_function(function, "method")
        return _Method(function, writes, when, post)

    return mark


def reads(method=None, *, when=None):
    """Marks a method that changes nothing: it is executed on this rank's replica. With `when`, a
    function of the same arguments that changes nothing, it waits until that is true. The call of
    one that changes the object raises `OperationError`."""
    return _mark(False, when, False) if method is None else _mark(False, when, False)(method)


def writes(method=None, *, when=None, post=False):
    """Marks a method that changes the object. With `when`, a function of the same arguments that
    changes nothing, it waits until that is true. With `post`, its caller does not wait and gets
    `None`."""
    return _mark(True, when, post) if method is None else _mark(True, when, post)(method)


def shared(kind=None, *, placement="replicated"):
    """Makes a class one of shared objects: its methods marked by `reads` and `writes` are their
    operations. `placement` is the place of its objects, if `Job.share` names no other: "replicated"
    on all ranks, the number of a rank, or "adaptive": replicated first, then moved by what ranks
    read and write."""
    _check_placement(placement)
    if kind is None:
        return lambda kind: shared(kind, placement=placement)
    if not isinstance(kind, type):
        raise ArgumentError(f"{kind!r} is no class: use placement= for the place of its objects")
    methods = _methods_of(kind)
    if not methods:
        name = kind.__qualname__
        raise ArgumentError(f"{name} has no method marked by weft.reads or weft.writes")
    for name, method in methods.items():
        if name in vars(kind):
            # Methods call each other on the state itself.
            setattr(kind, name, method.function)
    kind.__weft_methods__ = methods
    kind.__weft_placement__ = placement
    calls = {name: _operation(name, method) for name, method in methods.items()}
    calls["__doc__"] = kind.__doc__
    kind.__weft_handle__ = type(kind.__name__, (Shared,), calls)
    return kind


def _methods_of(kind):
    """Returns the marked methods of a class and of its bases."""
    methods = {}
    for base in reversed(kind.__mro__):
        known = vars(base).get("__weft_methods__", {})
        for name, value in vars(base).items():
            if isinstance(value, _Method):
                methods[name] = value
            elif name in known and known[name].function is value:
                methods[name] = known[name]
            elif name in methods:
                text = "replaces an operation of a base class: mark it by weft.reads or weft.writes"
                raise ArgumentError(f"{base.__qualname__}.{name} {text}")
    return methods


def _check_placement(placement):
    is_rank = isinstance(placement, int) and not isinstance(placement, bool) and placement >= 0
    if not is_rank and placement not in ("replicated", "adaptive"):
        text = 'a rank, "replicated" or "adaptive"'
        raise ArgumentError(f"the place of a shared object is {text}, not {placement!r}")


def _check_found(kind):
    """Other ranks find a class by its module and its name."""
    try:
        pickle.dumps(kind)
    except Exception as error:
        name = kind.__qualname__
        text = "define it at the top level of a module, not inside a function"
        raise ArgumentError(f"other ranks cannot find the class {name}: {text} ({error})") from None


def _operation(name, method):
    if method.post:

        def call(self, *args, **kwargs):
            replica = self._replica
            if replica.is_plain:
                return replica.thing.post(name, args, kwargs)
            # A post on an object that moves could be overtaken by a later operation: its caller
            # waits.
            replica.thing.write(name, args, kwargs)
    elif method.writes:

        def call(self, *args, **kwargs):
            return self._replica.thing.write(name, args, kwargs)
    else:
        function, turns = method.function, method.turns[1]
        if method.when is not None:
            # None is left.
            turns = _frozen.Turns()

        def call(self, *args, **kwargs):
            replica = self._replica
            # Most reads: of a replica that is here, without a guard, unchecked, and nothing to do
            # before.
            if turns.left > 0 and replica.is_plain and not replica.poll():
                with replica.lock:
                    if replica.broken is None:
                        turns.left -= 1
                        return function(replica.state, *args, **kwargs)
            return replica.thing.read(name, args, kwargs)

    # Its text and its arguments, for `help`.
    functools.update_wrapper(call, method.function)
    call.__name__ = name
    return call


class Shared:
    """A shared object, as this rank has it. It may be an argument of operations."""

    __slots__ = ("_replica",)

    def __init__(self, replica):
        object.__setattr__(self, "_replica", replica)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(f"a shared object has no attribute {name!r}")
        kind = self._replica.kind.__qualname__
        what = f"the shared object {self._replica.name!r} has no operation {name!r}"
        why = f"a method of {kind} that is marked by weft.reads or weft.writes is one"
        raise AttributeError(f"{what}: {why}", name=name, obj=self)

    def __setattr__(self, name, value):
        raise AttributeError(self._unset(name))

    def __delattr__(self, name):
        raise AttributeError(self._unset(name))

    def _unset(self, name):
        kind = self._replica.kind.__qualname__
        what = f"{name!r} of the shared object {self._replica.name!r}"
        why = f"call a method of {kind} that changes it and is marked by weft.writes"
        return f"{what} would change on this rank alone: {why}"

    def __reduce__(self):
        return _find, (self._replica.name,)

    def __repr__(self):
        replica = self._replica
        place = replica.placement
        if place != "replicated":
            at = replica.thing.place()
            now = "replicated" if at is None else f"at rank {at}"
            place = f"adaptive, now {now}" if place == "adaptive" else now
        return f"<{replica.kind.__qualname__} {replica.name!r}, {place}>"


class _Replica:
    """An object, as this rank has it."""

    def __init__(self, runtime, name, key, kind, placement):
        self.name = name
        #: The rank that has made it, and that rank's number for it.
        self.key = key
        self.kind = kind
        self.methods = kind.__weft_methods__
        self.placement = placement
        self.rank, self.size = runtime.rank, runtime.size
        #: True if all ranks have it, always; true if one rank has it, always.
        self.is_plain = placement == "replicated"
        self.stays = isinstance(placement, int)
        #: Its operations, the lock of all objects, and a function that is true if there is
        #: something to do before a read.
        self.thing = runtime.messages.thing(key, self)
        self.lock, self.poll, self.is_inside = runtime.lock, *runtime.looks
        #: The state, if it is here, and the extension's number for that.
        self.state = self.number = None
        #: The reason why this replica is of no use; the exception that has made it so at the start.
        self.broken = self.failure = None

    def put(self, state):
        """Has another state; `None` if it is at another rank."""
        _frozen.thaw(self)
        self.state = state
        _frozen.freeze(self)

    def title(self, method):
        of_kind = f"{self.kind.__qualname__}." if method in self.methods else ""
        return f"{of_kind}{self.of_name(method)}"

    def of_name(self, method):
        # The extension's own operations begin with a zero.
        return f"{method.lstrip(chr(0))} of {self.name!r}"

    def guarded(self, method):
        spec = self.methods.get(method)
        guard = None if spec is None else spec.when
        return "" if guard is None else ", whose guard may not be true: another rank has to act"

    def warn(self, method, waited):
        what = self.title(method) + self.guarded(method)
        _log.warning("rank %d waits for %.1f s for %s", self.rank, waited, what)

    def refuse_inside(self, method):
        text = "was called inside an operation, which must not wait"
        raise OperationError(f"{method} of {self.name!r} {text}")

    def read_inside(self, method, args, kwargs):
        """Executes a read inside an operation, which may change the object on all ranks."""
        if self.state is None:
            self.refuse_inside(method)
        if self.broken is not None:
            raise OperationError(f"{self.name!r} is broken: {self.broken}")
        spec = self.methods[method]
        if spec.when is not None and not spec.when(self.state, *args, **kwargs):
            self.refuse_inside(method)
        return spec.function(self.state, *args, **kwargs)


def _dump(value):
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise ArgumentError(f"the arguments cannot be sent to other ranks: {error}") from error


def _text_of(error):
    """Returns the kind and the text of an exception; the function that makes the text may fail."""
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"[:10_000]
    except BaseException as failure:
        return f"{kind}, whose text cannot be made ({type(failure).__name__})"


def _dump_result(ok, value):
    """Pickles a result; what cannot be sent becomes an error that says so."""
    try:
        bytes_ = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        if len(bytes_) > _LONGEST:
            text = f"it has {len(bytes_)} bytes when pickled, and {_LONGEST} are the most"
            raise ValueError(text)
        if not ok and not isinstance(pickle.loads(bytes_), BaseException):
            # Some exceptions can be written and not be read.
            raise TypeError("it is no exception when it is read")
        return ok, bytes_
    except BaseException as error:
        # Whatever it is, the caller waits for an answer.
        text = f"its result cannot be sent: {_text_of(error)}" if ok else _text_of(value)
        rank = _runtime().rank
        error = OperationError(text, rank)
        error.add_note(f"raised at rank {rank}")
        return False, pickle.dumps(error, pickle.HIGHEST_PROTOCOL)


def _note(error, name):
    """Notes this rank at an exception that goes to another one."""
    note = f"raised at rank {_runtime().rank}, which has the object {name!r}"
    # A program may raise the same exception again, and its class may have functions of its own.
    with contextlib.suppress(Exception):
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)


def _doubt(replica, method, error):
    """Has the replica here be of no use, since other ranks may have done what failed here."""
    if replica.size > 1:
        text = f"{method} failed at rank {replica.rank}, and not at all ranks alike"
        replica.broken = f"{text}: {_text_of(error)}"


def _log_post(replica, method, error):
    rank, name = replica.rank, replica.name
    _log.error("rank %d: %s of %r, a post, failed", rank, method, name, exc_info=error)


def _load_state(bytes_):
    """Makes the state of an object that has come to this rank; returns its replica."""
    runtime = _runtime()
    name, key, placement, kind, how, rest = pickle.loads(bytes_)
    replica = None
    try:
        replica = runtime.replica(name, key, kind, placement)
        if how == "kept":
            state = runtime.kept.pop(key)
        elif how == "made":
            args, kwargs = pickle.loads(rest)
            state = replica.kind(*args, **kwargs)
        else:
            state = pickle.loads(rest)
        replica.put(state)
    except BaseException as error:
        if replica is None:
            replica = runtime.replica(name, key, pickle.dumps(_Unknown), placement)
        what = "read its state"
        if how == "made":
            _note(error, name)
            what, replica.failure = "make it", error
        replica.broken = f"rank {runtime.rank} cannot {what}: {_text_of(error)}"
        _log.error("object %r: %s", name, replica.broken)
    return replica


def _save_state(replica):
    """Returns the state of an object, for all ranks."""
    kind = pickle.dumps(replica.kind)
    try:
        state = pickle.dumps(replica.state, pickle.HIGHEST_PROTOCOL)
        whole = replica.name, replica.key, replica.placement, kind, "read", state
        bytes_ = pickle.dumps(whole, pickle.HIGHEST_PROTOCOL)
        if len(bytes_) > _LONGEST:
            raise ValueError(f"its state has {len(bytes_)} bytes, and {_LONGEST} are the most")
    except Exception as error:
        _log.warning("object %r stays at rank %d: %s", replica.name, replica.rank, error)
        raise
    return bytes_


class _Unknown:
    """The class of objects whose class this rank cannot find."""

    __weft_methods__ = {}


class _Runtime:
    """The shared objects of a job, at this rank."""

    def __init__(self, job):
        self.rank = job.rank
        self.size = job.size
        self.job = job
        self.messages = job._messages()
        self.lock = threading.RLock()
        self.looks = self.messages.poll, self.messages.is_inside
        #: The replicas by the keys of their objects, and the keys by names.
        self.objects = {}
        #: States of a job of one rank, which need no pickle.
        self.kept = {}
        _runtimes[id(job)] = self
        self.messages.open(self)

    def follow_signals(self):
        """Has the handlers of the program wait for the ends of operations."""
        _signals.follow(self.messages.hold_back)

    def replica(self, name, key, kind, placement):
        """Returns the replica of an object, here or not; `kind` is the pickle of its class."""
        replica = self.objects.get(key)
        if replica is None:
            kind = pickle.loads(kind)
            replica = self.objects.setdefault(key, _Replica(self, name, key, kind, placement))
        return replica

    def shown(self, name, rank, number, kind, place):
        """Returns the replica of an object that the extension has found."""
        placement = {-1: "replicated", -2: "adaptive"}.get(place, place)
        return self.replica(name, (rank, number), kind, placement)

    def make(self, kind, name, placement, args, kwargs):
        """Returns a function that makes the state of an object, as bytes."""
        pickled = pickle.dumps(kind)

        def make(rank, number):
            key = rank, number
            whole = functools.partial(self.whole, name, key, placement, pickled)
            if isinstance(placement, int):
                return whole("made", _dump((args, kwargs)))
            state = kind(*args, **kwargs)
            if self.size == 1:
                self.kept[key] = state
                return whole("kept", b"")
            try:
                return whole("read", pickle.dumps(state, pickle.HIGHEST_PROTOCOL))
            except Exception as error:
                text = f"the state of {name!r} cannot be sent to other ranks: {_text_of(error)}"
                why = "an object with at=RANK is made at that rank, and its state stays there"
                raise ArgumentError(f"{text}; {why}") from error

        return make

    def whole(self, *parts):
        return pickle.dumps(parts, pickle.HIGHEST_PROTOCOL)

    def share(self, kind, name, args, kwargs, at):
        # A class that is made from a decorated one may have other methods.
        if not isinstance(kind, type) or "__weft_handle__" not in vars(kind):
            raise ArgumentError(f"{kind!r} is no class decorated by weft.shared")
        placement = kind.__weft_placement__ if at is None else at
        _check_placement(placement)
        if isinstance(placement, int) and placement >= self.size:
            raise ArgumentError(f"there is no rank {placement}")
        if self.messages.is_inside():
            raise OperationError("an object was made inside an operation, which must not wait")
        _check_found(kind)
        wish = name, pickle.dumps(kind), _PLACES.get(placement, placement)
        make = self.make(kind, name, placement, args, kwargs)

        def warn(waited):
            what = f"the object {name!r}: all ranks call Job.share"
            _log.warning("rank %d waits for %.1f s for %s", self.rank, waited, what)

        while True:
            replica = self.shown(name, *self.messages.share(wish, make, warn))
            found = replica.kind.__weft_handle__(replica)
            if replica.kind is not kind or replica.placement != placement:
                raise ArgumentError(f"{found!r} is there already")
            if not replica.stays:
                return found
            try:
                failure = replica.thing.failure()
            except OperationError:
                if replica.thing.delete(name):
                    raise
                # Another rank has deleted it, as it could not be made: this one makes it anew.
                continue
            if failure is None:
                return found
            replica.thing.delete(name)
            raise failure

    def delete(self, found):
        if not isinstance(found, Shared):
            raise ArgumentError(f"{found!r} is no shared object")
        if not found._replica.thing.delete(found._replica.name):
            raise OperationError(f"{found._replica.name!r} has been deleted")
        self.objects.pop(found._replica.key, None)


_runtimes: dict[int, _Runtime] = {}


def _runtime():
    """Returns that of the job that this process has joined last."""
    return next(reversed(_runtimes.values()))


def runtime_of(job):
    """Returns that of a job, which it keeps, so that no other job gets its number."""
    return _runtimes.get(id(job)) or _Runtime(job)


def share(job, kind, name, args, kwargs, at):
    """`Job.share`."""
    return runtime_of(job).share(kind, name, args, kwargs, at)


def delete(job, found):
    """`Job.delete`."""
    _runtimes[id(job)].delete(found)


def _find(name):
    for runtime in reversed(_runtimes.values()):
        found = runtime.messages.find(name)
        if found is not None:
            replica = runtime.shown(name, *found)
            return replica.kind.__weft_handle__(replica)
    raise OperationError(f"no object {name!r} on this rank")
