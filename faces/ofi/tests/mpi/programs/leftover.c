/* MPI_Finalize with messages that no rank receives, receives that nothing matches, and a message
 * that is still on its way. With `legal` all is received: some MPIs end with an error otherwise. */
#include "check.h"

int main(int argc, char **argv)
{
    int rank, size;
    static int values[100], never[8];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int to = (rank + 1) % size;
    int legal = argc > 1 && !strcmp(argv[1], "legal");
    for (int i = 0; i < 100 && !legal; i++)
        MPI_Send(&values[i], 1, MPI_INT, to, i, MPI_COMM_WORLD);
    for (int i = 0; i < 8; i++) {
        MPI_Request request;
        MPI_Irecv(&never[i], 1, MPI_INT, MPI_ANY_SOURCE, 5000 + i, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    /* The sender of the last message leaves before it is received. */
    if (rank == 0) {
        int value = 42;
        MPI_Send(&value, 1, MPI_INT, size - 1, 777, MPI_COMM_WORLD);
    }
    if (rank == size - 1) {
        int value = 0;
        MPI_Recv(&value, 1, MPI_INT, 0, 777, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(value == 42);
        printf("leftover: passed\n");
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
