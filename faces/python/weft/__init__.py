"""Message passing for the network people already have.

A job is a set of processes that were started together, its ranks. A group is an ordered set of
them, with messages and collective operations::

    import weft

    with weft.init() as job:
        world = job.world
        if world.rank == 0:
            world.send(1, b"hello")
        elif world.rank == 1:
            print(world.recv(0))

A job also has shared objects (``Job.share``), actors (``Job.actors``), coherent regions
(``Job.region``), and queues of jobs (``Job.queue``). ``weft.names`` has the names of a cluster.

``weft run -n 2 python program.py`` starts two ranks of it.

Where it was installed by pip, the package also holds the commands ``weft`` and ``weftd``, the
libfabric provider for MPI programs, and the C library with its header; ``command()`` and the
functions after it name their places.
"""

from __future__ import annotations

import sys as _sys
import sysconfig as _sysconfig
from pathlib import Path as _Path

from weft._errors import (
    ActorError,
    AgentError,
    ArgumentError,
    BusyError,
    CancelledError,
    Error,
    FinishedError,
    ForkedError,
    JobError,
    MismatchError,
    OperationError,
    PeerError,
    RefusedError,
    TruncatedError,
)

if _sys.version_info >= (3, 11):
    from weft._actors import Actors, Array, Turn
    from weft._objects import Shared, reads, shared, writes
    from weft._weft import Group, Job, Queue, Region, Request, Status, init
else:
    # The commands and the functions that name places work with older versions too.
    def __getattr__(name: str) -> object:
        jobs = {"Group", "Job", "Queue", "Region", "Request", "Status", "init"}
        objects = {"Actors", "Array", "Shared", "Turn", "reads", "shared", "writes"}
        if name in jobs | objects:
            version = ".".join(map(str, _sys.version_info[:2]))
            raise ImportError(f"weft.{name} needs Python 3.11 or newer; this is {version}")
        raise AttributeError(f"module 'weft' has no attribute {name!r}")


__version__ = "@VERSION@"

__all__ = [
    "ActorError",
    "Actors",
    "AgentError",
    "ArgumentError",
    "Array",
    "BusyError",
    "CancelledError",
    "Error",
    "FinishedError",
    "ForkedError",
    "Group",
    "Job",
    "JobError",
    "MismatchError",
    "OperationError",
    "PeerError",
    "Queue",
    "RefusedError",
    "Region",
    "Request",
    "Shared",
    "Status",
    "TruncatedError",
    "Turn",
    "command",
    "include_dir",
    "init",
    "library_dir",
    "pkgconfig_dir",
    "provider_dir",
    "reads",
    "shared",
    "writes",
]


def _prefix() -> _Path:
    # The folder below which pip has put this package's own files.
    for parent in _Path(__file__).resolve().parents:
        if (parent / "lib" / "weft" / "libweft-fi.so").is_file():
            return parent
    return _Path(_sysconfig.get_path("data"))


def command() -> _Path:
    """The path of the command ``weft``."""
    return _prefix() / "bin" / "weft"


def include_dir() -> _Path:
    """The folder of ``weft.h``."""
    return _prefix() / "include"


def library_dir() -> _Path:
    """The folder of the C library."""
    return _prefix() / "lib"


def pkgconfig_dir() -> _Path:
    """The folder of ``weft.pc``, for ``PKG_CONFIG_PATH``."""
    return _prefix() / "lib" / "pkgconfig"


def provider_dir() -> _Path:
    """The folder of the libfabric provider, for ``FI_PROVIDER_PATH``."""
    return _prefix() / "lib" / "weft"
