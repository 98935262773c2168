"""mpi4py and weft in one program: `mpiexec -n 2 python both.py weft|mpi`. MPI has the ranks'
arrays, weft a shared object, a region, and messages; a rank has the same number in both. The
argument names the one that is left first.

A rank that waits in MPI makes no progress for weft, so a barrier of weft ends each phase in which
ranks need each other in weft."""

import sys

import numpy
from mpi4py import MPI

import weft


@weft.shared
class Best:
    def __init__(self):
        self.value, self.rank = 0.0, -1

    @weft.writes
    def offer(self, value, rank):
        if value > self.value:
            self.value, self.rank = value, rank

    @weft.reads
    def get(self):
        return self.value, self.rank


with weft.init() as job:
    comm, world = MPI.COMM_WORLD, job.world
    me, size = comm.Get_rank(), comm.Get_size()
    assert (me, size) == (job.rank, job.size), (me, size, job.rank, job.size)
    best = job.share(Best, "best")
    world.barrier()
    numbers = numpy.full(1000, float(me))
    for turn in range(50):
        # A collective operation of each in turn, on the same memory.
        comm.Allreduce(MPI.IN_PLACE, numbers, MPI.SUM)
        world.allreduce(numbers)
        best.offer(float(numbers[0]), me)
        numbers[:] = me + turn
        world.barrier()
    comm.Barrier()
    right, left = (me + 1) % size, (me - 1) % size
    # A request of weft is under way while MPI waits.
    into = numpy.zeros(100_000)
    request = world.irecv(left, into)
    comm.sendrecv(b"go", dest=right, source=left)
    world.send(right, numpy.full(100_000, float(me)))
    request.wait(60)
    assert (into == left).all()
    world.barrier()
    region = job.region(10)
    names = comm.allgather(region.name)
    with job.map(names[left]).write() as cells:
        cells[0] = me
    world.barrier()
    with region.read() as cells:
        assert cells[0] == right
    assert best.get()[0] > 0 or size == 1
    world.barrier()
    if sys.argv[1] == "mpi":
        MPI.Finalize()
        # Weft goes on without it.
        world.barrier()
    sys.stdout.write(f"rank {me} of {size} is right: both\n")
