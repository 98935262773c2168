"""Exceptions of weft."""

from __future__ import annotations


class Error(Exception):
    """The base of all exceptions of weft.

    The text says which rank on which host, over which link and address, why, and what to do.
    """

    #: The rank of the group that failed or was named, if there is one.
    rank: int | None
    #: Its host, if that is known: a name, or an IP address.
    host: str | None

    def __init__(self, text: str, rank: int | None = None, host: str | None = None) -> None:
        super().__init__(text)
        self.rank = rank
        self.host = host


class ActorError(Error):
    """A run of actors has ended at all ranks: an object raised an exception, which is the cause at
    its rank, or did something that cannot be."""


class AgentError(Error, ConnectionError):
    """No agent of a cluster serves on this host, or the connection to it has ended."""


class ArgumentError(Error, ValueError):
    """An argument is wrong: no such rank, a number out of range, a buffer that is read-only, has
    gaps or holds addresses, something that is too large."""


class BusyError(Error):
    """Too much is queued: try again later."""


class CancelledError(Error):
    """The operation was cancelled before it met a message."""


class FinishedError(Error):
    """The job has been left."""


class ForkedError(Error):
    """This process is a copy, made by fork, of the rank."""


class JobError(Error):
    """The job could not be joined."""


class MismatchError(Error):
    """Ranks call different collective operations, or with other arguments."""


class OperationError(Error):
    """An operation of a shared object cannot be executed, a read or a guard changes its object, or
    the result cannot be sent or is too long."""


class PeerError(Error, ConnectionError):
    """A rank failed: it ended, is silent, or no link reaches it."""


class RefusedError(Error):
    """The other side refused: key, bounds or rights are wrong."""


class TruncatedError(Error):
    """A message was longer than its buffer, which holds the first part."""
