"""Shared objects: replicated on all ranks, or at one.

Operations are messages. Those of a replicated object go through one order of all ranks, and each
rank executes them on its replica; those of an object at a rank are calls of that rank. A call and
its answer carry the number of messages of the order that their sender has executed, and the
receiver goes on when it has executed as many: so all operations of all objects are sequentially
consistent.

Operations are executed by whatever thread is in a call of weft.
"""

from __future__ import annotations

import collections
import itertools
import logging
import os
import pickle
import signal
import threading
import time

from weft._errors import ArgumentError, OperationError

_log = logging.getLogger("weft")

#: Seconds after which a wait looks again, since another thread may have executed its operation.
_LOOK = 0.2


class _Method:
    """A marked method of a class."""

    def __init__(self, function, writes, when, post):
        self.function = function
        self.writes = writes
        self.when = when
        self.post = post
        self.__doc__ = function.__doc__


def _mark(writes, when, post):
    def mark(function):
        if not callable(function):
            raise ArgumentError(f"{function!r} is no method")
        return _Method(function, writes, when, post)

    return mark


def reads(method=None, *, when=None):
    """Marks a method that changes nothing: it is executed on this rank's replica. With `when`, a
    function of the same arguments, it waits until that is true."""
    return _mark(False, when, False) if method is None else _mark(False, when, False)(method)


def writes(method=None, *, when=None, post=False):
    """Marks a method that changes the object. With `when`, a function of the same arguments that
    changes nothing, it waits until that is true. With `post`, its caller does not wait and gets
    `None`."""
    return _mark(True, when, post) if method is None else _mark(True, when, post)(method)


def shared(kind):
    """Makes a class one of shared objects: its methods marked by `reads` and `writes` are their
    operations."""
    methods = {}
    for base in reversed(kind.__mro__):
        methods.update((n, m) for n, m in vars(base).items() if isinstance(m, _Method))
    if not methods:
        name = kind.__qualname__
        raise ArgumentError(f"{name} has no method marked by weft.reads or weft.writes")
    for name, method in methods.items():
        # Methods call each other on the state itself.
        setattr(kind, name, method.function)
    kind.__weft_methods__ = methods
    calls = {name: _operation(name, method) for name, method in methods.items()}
    calls["__doc__"] = kind.__doc__
    kind.__weft_handle__ = type(kind.__name__, (Shared,), calls)
    return kind


def _operation(name, method):
    if method.writes:

        def call(self, *args, **kwargs):
            return self._runtime.write(self._replica, name, args, kwargs)
    else:

        def call(self, *args, **kwargs):
            return self._runtime.read(self._replica, name, args, kwargs)

    call.__name__ = name
    call.__doc__ = method.__doc__
    return call


class Shared:
    """A shared object, as this rank has it. It may be an argument of operations."""

    def __init__(self, runtime, replica):
        self._runtime = runtime
        self._replica = replica

    def __reduce__(self):
        return _find, (self._replica.name,)

    def __repr__(self):
        replica = self._replica
        place = "replicated" if replica.at is None else f"at rank {replica.at}"
        return f"<{replica.kind.__qualname__} {replica.name!r}, {place}>"


class _Replica:
    """An object, at this rank."""

    def __init__(self, name, kind, at):
        self.name = name
        self.kind = kind
        self.methods = kind.__weft_methods__
        self.at = at
        #: The state; `None` if it is at another rank.
        self.state = None
        #: Operations whose guards were not true, in their order.
        self.blocked = []
        #: The reason why this replica is of no use.
        self.broken = None


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


def _dump_result(done, ok, value):
    """Pickles a result; what cannot be pickled becomes an error that says so."""
    try:
        bytes_ = pickle.dumps((done, ok, value), pickle.HIGHEST_PROTOCOL)
        if not ok:
            # Some exceptions can be written and not be read.
            pickle.loads(bytes_)
        return bytes_
    except Exception as error:
        text = f"its result cannot be sent: {error}" if ok else f"{type(value).__name__}: {value}"
        return pickle.dumps((done, False, OperationError(text)), pickle.HIGHEST_PROTOCOL)


