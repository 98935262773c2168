"""Ranks for the tests of the package `torch_weft`: threads of this process, by a store of their
own, without torch."""

import ctypes
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from torch_weft import _core

# An operation that takes so many seconds hangs.
LONG = 60.0


class Store:
    """Values by name that threads wait for, with the methods of torch's store."""

    def __init__(self):
        self._values = {}
        self._changed = threading.Condition()

    def set(self, name, value):
        with self._changed:
            self._values[name] = value.encode() if isinstance(value, str) else bytes(value)
            self._changed.notify_all()

    def add(self, name, count):
        with self._changed:
            self._values[name] = self._values.get(name, 0) + count
            return self._values[name]

    def check(self, names):
        with self._changed:
            return all(name in self._values for name in names)

    def wait(self, names, limit):
        until = time.monotonic() + limit.total_seconds()
        with self._changed:
            while not all(name in self._values for name in names):
                if not self._changed.wait(until - time.monotonic()):
                    raise TimeoutError(f"no {names}")

    def get(self, name):
        with self._changed:
            return self._values[name]

    def multi_get(self, names):
        return [self.get(name) for name in names]


class Numbers:
    """Memory of numbers of a type of C."""

    def __init__(self, kind, values):
        self.array = (kind * len(values))(*values)

    @property
    def pieces(self):
        return [(ctypes.addressof(self.array), ctypes.sizeof(self.array))]

    def __eq__(self, other):
        return list(self.array) == list(other)

    def __repr__(self):
        return repr(list(self.array))


def how(keep, limit=LONG, is_sync=True):
    """Options of an operation."""
    return (limit, is_sync, keep)


@pytest.fixture
def ranks():
    """A function that has threads be the ranks of a process group, calls a function with the group
    and the number of each, and returns what they return."""

    def run(size, function, name="test", limit=LONG, store=None):
        store = store or Store()

        def rank(number):
            group = _core.Group(store, name, number, size, limit)
            try:
                return function(group, number)
            finally:
                group.shutdown()

        with ThreadPoolExecutor(size) as pool:
            return [each.result() for each in [pool.submit(rank, n) for n in range(size)]]

    return run


@pytest.fixture(autouse=True)
def without_torch():
    """The core needs no torch."""
    before = "torch" in sys.modules
    yield
    assert before == ("torch" in sys.modules)
