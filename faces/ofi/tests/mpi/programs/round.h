/* Collective operations until one fails. */
#include "check.h"
#include <unistd.h>

/* One collective operation of all ranks; a rank that gets an error prints it and aborts. */
static void collective_round(int rank, long round)
{
    int one = 1, sum = 0;
    int code = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (code == MPI_SUCCESS)
        return;
    char text[MPI_MAX_ERROR_STRING];
    int len;
    MPI_Error_string(code, text, &len);
    fprintf(stderr, "rank %d: error in round %ld: %s\n", rank, round, text);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 5);
    /* MPICH's MPI_Abort may return before its launcher ends this process. */
    _exit(5);
}
