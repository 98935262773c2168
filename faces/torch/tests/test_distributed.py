"""torch's own tests of backends, over weft by its name and in gloo's place. It takes minutes.

Those that its wheel does not have are read from a copy of torch's source of the same version, at
WEFT_TEST_TORCH_SOURCE.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "distributed.py"
SOURCE = os.environ.get("WEFT_TEST_TORCH_SOURCE")
# Where torch keeps tests of backends by the names of files, and the number of tests for a backend.
FOLDER = "test/distributed"
COMMON = "c10d_backend_common.py"
FILES = {
    "test_c10d_collectives.py": 15,
    "test_c10d_fault_tolerance.py": 12,
    "test_c10d_p2p.py": 4,
    "test_c10d_process_group.py": 6,
}
HELD = "torch holds operations of Python in an object that passes on `wait` and `get_future` alone"
# Tests that fail, with the reason.
NAMED = {
    "test_ddp_logging_data_cpu": "torch calls each backend from outside `custom`",
    "test_sparse_all_reduce_sum": "no sparse tensors",
    "test_noncontiguous_all_to_all_error": "tensors may have any stride",
    "test_wait_unregisters_work": HELD,
    "test_work_duration": HELD,
    "test_work_result_future": HELD,
    "test_work_sequence_number": HELD,
}
PROFILED = "torch's profilers see operations of C++ alone"


def reason(test):
    """Returns the reason why a test fails, if it is known."""
    return PROFILED if test.endswith("_profiler") else NAMED.get(test)


@pytest.mark.parametrize("backend, switch", [("weft", "0"), ("gloo", "1")])
def test_torch__its_tests_pass_but_for_those_named(backend, switch):
    settings = {"BACKEND": backend, "TORCH_WEFT_GLOO": switch, "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-W", "ignore", PROGRAM], env=os.environ | settings,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    judge(run, 200)


@pytest.mark.skipif(SOURCE is None, reason="WEFT_TEST_TORCH_SOURCE names no source of torch")
@pytest.mark.parametrize("file", FILES)
def test_source__its_tests_pass_but_for_those_named(file, tmp_path):
    for name in (COMMON, file):
        text = Path(SOURCE, FOLDER, name).read_text()
        (tmp_path / name).write_text(text.replace('"gloo"', '"weft"'))
    run = subprocess.run([sys.executable, "-W", "ignore", tmp_path / file],
                         env=os.environ | {"OMP_NUM_THREADS": "1"},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    judge(run, FILES[file])


def judge(run, least):
    """Fails unless so many tests were run, of which only those that are named failed."""
    count = re.search(r"^Ran (\d+) tests", run.stdout, re.MULTILINE)
    assert count and int(count[1]) >= least, run.stdout[-4000:]
    failed = set(re.findall(r"^(?:ERROR|FAIL): (\w+)", run.stdout, re.MULTILINE))
    for test in sorted(failed):
        print(f"{test}: {reason(test) or 'UNEXPECTED'}")
    unexpected = {test for test in failed if not reason(test)}
    assert not unexpected, run.stdout[-20_000:]
