"""The order in which weft and Open MPI begin in one process.

Both talk to the launcher by one copy of the PMIx library. From version 5 on, Open MPI does not join
the job where weft has: its `MPI_Init` fails ("local rank: Not found"). So it begins first, and this
module says so where it would not.
"""

from __future__ import annotations

import os as _os
import sys as _sys
from collections.abc import Sequence as _Sequence
from importlib.abc import MetaPathFinder as _MetaPathFinder
from types import ModuleType as _ModuleType

from weft._errors import JobError as _JobError

_MODULE = "mpi4py.MPI"
_WHY = ("under Open MPI 5 the MPI begins before weft: `from mpi4py import MPI` (and MPI.Init, "
        "where mpi4py.rc.initialize is False) comes before weft.init()")


def _is_open_mpi_5() -> bool:
    """True if its launcher has started this process."""
    first = _os.environ.get("OMPI_VERSION", "").split(".")[0]
    return first.isdigit() and int(first) >= 5


class _Order(_MetaPathFinder):
    """Refuses to begin the MPI once weft has begun."""

    def find_spec(self, name: str, path: _Sequence[str] | None,
                  target: _ModuleType | None = None) -> None:
        if name == _MODULE:
            raise ImportError(f"weft.init() came first: {_WHY}", name=name)


def check() -> None:
    """Raises an error if the MPI was loaded and has not begun: weft is about to begin."""
    mpi = _sys.modules.get(_MODULE)
    if mpi is not None and _is_open_mpi_5() and not mpi.Is_initialized():
        raise _JobError(_WHY)


def watch(launcher: str) -> None:
    """Has an import of the MPI name the right order, where it would fail; weft has begun."""
    if launcher == "pmix" and _MODULE not in _sys.modules and _is_open_mpi_5():
        _sys.meta_path.insert(0, _Order())
