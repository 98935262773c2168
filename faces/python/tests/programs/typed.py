"""The types of results, for `mypy --strict`; it runs as a job of one rank, too."""

from typing import assert_type

import numpy
import numpy.typing

import weft

Array = numpy.typing.NDArray[numpy.float64]

with weft.init() as job:
    numbers: Array = numpy.arange(3.0)
    assert_type(job.world.allreduce(numbers), Array)
    assert_type(job.world.allreduce(numbers, into=bytearray(24)), bytearray)
    assert_type(job.world.reduce(numbers), Array | None)
    assert_type(job.world.allreduce(3), int)
    assert_type(job.world.allreduce(3.5), float)
    assert_type(job.world.broadcast(numbers, into=numbers), Array)
    job.timeout = 3.0
