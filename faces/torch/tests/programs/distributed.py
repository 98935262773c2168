"""Runs torch's own tests of backends, which its wheel has: `distributed.py [TEST]...`. BACKEND
names the backend. Processes are forked, which saves their imports; profilers see operations of C++
alone, so that no event is asked for."""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("INIT_METHOD", "env://")
folder = tempfile.TemporaryDirectory()
os.environ["TEMP_DIR"] = folder.name
for name in ("barrier", "test_dir", "init_dir"):
    (Path(folder.name) / name).mkdir()

import torch
from torch.testing._internal.common_utils import run_tests
from torch.testing._internal.distributed import distributed_test

distributed_test.PROFILING_SUPPORTED_BACKENDS = []


class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    """All tests."""

    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


if __name__ == "__main__":
    run_tests()
