/* Collective operations until one fails: the ranks say with what, and abort. Says when it is under
   way. */
#include "check.h"
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (long i = 0;; i++) {
        int one = 1, sum = 0;
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
        if (i == 100 && rank == 0) {
            printf("endless: under way\n");
            fflush(stdout);
        }
    }
}
