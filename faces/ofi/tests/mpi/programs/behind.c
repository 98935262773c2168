/* behind COUNT BYTES: each rank but the last starts COUNT nonblocking sends that no rank
 * receives, then sends one message that the last rank waits for. A posted receive gets its
 * message whatever else is in progress; the others are received afterwards, in their order. */
#include "check.h"

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int count = atoi(argv[1]), bytes = atoi(argv[2]), last = size - 1, value = 77;
    if (rank < last) {
        MPI_Request *sends = malloc(count * sizeof *sends);
        unsigned char *all = malloc((size_t)count * bytes);
        for (int i = 0; i < count; i++) {
            fill(all + (size_t)i * bytes, bytes, i + rank);
            MPI_Isend(all + (size_t)i * bytes, bytes, MPI_CHAR, last, 1, MPI_COMM_WORLD, &sends[i]);
        }
        MPI_Send(&value, 1, MPI_INT, last, 2, MPI_COMM_WORLD);
        MPI_Waitall(count, sends, MPI_STATUSES_IGNORE);
        free(all);
        free(sends);
    } else {
        unsigned char *one = malloc(bytes);
        for (int from = 0; from < last; from++) {
            int got = 0;
            MPI_Recv(&got, 1, MPI_INT, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(got == value);
        }
        for (int i = 0; i < count; i++)
            for (int from = 0; from < last; from++) {
                MPI_Recv(one, bytes, MPI_CHAR, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                CHECK(filled(one, bytes, i + from));
            }
        free(one);
    }
    passed("behind");
    MPI_Finalize();
    return 0;
}
