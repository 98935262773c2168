"""The package with torch: programs under torchrun, and the examples."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLES = Path(__file__).parent.parent / "examples"
# A job that takes so many seconds hangs.
LONG = 240


def torchrun(count, words, **settings):
    """Runs a program as ranks, and returns what they print."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone",
             "--nproc-per-node", str(count), *map(str, words)]
    run = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         env=os.environ | {"OMP_NUM_THREADS": "1"} | settings, timeout=LONG)
    print(run.stdout)
    assert run.returncode == 0
    return run.stdout


@pytest.mark.parametrize("case", [
    "strides", "messages", "groups", "futures", "loaders", "wrong", "mismatch", "death", "aborting",
    "changing", "leaving", "model",
])
def test_ranks__find_all_right(case):
    said = torchrun(3, [PROGRAMS / "ranks.py", case])
    right = [rank for rank in range(3) if f"rank {rank} of 3 is right: {case}" in said]
    assert right == [0, 1, 2]


def test_switch__programs_that_name_gloo_get_weft():
    said = torchrun(2, [PROGRAMS / "ranks.py", "instead"], TORCH_WEFT_GLOO="1")
    assert said.count("is right: instead") == 2


@pytest.mark.parametrize("program", ["ddp.py", "fsdp.py", "pipeline.py"])
def test_example__has_the_same_losses_as_over_gloo(program):
    losses = {}
    for backend in ("weft", "gloo"):
        said = torchrun(2, [EXAMPLES / program, "--backend", backend])
        losses[backend] = [float(loss) for loss in re.findall(r"loss ([\d.]+)", said)]
    assert len(losses["weft"]) >= 3
    assert losses["weft"] == pytest.approx(losses["gloo"], rel=1e-3)
