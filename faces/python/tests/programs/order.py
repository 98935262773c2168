"""mpi4py and weft in one program, in another order: `mpiexec -n 2 python order.py before|after`.
Weft begins before the MPI, or after `MPI.Finalize`."""

import os
import sys

import weft


def uses_weft(job):
    total = job.world.allreduce(1)
    assert total == job.size, total


if sys.argv[1] == "after":
    from mpi4py import MPI
    me, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.allreduce(1)
    is_intel = "Intel" in MPI.Get_library_version()
    MPI.Finalize()
    try:
        joined = weft.init()
    except weft.JobError as why:
        # It has closed the connection to the launcher.
        assert is_intel and "by MPI_Finalize" in str(why), why
    else:
        with joined as job:
            assert (me, size) == (job.rank, job.size)
            uses_weft(job)
else:
    with weft.init() as job:
        me, size = job.rank, job.size
        try:
            from mpi4py import MPI
        except ImportError as why:
            assert os.environ["OMPI_VERSION"].startswith("5."), why
            assert "before weft.init()" in str(why), why
        else:
            assert (me, size) == (MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.allreduce(1))
        uses_weft(job)
sys.stdout.write(f"rank {me} of {size} is right: order\n")
