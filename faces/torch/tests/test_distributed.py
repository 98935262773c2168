"""torch's own tests of backends, over weft by its name and in gloo's place. It takes minutes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "programs" / "distributed.py"
# Tests that fail, with the reason.
NAMED = {
    "test_ddp_logging_data_cpu": "torch calls each backend from outside `custom`",
    "test_sparse_all_reduce_sum": "no sparse tensors",
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
    count = re.search(r"^Ran (\d+) tests", run.stdout, re.MULTILINE)
    assert count and int(count[1]) > 200, run.stdout[-4000:]
    failed = set(re.findall(r"^(?:ERROR|FAIL): (\w+)", run.stdout, re.MULTILINE))
    for test in sorted(failed):
        print(f"{test}: {reason(test) or 'UNEXPECTED'}")
    unexpected = {test for test in failed if not reason(test)}
    assert not unexpected, run.stdout[-20_000:]
