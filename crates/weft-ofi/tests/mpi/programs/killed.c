/* The last rank kills itself in the middle of collective operations. The others get an error, say
   which, and abort. */
#include "check.h"
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, size;
    /* A launcher that ends a job may lose what the ranks said last. */
    if (argc > 1 && !freopen(argv[1], "a", stderr))
        return 7;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    /* Everybody has heard of everybody. */
    MPI_Barrier(MPI_COMM_WORLD);
    for (long i = 0;; i++) {
        int one = 1, sum = 0;
        if (rank == size - 1 && i == 100)
            kill(getpid(), SIGKILL);
        int code = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (code != MPI_SUCCESS) {
            char text[MPI_MAX_ERROR_STRING];
            int len;
            MPI_Error_string(code, text, &len);
            fprintf(stderr, "rank %d: error in round %ld: %s\n", rank, i, text);
            fflush(stderr);
            MPI_Abort(MPI_COMM_WORLD, 5);
            /* MPICH's may return before its launcher ends this process. */
            _exit(5);
        }
        if (i > 100) {
            fprintf(stderr, "rank %d: round %ld went well without the last rank\n", rank, i);
            MPI_Abort(MPI_COMM_WORLD, 6);
        }
    }
}
