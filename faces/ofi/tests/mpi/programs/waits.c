/* Rank 1 waits in MPI_Recv for a second, and prints how much processor time the wait took. */
#include "check.h"
#include <sys/resource.h>
#include <time.h>

static double worked(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_utime.tv_sec + use.ru_stime.tv_sec +
           (use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv)
{
    int rank, value = 7;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        struct timespec second = { 1, 0 };
        nanosleep(&second, NULL);
        MPI_Send(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    } else if (rank == 1) {
        double before = worked();
        MPI_Recv(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("worked for %.0f ms\n", (worked() - before) * 1e3);
        fflush(stdout);
    }
    passed("waits");
    MPI_Finalize();
    return 0;
}
