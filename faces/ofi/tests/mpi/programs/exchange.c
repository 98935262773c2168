/* Any two ranks exchange long messages. Then all exchange short ones until there is a file of
 * the given name, so that their counters can be read from outside meanwhile. */
#include "check.h"
#include <unistd.h>

enum { LEN = 500000, ROUNDS = 10 };

int main(int argc, char **argv)
{
    static unsigned char out[LEN], in[LEN];
    int rank, size, over = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(argc == 2);
    for (int round = 0; round < ROUNDS; round++)
        for (int step = 1; step < size; step++) {
            int to = (rank + step) % size, from = (rank + size - step) % size;
            fill(out, LEN, (unsigned)(rank + round));
            MPI_Sendrecv(out, LEN, MPI_BYTE, to, round, in, LEN, MPI_BYTE, from, round,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(filled(in, LEN, (unsigned)(from + round)));
        }
    double until = MPI_Wtime() + 100;
    while (!over) {
        over = access(argv[1], F_OK) == 0;
        CHECK(rank != 0 || MPI_Wtime() < until);
        MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    passed("exchange");
    MPI_Finalize();
    return 0;
}
