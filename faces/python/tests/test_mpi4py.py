"""mpi4py and weft in one program, under the launcher of each MPI in `WEFT_TEST_MPIS`, a folder of
virtual environments, or else under the one that is installed beside this Python."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from conftest import PROGRAMS, are_right, output_of

# Open MPI refuses root and more ranks than cores.
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def folders():
    """The folders with a launcher and a Python that has mpi4py, or a skip with the reason."""
    if folder := os.environ.get("WEFT_TEST_MPIS"):
        found = sorted(path for path in Path(folder).glob("*/bin")
                       if (path / "mpiexec").is_file() and (path / "python").is_file())
        assert found, f"WEFT_TEST_MPIS={folder} holds no bin/mpiexec"
        return [pytest.param(path, id=path.parent.name) for path in found]
    here = Path(sys.executable).parent
    without = [f"no {name}" for name in ("mpi4py", "numpy") if not importlib.util.find_spec(name)]
    without += [] if (here / "mpiexec").is_file() else [f"no {here / 'mpiexec'}"]
    reason = f"{', '.join(without)}, and WEFT_TEST_MPIS names no folder"
    return [pytest.param(here, id="here", marks=pytest.mark.skipif(bool(without), reason=reason))]


def run(folder, count, *words):
    """Runs a program under the launcher of an MPI, and returns what it prints."""
    settings = dict(SETTINGS)
    if (folder.parent / "opt/mpi").is_dir():
        # Intel's launcher looks for its files.
        settings["I_MPI_ROOT"] = str(folder.parent)
    words = [folder / "mpiexec", "-n", str(count), folder / "python", *words]
    return output_of(words, settings)


@pytest.mark.parametrize("first", ["weft", "mpi"])
@pytest.mark.parametrize("folder", folders())
def test_both_in_one_program(folder, first):
    said = run(folder, 2, PROGRAMS / "both.py", first)
    are_right(said, 2, "both")
    assert "leaving the job" not in said and "PMI" not in said


@pytest.mark.parametrize("folder", folders())
def test_ranks_that_have_not_met_exchange_messages_after_the_mpi_has_left(folder):
    are_right(run(folder, 4, PROGRAMS / "unmet.py"), 4, "unmet")


@pytest.mark.parametrize("folder", folders())
def test_weft_begins_when_the_mpi_has_left(folder):
    said = run(folder, 2, PROGRAMS / "order.py", "after")
    are_right(said, 2, "order")
    assert "leaving the job" not in said and "Signal" not in said


@pytest.mark.parametrize("folder", folders())
def test_weft_begins_before_the_mpi_or_says_that_it_must_not(folder):
    # Each rank says where Open MPI 5 would fail; the others work in this order.
    are_right(run(folder, 2, PROGRAMS / "order.py", "before"), 2, "order")