class _Runtime:
    """The shared objects of a job, at this rank."""

    def __init__(self, job):
        self.rank = job.rank
        self.size = job.size
        self.job = job
        self.messages = job._messages()
        self.lock = threading.RLock()
        #: The thread that executes operations now.
        self.worker = None
        self.objects = {}
        #: Events that have been taken and not been handled.
        self.events = collections.deque()
        #: Ends of this rank's operations: by tokens, and by numbers of calls.
        self.results = {}
        self.answers = {}
        #: Number of messages of the order that have been executed here.
        self.done = 0
        #: Calls of ranks that have executed more.
        self.late = []
        self.tokens = itertools.count(1)
        warn = os.environ.get("WEFT_WARN_AFTER_MS", "")
        self.warn_after = (int(warn) if warn.isdigit() else 5000) / 1000
        self.messages.open(self.work)

    def is_inside(self):
        """True in an operation that this thread executes."""
        return self.worker == threading.get_ident()

    def work(self):
        """Executes what has come. False inside an operation."""
        if self.is_inside():
            return False
        with self.lock:
            # An interrupt in the middle of an operation would leave this replica unlike others.
            masks = threading.current_thread() is threading.main_thread()
            before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masks else None
            self.worker = threading.get_ident()
            try:
                self.events.extend(self.messages.take())
                while self.events:
                    self.handle(*self.events.popleft())
            finally:
                self.worker = None
                if masks:
                    signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return True

    def handle(self, kind, number, body):
        if kind == 0:
            what, token, name, *parts = pickle.loads(body)
            self.done += 1
            author = token if number == self.rank else None
            if what == "new":
                self.make(author, name, *parts)
            else:
                self.execute(author, name, *parts)
            ready = [call for call in self.late if call[0] <= self.done]
            self.late = [call for call in self.late if call[0] > self.done]
            for _, request, body in ready:
                self.serve(request, body)
        elif kind == 1:
            stamp = pickle.loads(body)[0]
            if stamp > self.done:
                self.late.append((stamp, number, body))
            else:
                self.serve(number, body)
        elif kind == 2:
            self.answers[number] = pickle.loads(body)
        else:
            self.answers[number] = (0, False, body)

    def end(self, token, name, method, ok, value):
        """Ends an operation of this rank: `token` is `None` for those of others, 0 for posts."""
        if token:
            self.results[token] = (0, ok, value)
        elif token == 0 and not ok:
            _log.error("rank %d: %s of %r, a post, failed", self.rank, method, name, exc_info=value)

    def make(self, token, name, pickled, at):
        """Makes an object, unless there is one of this name."""
        try:
            kind, args, kwargs = pickle.loads(pickled)
            known = self.objects.get(name)
            if known is None:
                replica = _Replica(name, kind, at)
                if at is None or at == self.rank:
                    replica.state = kind(*args, **kwargs)
                self.objects[name] = replica
            elif known.kind is not kind or known.at != at:
                raise ArgumentError(f"{Shared(self, known)!r} is there already")
            self.end(token, name, "__init__", True, None)
        except BaseException as error:
            self.end(token, name, "__init__", False, error)
            if token is None:
                _log.error("rank %d: object %r could not be made", self.rank, name, exc_info=error)

    def execute(self, token, name, method, pickled):
        """Executes an operation of the order on this rank's replica."""
        replica = self.objects.get(name)
        if replica is None:
            return self.end(token, name, method, False, OperationError(f"no object {name!r}"))
        try:
            args, kwargs = pickle.loads(pickled)
        except BaseException as error:
            replica.broken = f"rank {self.rank} cannot read arguments of {method}: {error}"
            return self.end(token, name, method, False, OperationError(replica.broken))
        end = lambda ok, value: self.end(token, name, method, ok, value)
        self.change(replica, method, args, kwargs, end)

    def serve(self, number, body):
        """Executes a call of another rank."""
        _, name, method, pickled = pickle.loads(body)

        def end(ok, value):
            if not ok and isinstance(value, Exception):
                value.add_note(f"raised at rank {self.rank}, which has the object {name!r}")
            self.messages.answer(number, _dump_result(self.done, ok, value))

        replica = self.objects.get(name)
        if replica is None:
            return end(False, OperationError(f"no object {name!r}"))
        try:
            args, kwargs = pickle.loads(pickled)
        except Exception as error:
            return end(False, OperationError(f"the arguments cannot be read: {error}"))
        self.change(replica, method, args, kwargs, end)

    def attempt(self, replica, method, args, kwargs):
        """Executes an operation, if its guard is true: its result is returned, or `None`."""
        if replica.broken:
            return False, OperationError(f"{replica.name!r} is broken: {replica.broken}")
        spec = replica.methods[method]
        try:
            if spec.when is not None and not spec.when(replica.state, *args, **kwargs):
                return None
            return True, spec.function(replica.state, *args, **kwargs)
        except BaseException as error:
            return False, error

    def change(self, replica, method, args, kwargs, end):
        """Executes an operation, or has it wait; then those that have waited."""
        result = self.attempt(replica, method, args, kwargs)
        if result is None:
            replica.blocked.append(_Blocked(method, args, kwargs, end))
            return
        end(*result)
        if not replica.methods[method].writes:
            return
        at = 0
        while at < len(replica.blocked):
            blocked = replica.blocked[at]
            result = self.attempt(replica, blocked.method, blocked.args, blocked.kwargs)
            at += 1
            if result is not None:
                del replica.blocked[at - 1]
                blocked.end(*result)
                # A change may have made the guard of an earlier one true.
                at = 0 if replica.methods[blocked.method].writes else at - 1

    def wait(self, found, what):
        """Waits until `found` returns something."""
        begun = time.monotonic()
        told = self.warn_after == 0
        while True:
            with self.lock:
                result = found()
            if result is not None:
                return result
            if self.messages.wait(_LOOK):
                self.work()
            waited = time.monotonic() - begun
            if not told and waited > self.warn_after:
                told = True
                _log.warning("rank %d waits for %.1f s for %s", self.rank, waited, what())

    def wait_for(self, results, number, what):
        def found():
            result = results.get(number)
            if result is None or result[0] > self.done:
                return None
            return results.pop(number)

        _, ok, value = self.wait(found, what)
        if ok:
            return value
        raise value

    def describe(self, replica, method):
        def what():
            guard = replica.methods[method].when
            why = "" if guard is None else ", whose guard may not be true: another rank has to act"
            return f"{replica.kind.__qualname__}.{method} of {replica.name!r}{why}"

        return what

    def send(self, message):
        bytes_ = _dump(message)
        while not self.messages.send(bytes_):
            if self.messages.wait(0.001):
                self.work()

    def refuse_inside(self, replica, method):
        if self.is_inside():
            text = "was called inside an operation, which must not wait"
            raise OperationError(f"{method} of {replica.name!r} {text}")

    def write(self, replica, method, args, kwargs):
        self.refuse_inside(replica, method)
        if replica.at is not None:
            return self.at_owner(replica, method, args, kwargs)
        post = replica.methods[method].post
        token = 0 if post else next(self.tokens)
        self.send(("do", token, replica.name, method, _dump((args, kwargs))))
        if post:
            return None
        return self.wait_for(self.results, token, self.describe(replica, method))

    def read(self, replica, method, args, kwargs):
        if replica.at is not None:
            self.refuse_inside(replica, method)
            return self.at_owner(replica, method, args, kwargs)
        inside = self.is_inside()
        if not inside and self.messages.poll():
            self.work()
        with self.lock:
            result = self.attempt(replica, method, args, kwargs)
        if result is None:
            self.refuse_inside(replica, method)
            result = self.wait(
                lambda: self.attempt(replica, method, args, kwargs), self.describe(replica, method)
            )
        ok, value = result
        if ok:
            return value
        raise value

    def at_owner(self, replica, method, args, kwargs):
        """Does an operation on an object at a rank."""
        what = self.describe(replica, method)
        if replica.at == self.rank:
            if self.messages.poll():
                self.work()
            token = next(self.tokens)
            # As from another rank, by value.
            args, kwargs = pickle.loads(_dump((args, kwargs)))
            with self.lock:
                end = lambda ok, value: self.end(token, replica.name, method, ok, value)
                self.worker = threading.get_ident()
                try:
                    self.change(replica, method, args, kwargs, end)
                finally:
                    self.worker = None
            return self.wait_for(self.results, token, what)
        with self.lock:
            body = _dump((self.done, replica.name, method, _dump((args, kwargs))))
            number = self.messages.call(replica.at, body)
        return self.wait_for(self.answers, number, what)

    def share(self, kind, name, args, kwargs, at):
        if not hasattr(kind, "__weft_handle__"):
            raise ArgumentError(f"{kind!r} is no class decorated by weft.shared")
        if at is not None and not 0 <= at < self.size:
            raise ArgumentError(f"there is no rank {at}")
        if self.is_inside():
            raise OperationError("an object was made inside an operation, which must not wait")
        token = next(self.tokens)
        self.send(("new", token, name, _dump((kind, args, kwargs)), at))
        self.wait_for(self.results, token, lambda: f"the object {name!r}")
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
