/* Collective operations on any number of ranks, short and long, with results that are known. */
#include "check.h"

int main(int argc, char **argv)
{
    int rank, size, rounds = argc > 1 ? atoi(argv[1]) : 20;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    static const int lengths[] = {1, 100, 3000, 60000};
    for (int round = 0; round < rounds; round++) {
        int n = lengths[round % 4], root = round % size;
        double *in = malloc((size_t)n * sizeof *in), *out = malloc((size_t)n * sizeof *out);
        for (int i = 0; i < n; i++)
            in[i] = rank + i;
        MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++)
            CHECK(out[i] == size * (size - 1) / 2.0 + (double)size * i);
        if (rank == root)
            for (int i = 0; i < n; i++)
                in[i] = 3.0 * i + round;
        MPI_Bcast(in, n, MPI_DOUBLE, root, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++)
            CHECK(in[i] == 3.0 * i + round);
        int part = n < 3000 ? n : 3000;
        int *from = malloc((size_t)(part * size) * sizeof *from);
        int *to = malloc((size_t)(part * size) * sizeof *to);
        for (int i = 0; i < part * size; i++)
            from[i] = rank * 1000003 + i;
        MPI_Alltoall(from, part, MPI_INT, to, part, MPI_INT, MPI_COMM_WORLD);
        for (int r = 0; r < size; r++)
            for (int i = 0; i < part; i++)
                CHECK(to[r * part + i] == r * 1000003 + rank * part + i);
        MPI_Allgather(from, part, MPI_INT, to, part, MPI_INT, MPI_COMM_WORLD);
        for (int r = 0; r < size; r++)
            for (int i = 0; i < part; i++)
                CHECK(to[r * part + i] == r * 1000003 + i);
        MPI_Barrier(MPI_COMM_WORLD);
        free(in);
        free(out);
        free(from);
        free(to);
    }
    passed("collectives");
    MPI_Finalize();
    return 0;
}
