"""The MPI is left before weft, and ranks that have not met exchange messages then: `mpiexec -n 4
python unmet.py`."""

import sys

from mpi4py import MPI

import weft

with weft.init() as job:
    MPI.COMM_WORLD.Barrier()
    MPI.Finalize()
    world, others = job.world, [rank for rank in range(job.size) if rank != job.rank]
    requests = [world.isend(rank, b"from %d" % job.rank) for rank in others]
    for rank in others:
        assert world.recv(rank) == b"from %d" % rank
    for request in requests:
        request.wait()
    world.barrier()
    sys.stdout.write(f"rank {job.rank} of {job.size} is right: unmet\n")
