"""Ranks write a dataset together, each its columns, and read the columns of the next rank."""

import sys

from mpi4py import MPI
import h5py
import numpy

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
ROWS, COLUMNS = 64, 512


def values(of):
    return numpy.arange(ROWS * COLUMNS, dtype="f8").reshape(ROWS, COLUMNS) + of * 1e6


with h5py.File(sys.argv[1], "w", driver="mpio", comm=comm) as file:
    data = file.create_dataset("data", (ROWS, COLUMNS * size), dtype="f8")
    file.create_dataset("name", data=numpy.arange(size))
    with data.collective:
        data[:, rank * COLUMNS : (rank + 1) * COLUMNS] = values(rank)

with h5py.File(sys.argv[1], "r", driver="mpio", comm=comm) as file:
    other = (rank + 1) % size
    with file["data"].collective:
        got = file["data"][:, other * COLUMNS : (other + 1) * COLUMNS]
    assert numpy.array_equal(got, values(other)), f"rank {rank}: columns of {other} are wrong"
    assert list(file["name"]) == list(range(size))

print(f"collective_hdf5 {rank}: passed")
