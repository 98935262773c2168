"""Handlers of signals, which wait for the ends of operations of shared objects.

Python calls a handler between any two instructions of its main thread. One that raises in the
middle of an operation would leave this rank's replica unlike those of others. So each handler that
the program sets is called by a `_Handler`: in an operation that only notes the signal, which is
raised again at the end of the operation. The functions of the module `signal`, which use those of
`_signal`, give and take the handlers of the program as before.
"""

from __future__ import annotations

import _signal
import functools

_set = _signal.signal
_get = _signal.getsignal
#: Functions that take the number of a signal and are true in an operation: then they note it.
_holders = []


class _Handler:
    """Calls a handler of the program outside operations."""

    __slots__ = ("handler",)

    def __init__(self, handler):
        self.handler = handler

    def __call__(self, number, frame):
        if not any(hold_back(number) for hold_back in _holders):
            return self.handler(number, frame)


def _own(handler):
    """Returns a handler as the program has set it."""
    return handler.handler if type(handler) is _Handler else handler


@functools.wraps(_set)
def _set_own(number, handler, /):
    return _own(_set(number, _Handler(handler) if callable(handler) else handler))


@functools.wraps(_get)
def _get_own(number, /):
    return _own(_get(number))


def follow(hold_back):
    """Has the handlers that the program has, and those that it will set, ask `hold_back` first.
    Only the main thread may call this."""
    if not _holders:
        _signal.signal, _signal.getsignal = _set_own, _get_own
        for number in _signal.valid_signals():
            handler = _get(number)
            if callable(handler):
                _set(number, _Handler(handler))
    _holders.append(hold_back)
