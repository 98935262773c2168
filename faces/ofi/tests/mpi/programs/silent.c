/* A rank sends nothing for longer than a peer may be silent: `silent SECONDS`. It computes while
 * another waits for a message of it, and sleeps while the other has one for it: both arrive. */
#include "check.h"
#include <time.h>
#include <unistd.h>

enum { LEN = 4 << 20 };
static unsigned char buf[LEN];

static void compute(time_t seconds)
{
    time_t start = time(NULL);
    volatile double sum = 0;

    while (time(NULL) - start <= seconds)
        for (int i = 1; i < 100000; i++)
            sum += 1.0 / i;
}

int main(int argc, char **argv)
{
    int rank, seconds;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    CHECK(argc == 2);
    seconds = atoi(argv[1]);
    for (int turn = 0; turn < 2; turn++) {
        if (rank == 0) {
            compute(seconds);
            fill(buf, LEN, turn);
            MPI_Send(buf, LEN, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            sleep(seconds);
            MPI_Recv(buf, LEN, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(filled(buf, LEN, turn + 2));
        } else if (rank == 1) {
            MPI_Recv(buf, LEN, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(filled(buf, LEN, turn));
            fill(buf, LEN, turn + 2);
            MPI_Send(buf, LEN, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    passed("silent");
    MPI_Finalize();
    return 0;
}
