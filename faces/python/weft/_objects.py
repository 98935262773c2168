"""Shared objects: replicated on all ranks, at one, or adaptive.

Operations are messages. Those of a replicated object go through one order of all ranks, and each
rank executes them on its replica; those of an object at a rank are calls of that rank. A call and
its answer carry the number of messages of the order that their sender has executed, and the
receiver goes on when it has executed as many: so all operations of all objects are sequentially
consistent.

An adaptive object is replicated or at a rank, and moves. A replicated one goes to a rank at the
same place of the order everywhere: operations that were sent before and come behind are sent again
by their callers. The rank that has it gives it away by a message of the order with its state, and
executes no operation between sending and getting it; then it answers calls by "it has moved".

Operations are executed by whatever thread is in a call of weft. The extension takes messages, has
calls of ranks wait that have executed more, and executes by itself the operations on objects that
do not move, where their guards are true and none waits; it calls `order`, `execute` and `serve` for
the rest.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import logging
import os
import pickle
import threading
import time
import types

from weft import _frozen, _signals
from weft._errors import ArgumentError, OperationError
from weft._weft import _Messages, _Uses

_log = logging.getLogger("weft")

#: Seconds after which a wait looks again, since another thread may have executed its operation.
_LOOK = 0.2
#: Most bytes of a message to other ranks, and of a result.
_LONGEST = _Messages.LONGEST
#: The result of an operation on an object that has moved: it is to be tried again.
_MOVED = (None, None)


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
        """As a plain method: a base class need not be decorated itself."""
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
            post = self._replica.post
            if post is not None:
                return post(name, args, kwargs)
            return self._runtime.write(self._replica, name, args, kwargs)
    elif method.writes:

        def call(self, *args, **kwargs):
            change = self._replica.change
            if change is not None:
                return change(name, args, kwargs)
            return self._runtime.write(self._replica, name, args, kwargs)
    else:

        function, turns = method.function, method.turns[1]
        if method.when is not None:
            # None is left.
            turns = _frozen.Turns()

        def call(self, *args, **kwargs):
            runtime, replica = self._runtime, self._replica
            # Most reads: of a replica that is here, without a guard, unchecked, and nothing to do
            # before.
            if turns.left > 0 and replica.is_plain and not runtime.messages.poll():
                with runtime.lock:
                    if replica.broken is None:
                        turns.left -= 1
                        return function(replica.state, *args, **kwargs)
            if replica.remote is not None:
                return replica.remote(name, args, kwargs)
            return runtime.read(replica, name, args, kwargs)

    # Its text and its arguments, for `help`.
    functools.update_wrapper(call, method.function)
    call.__name__ = name
    return call


class Shared:
    """A shared object, as this rank has it. It may be an argument of operations."""

    __slots__ = ("_runtime", "_replica")

    def __init__(self, runtime, replica):
        object.__setattr__(self, "_runtime", runtime)
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
        place = "replicated" if replica.at is None else f"at rank {replica.at}"
        place = place if replica.uses is None else f"adaptive, now {place}"
        return f"<{replica.kind.__qualname__} {replica.name!r}, {place}>"


class _Replica:
    """An object, at this rank."""

    def __init__(self, name, kind, placement):
        self.name = name
        self.kind = kind
        self.methods = kind.__weft_methods__
        self.placement = placement
        #: The rank that has it; `None`: all ranks.
        self.at = placement if isinstance(placement, int) else None
        #: True if all ranks have it, always.
        self.is_plain = placement == "replicated"
        #: Functions of the extension for an object that does not move: its operations if it is at
        #: another rank; its changes; and those that nobody waits for, if it is on all ranks.
        self.remote = self.change = self.post = None
        #: What ranks do with an adaptive object, and its reads here that no other rank knows of.
        self.uses = _Uses() if placement == "adaptive" else None
        self.reads = 0
        #: True between sending an object to others and getting it; and the calls of that time.
        self.leaving = False
        self.held = []
        #: The state; `None` if it is at another rank.
        self.state = None
        #: Operations whose guards were not true, in their order.
        self.blocked = []
        #: The reason why this replica is of no use.
        self.broken = None
        self.begin_turns()

    def begin_turns(self):
        """Counts the executions of guards and methods, as all ranks do in the order: they check the
        same ones. Those by reads of this rank do not count."""
        self.turns = {name: (_frozen.Turns(), _frozen.Turns()) for name in self.methods}

    def put(self, state):
        """Has another state; `None` if it is at another rank."""
        _frozen.thaw(self)
        self.state = state
        _frozen.freeze(self)


class _Blocked:
    """An operation that waits for its guard."""

    def __init__(self, method, args, kwargs, end):
        self.method = method
        self.args = args
        self.kwargs = kwargs
        self.end = end


def _dump(value):
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise ArgumentError(f"the arguments cannot be sent to other ranks: {error}") from error


def _dump_message(message, what):
    """Pickles a message to other ranks with the arguments of `what`."""
    bytes_ = _dump(message)
    if len(bytes_) > _LONGEST:
        text = f"have {len(bytes_)} bytes when pickled, and {_LONGEST} are the most"
        raise ArgumentError(f"the arguments of {what} {text}")
    return bytes_


def _text_of(error):
    """Returns the kind and the text of an exception; the function that makes the text may fail."""
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"[:10_000]
    except BaseException as failure:
        return f"{kind}, whose text cannot be made ({type(failure).__name__})"


class _Runtime:
    """The shared objects of a job, at this rank."""

    def __init__(self, job):
        self.rank = job.rank
        self.size = job.size
        self.job = job
        self.messages = job._messages()
        self.lock = threading.RLock()
        self.objects = {}
        #: Objects that could not be made here, but elsewhere: there were operations on them.
        self.missed = set()
        #: Messages of the order that had no room when they were made.
        self.outbox = collections.deque()
        warn = os.environ.get("WEFT_WARN_AFTER_MS", "")
        self.warn_after = (int(warn) if warn.isdigit() else 5000) / 1000
        self.messages.open(self)

    dump = staticmethod(_dump)
    #: For operations that the extension executes.
    checked, frozen = staticmethod(_frozen.checked), _frozen.FROZEN

    def follow_signals(self):
        """Has the handlers of the program wait for the ends of operations."""
        _signals.follow(self.messages.hold_back)

    def dump_result(self, ok, value):
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
            error = OperationError(text, self.rank)
            error.add_note(f"raised at rank {self.rank}")
            return False, pickle.dumps(error, pickle.HIGHEST_PROTOCOL)

    def order(self, number, body):
        """Executes a message of the order, which a rank has sent."""
        what, token, name, *parts = pickle.loads(body)
        author = token if number == self.rank else None
        if what == "new":
            self.make(author, name, *parts)
        elif what == "do":
            self.execute(author, number, name, *parts)
        elif name not in self.objects:
            self.missed.add(name)
        elif what == "reads":
            # The reads of an object that has moved in the meantime do not count.
            if self.objects[name].at is None:
                self.note(self.objects[name], number, parts[0], 0)
        else:
            self.place(self.objects[name], *parts)

    def end(self, token, name, method, ok, value):
        """Ends an operation of this rank: `token` is `None` for those of others, 0 for posts."""
        if token:
            self.messages.end(token, ok, value)
        elif token == 0 and not ok:
            _log.error("rank %d: %s of %r, a post, failed", self.rank, method, name, exc_info=value)

    def flush(self):
        """Sends what had no room."""
        while self.outbox and self.messages.send(self.outbox[0]):
            self.outbox.popleft()

    def note(self, replica, rank, reads, writes):
        """Notes accesses of a rank to an adaptive object: on all ranks if it is replicated, else at
        the rank that has it."""
        if replica.uses is None or replica.leaving:
            return
        better = replica.uses.note(rank, reads, writes, self.size)
        if better is None or better == (-1 if replica.at is None else replica.at):
            return
        if replica.at is None:
            # All ranks decide the same at this place of the order.
            self.move(replica, better, replica.state if better == self.rank else None)
            return
        try:
            state = pickle.dumps(replica.state, pickle.HIGHEST_PROTOCOL)
            message = ("place", 0, replica.name, better, state)
            bytes_ = _dump_message(message, f"the move of {replica.name!r}, its state,")
        except Exception as error:
            _log.warning("object %r stays at rank %d: %s", replica.name, self.rank, error)
            return
        replica.leaving = True
        self.outbox.append(bytes_)

    def place(self, replica, at, state):
        """Has the state of an adaptive object that a rank has given away."""
        at = None if at < 0 else at
        if replica.leaving:
            state = replica.state
        elif at in (None, self.rank):
            try:
                state = pickle.loads(state)
            except BaseException as error:
                replica.broken = f"rank {self.rank} cannot read its state: {error}"
        self.move(replica, at, state if at in (None, self.rank) else None)

    def move(self, replica, at, state):
        """Puts an adaptive object somewhere else; those who wait for it try again."""
        replica.at, replica.leaving = at, False
        replica.put(state)
        replica.begin_turns()
        replica.uses, replica.reads = _Uses(), 0
        blocked, replica.blocked = replica.blocked, []
        held, replica.held = replica.held, []
        for operation in blocked:
            operation.end(*_MOVED)
        for call in held:
            self.serve(*call)

    def make(self, token, name, pickled, placement):
        """Makes an object, unless there is one of this name."""
        try:
            kind, args, kwargs = pickle.loads(pickled)
            known = self.objects.get(name)
            if name in self.missed:
                text = f"could not make {name!r} before, and has missed operations on it"
                raise OperationError(f"rank {self.rank} {text}")
            if known is None:
                replica = _Replica(name, kind, placement)
                if replica.at in (None, self.rank):
                    replica.put(kind(*args, **kwargs))
                self.objects[name] = replica
                self.hand_over(replica)
            elif known.kind is not kind or known.placement != placement:
                raise ArgumentError(f"{Shared(self, known)!r} is there already")
            self.end(token, name, "__init__", True, None)
        except BaseException as error:
            self.end(token, name, "__init__", False, error)
            if token is None:
                _log.error("rank %d: object %r could not be made", self.rank, name, exc_info=error)

    def hand_over(self, replica):
        """Has the extension do the most of an object that does not move."""
        name, at = replica.name, replica.placement
        if at == self.rank or replica.is_plain:
            methods = [(n, m.function, m.when, m.writes) for n, m in replica.methods.items()]
            self.messages.keep(name, replica, methods, replica.blocked)
        if replica.is_plain:
            replicated = self.messages.replicated(name, self, replica)
            replica.change, replica.post = replicated.call, replicated.post
        elif isinstance(at, int) and at != self.rank:
            replica.remote = replica.change = self.messages.remote(at, name, self, replica).call

    def execute(self, token, author, name, method, args, pickled, reads=0):
        """Executes an operation of the order on this rank's replica."""
        replica = self.objects.get(name)
        if replica is None:
            # Its making has failed here alone.
            self.missed.add(name)
            return self.end(token, name, method, False, OperationError(f"no object {name!r}"))
        if method not in replica.methods:
            text = f"rank {self.rank} has no operation {method!r} in {replica.kind.__qualname__}"
            replica.broken = f"{text}: ranks run different programs"
            return self.end(token, name, method, False, OperationError(replica.broken))
        if replica.at is not None:
            # It has moved in the meantime: the author calls the rank that has it.
            return self.end(token, name, method, *_MOVED)
        try:
            args, kwargs = pickle.loads(pickled) if args is None else (args, {})
        except BaseException as error:
            replica.broken = f"rank {self.rank} cannot read arguments of {method}: {error}"
            return self.end(token, name, method, False, OperationError(replica.broken))
        end = lambda ok, value: self.end(token, name, method, ok, value)
        self.change(replica, method, args, kwargs, end)
        self.note(replica, author, reads, 1)

    def serve(self, number, caller, name, method, args, pickled):
        """Executes a call of another rank."""

        def end(ok, value):
            if ok is False:
                return self.fail(number, name, value)
            self.messages.reply(number, ok, value)

        replica = self.objects.get(name)
        if replica is None:
            return end(False, OperationError(f"no object {name!r}"))
        if method not in replica.methods:
            return end(False, OperationError(f"{name!r} has no operation {method!r}"))
        if replica.at != self.rank:
            return end(*_MOVED)
        if replica.leaving:
            return replica.held.append((number, caller, name, method, args, pickled))
        try:
            args, kwargs = pickle.loads(pickled) if args is None else (args, {})
        except Exception as error:
            return end(False, OperationError(f"the arguments cannot be read: {error}"))
        self.change(replica, method, args, kwargs, end)
        self.note_one(replica, caller, method)

    def fail(self, number, name, error):
        """Answers a call by an exception."""
        note = f"raised at rank {self.rank}, which has the object {name!r}"
        # A program may raise the same exception again, and its class may have functions of its own.
        with contextlib.suppress(Exception):
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)
        self.messages.reply(number, False, error)

    def note_one(self, replica, rank, method):
        """Notes an operation at the rank that has an object."""
        writes = int(replica.methods[method].writes)
        self.note(replica, rank, 1 - writes, writes)

    def attempt(self, replica, method, args, kwargs, turns=None):
        """Executes an operation, if its guard is true: its result is returned, or `None`. `turns`
        says which executions of guard and method are checked."""
        if replica.at not in (None, self.rank):
            return _MOVED
        if replica.broken:
            return False, OperationError(f"{replica.name!r} is broken: {replica.broken}")
        spec = replica.methods[method]
        try:
            if spec.when is not None:
                due = turns is not None and turns[0].is_due()
                if not _frozen.unchanging(replica, method, True, due, args, kwargs):
                    return None
            if spec.writes:
                return True, _frozen.changing(replica, spec.function, args, kwargs)
            due = turns is not None and turns[1].is_due()
            return True, _frozen.unchanging(replica, method, False, due, args, kwargs)
        except BaseException as error:
            if spec.writes:
                self.doubt(replica, method, error)
            return False, error

    def doubt(self, replica, method, error):
        """Has the replica here be of no use if other ranks may have done what failed here: they
        have other stacks and other memory."""
        depends = isinstance(error, (MemoryError, RecursionError))
        if depends and replica.at is None and self.size > 1:
            text = f"{method} failed at rank {self.rank}, and not at all ranks alike"
            replica.broken = f"{text}: {_text_of(error)}"

    def change(self, replica, method, args, kwargs, end):
        """Executes an operation, or has it wait; then those that have waited."""
        result = self.attempt(replica, method, args, kwargs, replica.turns[method])
        if result is None:
            replica.blocked.append(_Blocked(method, args, kwargs, end))
            return
        end(*result)
        if not replica.methods[method].writes:
            return
        at = 0
        while at < len(replica.blocked):
            blocked = replica.blocked[at]
            name, turns = blocked.method, replica.turns[blocked.method]
            result = self.attempt(replica, name, blocked.args, blocked.kwargs, turns)
            at += 1
            if result is not None:
                del replica.blocked[at - 1]
                blocked.end(*result)
                # A change may have made the guard of an earlier one true.
                at = 0 if replica.methods[name].writes else at - 1

    def wait(self, found, what, number=None):
        """Waits until `found` returns something; for the answer of a call, if it has a number."""
        begun = time.monotonic()
        told = self.warn_after == 0
        while True:
            if self.outbox:
                # As an operation: a signal's handler that raises would have one sent twice.
                self.messages.execute(self.flush)
            with self.lock:
                result = found()
            if result is not None:
                return result
            self.messages.wait(_LOOK, number)
            waited = time.monotonic() - begun
            if not told and waited > self.warn_after:
                told = True
                _log.warning("rank %d waits for %.1f s for %s", self.rank, waited, what())

    def wait_for(self, token, what):
        """Waits for the end of an operation of this rank."""
        return self.wait(lambda: self.messages.ended(token), what)

    def answer(self, replica, method, number):
        """Waits for the answer of a call."""
        try:
            title = lambda: self.title(replica, method)
            found = lambda: self.messages.answer(number, title)
            return self.wait(found, self.describe(replica, method), number)
        except BaseException:
            self.messages.forget(number)
            raise

    def settle_end(self, replica, method, token):
        """Waits for the end of an operation on an object that is always on all ranks."""
        ok, value = self.wait_for(token, self.describe(replica, method))
        if ok:
            return value
        raise value

    def settle_posts(self):
        """Waits until this rank has met its posts in the order: its later operations come behind
        them. Writes of replicated objects do by themselves."""
        post = self.messages.post()
        if post is not None:
            self.wait(lambda: self.messages.has_met(post) or None, lambda: "its posts")

    def settle_answer(self, replica, method, number):
        """Waits for the answer of a call of an object that does not move."""
        ok, value = self.answer(replica, method, number)
        if ok:
            return value
        raise value

    def title(self, replica, method):
        return f"{replica.kind.__qualname__}.{method} of {replica.name!r}"

    def describe(self, replica, method):
        def what():
            guard = replica.methods[method].when
            why = "" if guard is None else ", whose guard may not be true: another rank has to act"
            return self.title(replica, method) + why

        return what

    def send(self, message, what):
        bytes_ = _dump_message(message, what)
        while not self.messages.send(bytes_):
            self.messages.wait(0.001)

    def refuse_inside(self, replica, method):
        if self.messages.is_inside():
            text = "was called inside an operation, which must not wait"
            raise OperationError(f"{method} of {replica.name!r} {text}")

    def settle(self, replica, attempt):
        """Tries an operation, and again wherever its object has moved to."""
        ok = None
        while ok is None:
            ok, value = attempt()
        if ok:
            return value
        raise value

    def write(self, replica, method, args, kwargs):
        self.refuse_inside(replica, method)

        def attempt():
            if replica.at is not None:
                return self.at_owner(replica, method, args, kwargs)
            token = self.messages.token()
            with self.lock:
                reads, replica.reads = replica.reads, 0
            message = ("do", token, replica.name, method, None, _dump((args, kwargs)), reads)
            self.send(message, f"{method} of {replica.name!r}")
            return self.wait_for(token, self.describe(replica, method))

        value = self.settle(replica, attempt)
        # A post on an object that moves could be overtaken by a later operation: its caller waits.
        return None if replica.methods[method].post else value

    def read(self, replica, method, args, kwargs):
        def attempt():
            if replica.at is not None:
                self.refuse_inside(replica, method)
                return self.at_owner(replica, method, args, kwargs)
            return self.read_here(replica, method, args, kwargs)

        return self.settle(replica, attempt)

    def read_here(self, replica, method, args, kwargs):
        """Reads this rank's replica."""
        inside = self.messages.is_inside()
        if not inside and self.messages.poll():
            self.messages.work()
            self.settle_posts()
        # A read inside an operation of all ranks may change an object on all of them.
        turns = None if inside else replica.methods[method].turns
        attempt = lambda: self.attempt(replica, method, args, kwargs, turns)
        with self.lock:
            result = attempt()
        if result is None:
            self.refuse_inside(replica, method)
            result = self.wait(attempt, self.describe(replica, method))
        if replica.uses is not None and result is not _MOVED:
            self.tell_reads(replica, inside)
        return result

    def tell_reads(self, replica, inside):
        """Notes a read of an adaptive object here, and tells the others now and then."""
        with self.lock:
            replica.reads += 1
            if inside or replica.reads < _Uses.TELL_READS:
                return
            reads, replica.reads = replica.reads, 0
        self.send(("reads", 0, replica.name, reads), "reads")

    def at_owner(self, replica, method, args, kwargs):
        """Does an operation on an object at a rank."""
        self.settle_posts()
        at = replica.at
        if at is None:
            return _MOVED
        if at == self.rank:
            return self.at_this_rank(replica, method, args, kwargs)
        title = lambda: self.title(replica, method)
        answer = self.messages.call(at, (replica.name, method), args, kwargs, title)
        return self.answer(replica, method, answer) if type(answer) is int else answer

    def at_this_rank(self, replica, method, args, kwargs):
        """Does an operation on an object at this rank."""
        what = self.describe(replica, method)
        if self.messages.poll():
            self.messages.work()
        self.wait(lambda: None if replica.leaving else True, what)
        token = self.messages.token()
        # As from another rank, by value.
        args, kwargs = pickle.loads(_dump((args, kwargs)))

        def operation():
            if replica.at != self.rank or replica.leaving:
                return False
            end = lambda ok, value: self.end(token, replica.name, method, ok, value)
            self.change(replica, method, args, kwargs, end)
            self.note_one(replica, self.rank, method)
            return True

        if not self.messages.execute(operation):
            return _MOVED
        return self.wait_for(token, what)

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
        token = self.messages.token()
        self.send(("new", token, name, _dump((kind, args, kwargs)), placement), f"the new {name!r}")
        ok, value = self.wait_for(token, lambda: f"the object {name!r}: all ranks call Job.share")
        if not ok:
            raise value
        return kind.__weft_handle__(self, self.objects[name])


_runtimes: dict[int, _Runtime] = {}


def share(job, kind, name, args, kwargs, at):
    """`Job.share`."""
    runtime = _runtimes.get(id(job))
    if runtime is None:
        # It keeps the job, so that no other gets its number.
        runtime = _runtimes[id(job)] = _Runtime(job)
    return runtime.share(kind, name, args, kwargs, at)


def _find(name):
    for runtime in reversed(_runtimes.values()):
        replica = runtime.objects.get(name)
        if replica is not None:
            return replica.kind.__weft_handle__(runtime, replica)
    raise OperationError(f"no object {name!r} on this rank")
