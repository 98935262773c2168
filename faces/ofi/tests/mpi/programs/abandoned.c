/* Abandoned requests: sends freed while in progress, right before MPI_Finalize, and receives
 * cancelled and freed without a wait. All sent messages are received. */
#include "check.h"

int main(int argc, char **argv)
{
    static const int lengths[] = {1, 1000, 30000, 2000000};
    enum { LENGTHS = sizeof lengths / sizeof *lengths, LONGEST = 2000000 };
    static unsigned char out[LENGTHS][LONGEST], in[LONGEST], never[8];
    int rank, size;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int i = 0; i < 8; i++) {
        MPI_Irecv(&never[i], 1, MPI_BYTE, i % 2 ? from : MPI_ANY_SOURCE, 5000 + i, MPI_COMM_WORLD,
                  &request);
        MPI_Cancel(&request);
        MPI_Request_free(&request);
    }
    for (int i = 0; i < LENGTHS; i++) {
        fill(out[i], (size_t)lengths[i], (unsigned)(rank * LENGTHS + i));
        MPI_Isend(out[i], lengths[i], MPI_BYTE, to, i, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
    }
    /* Each rank but the first receives nothing before its neighbour is on its way to
     * MPI_Finalize. */
    if (rank != 0)
        MPI_Recv(NULL, 0, MPI_BYTE, from, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < LENGTHS; i++) {
        MPI_Recv(in, lengths[i], MPI_BYTE, from, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(filled(in, (size_t)lengths[i], (unsigned)(from * LENGTHS + i)));
    }
    if (to != 0) {
        MPI_Isend(NULL, 0, MPI_BYTE, to, 99, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
    }
    printf("abandoned %d: passed\n", rank);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
