"""Process groups whose ranks change: torch's interface for fault tolerance (`_reconfigure`)."""

import secrets

import torch
import torch.distributed as dist


class ChangingGroup(dist.ProcessGroup):
    """A process group that has rank and size of its backend as they are now.

    A backend that is written in Python cannot change those that torch keeps for it.
    """

    def __init__(self, store, backend):
        super().__init__(store, backend.rank(), backend.size())
        self._weft = backend
        custom = dist.ProcessGroup.BackendType.CUSTOM
        self._set_default_backend(custom)
        self._register_backend(torch.device("cpu"), custom, backend)

    def getRank(self):
        """Returns the rank of this process."""
        return self._weft.rank()

    def getSize(self):
        """Returns the number of ranks."""
        return self._weft.size()


def handle(stable, mark):
    """Returns the handle of a process: the rank that it began as, and a mark of its own."""
    return f"weft:{stable}:{mark}"


def _parsed(text):
    words = text.split(":")
    if len(words) != 3 or words[0] != "weft" or not words[1].isdecimal():
        raise ValueError(f"{text!r} is no handle of a process group of the backend weft")
    return int(words[1]), words[2]


def stable_ranks(handles):
    """Returns the ranks that processes began as."""
    return [_parsed(each)[0] for each in handles]


def ordered(handles, own):
    """Returns handles in the order of the new ranks, and the place of one's own.

    A list has them in this order. Those of a set are ordered by the ranks they began as."""
    in_order = isinstance(handles, (list, tuple))
    found = list(handles) if in_order else sorted(handles, key=_parsed)
    stable_ranks(found)
    if not found or len(set(found)) != len(found):
        raise ValueError("a process group has one handle for each rank, and no rank twice")
    if own not in found:
        raise ValueError(f"this process, {own}, is not among the new ranks: {', '.join(found)}")
    return found, found.index(own)


def claim(store, uuid, rank, own):
    """Claims a number for this change of ranks, of whose key-value pairs none may be there yet."""
    once = f"{own} {secrets.token_hex(4)}"
    taken = store.compare_set(f"claimed/{rank}", "", once).decode()
    if taken != once:
        raise RuntimeError(
            f"the uuid {uuid} was already used, by {taken.split()[0]}: "
            "each reconfigure needs a new one"
        )
