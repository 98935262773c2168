/* Ranks of a host write to a window of shared memory, and read the parts of all others there. */
#include "check.h"

enum { LEN = 1000 };

int main(int argc, char **argv)
{
    int rank, mine, size, *own;
    MPI_Comm host;
    MPI_Win window;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &mine);
    MPI_Comm_size(host, &size);
    MPI_Win_allocate_shared(LEN * sizeof *own, sizeof *own, MPI_INFO_NULL, host, &own, &window);
    MPI_Win_lock_all(0, window);
    for (int i = 0; i < LEN; i++)
        own[i] = mine * LEN + i;
    MPI_Win_sync(window);
    MPI_Barrier(host);
    MPI_Win_sync(window);
    for (int of = 0; of < size; of++) {
        MPI_Aint len;
        int unit, *there;
        MPI_Win_shared_query(window, of, &len, &unit, &there);
        CHECK(len == LEN * sizeof *own && unit == sizeof *own);
        for (int i = 0; i < LEN; i++)
            CHECK(there[i] == of * LEN + i);
    }
    MPI_Barrier(host);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Comm_free(&host);
    passed("shared");
    MPI_Finalize();
    return 0;
}
