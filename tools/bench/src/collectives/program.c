/* The program that `weft bench collectives` runs on each MPI: PROGRAM SECONDS OPERATION:SIZE...
 * Prints "weft-bench OPERATION SIZE SECONDS" for each, seconds of one operation. SIZE is the bytes
 * of the whole vector: the one that is summed, or the one that is gathered or exchanged. */
#define _GNU_SOURCE
#include "pin.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static char *out, *in;

static void message(int size) {
    int last = ranks - 1;
    if (rank == 0) {
        MPI_Send(out, size, MPI_BYTE, last, 1, MPI_COMM_WORLD);
        MPI_Recv(in, size, MPI_BYTE, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == last) {
        MPI_Recv(in, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
}

static void allreduce(int size) {
    MPI_Allreduce(MPI_IN_PLACE, out, size / 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void reduce_scatter(int size) {
    MPI_Reduce_scatter_block(out, in, size / 4 / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void allgather(int size) {
    int each = size / ranks;
    MPI_Allgather(out, each, MPI_BYTE, in, each, MPI_BYTE, MPI_COMM_WORLD);
}

static void alltoall(int size) {
    int each = size / ranks;
    MPI_Alltoall(out, each, MPI_BYTE, in, each, MPI_BYTE, MPI_COMM_WORLD);
}

typedef void Once(int size);

static const struct {
    const char *name;
    Once *once;
} operations[] = {
    {"message", message},     {"allreduce", allreduce}, {"reduce_scatter", reduce_scatter},
    {"allgather", allgather}, {"alltoall", alltoall},
};

static Once *named(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
        if (strlen(operations[i].name) == length && memcmp(operations[i].name, name, length) == 0)
            return operations[i].once;
    return NULL;
}

static double timed(Once *once, int size, long count) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (long i = 0; i < count; i++)
        once(size);
    return MPI_Wtime() - start;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    pin(rank, ranks);
    double wanted = atof(argv[1]);
    for (int a = 2; a < argc; a++) {
        const char *colon = strchr(argv[a], ':');
        Once *once = colon != NULL ? named(argv[a], colon - argv[a]) : NULL;
        if (once == NULL)
            return 2;
        int size = atoi(colon + 1);
        out = calloc(1, size + 8);
        in = calloc(1, size + 8);
        /* The first operation of a size opens connections and touches its memory. */
        timed(once, size, 2);
        long count = 1;
        double took = 0;
        for (;;) {
            took = timed(once, size, count);
            /* The clock of one rank decides for all. */
            MPI_Bcast(&took, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
            if (took >= wanted)
                break;
            double more = took > 0 ? 1.2 * wanted / took : 10;
            count *= more > 10 ? 10 : more < 2 ? 2 : (long)more + 1;
        }
        if (rank == 0) {
            printf("weft-bench %.*s %d %.9g\n", (int)(colon - argv[a]), argv[a], size,
                   took / count / (once == message ? 2 : 1));
            fflush(stdout);
        }
        free(out);
        free(in);
    }
    MPI_Finalize();
    return 0;
}
