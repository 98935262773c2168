/* Cancelled sends: each is received, or was cancelled. */
#include "check.h"

static char bytes[2000000];

static void withdraw(int rank, int len, int round)
{
    MPI_Request request;
    MPI_Status status;
    int cancelled;
    if (rank == 0) {
        if (round % 2)
            MPI_Issend(bytes, len, MPI_BYTE, 1, round, MPI_COMM_WORLD, &request);
        else
            MPI_Isend(bytes, len, MPI_BYTE, 1, round, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        /* Not local in every MPI: the other side receives meanwhile. */
        MPI_Send(&round, 1, MPI_INT, 1, 1000, MPI_COMM_WORLD);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &cancelled);
        MPI_Send(&cancelled, 1, MPI_INT, 1, 1001, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(&cancelled, 1, MPI_INT, 0, 1000, MPI_COMM_WORLD, &status);
        MPI_Irecv(bytes, len, MPI_BYTE, 0, round, MPI_COMM_WORLD, &request);
        MPI_Recv(&cancelled, 1, MPI_INT, 0, 1001, MPI_COMM_WORLD, &status);
        if (cancelled)
            MPI_Cancel(&request);
        MPI_Wait(&request, &status);
    }
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int round = 0; round < 20; round++)
        withdraw(rank, round % 4 < 2 ? 4 : (int)sizeof(bytes), round);
    passed("withdrawn");
    MPI_Finalize();
    return 0;
}
