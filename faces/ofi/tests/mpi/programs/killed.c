/* The last rank kills itself in the middle of collective operations. The others get an error,
 * print it, and abort. */
#include "round.h"
#include <signal.h>

int main(int argc, char **argv)
{
    int rank, size;
    /* A launcher that ends a job may lose the ranks' last output. */
    if (argc > 1 && !freopen(argv[1], "a", stderr))
        return 7;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    /* Every rank has heard from every other. */
    MPI_Barrier(MPI_COMM_WORLD);
    for (long i = 0;; i++) {
        if (rank == size - 1 && i == 100)
            kill(getpid(), SIGKILL);
        collective_round(rank, i);
        if (i > 100) {
            fprintf(stderr, "rank %d: round %ld went well without the last rank\n", rank, i);
            MPI_Abort(MPI_COMM_WORLD, 6);
        }
    }
}
