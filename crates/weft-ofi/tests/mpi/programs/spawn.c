/* Processes that are started by others, and processes that find each other by a port. */
#include "check.h"

static void talk(MPI_Comm inter, int parents)
{
    MPI_Comm all;
    int rank, size, sum = 0;
    MPI_Intercomm_merge(inter, !parents, &all);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    for (int i = 0; i < 20; i++) {
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
        CHECK(sum == size * (size - 1) / 2);
    }
    enum { LEN = 200000 };
    static unsigned char out[LEN], in[LEN];
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    fill(out, LEN, (unsigned)rank);
    MPI_Sendrecv(out, LEN, MPI_BYTE, to, 1, in, LEN, MPI_BYTE, from, 1, all, MPI_STATUS_IGNORE);
    CHECK(filled(in, LEN, (unsigned)from));
    MPI_Comm_free(&all);
}

int main(int argc, char **argv)
{
    MPI_Comm parent, children;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        talk(parent, 0);
        MPI_Comm_disconnect(&parent);
        MPI_Finalize();
        return 0;
    }
    int times = argc > 1 ? atoi(argv[1]) : 2;
    for (int i = 0; i < times; i++) {
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                       MPI_ERRCODES_IGNORE);
        talk(children, 1);
        MPI_Comm_disconnect(&children);
    }
    /* The two halves meet again by a port. */
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size >= 2) {
        MPI_Comm half, inter;
        char port[MPI_MAX_PORT_NAME];
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
        if (rank == 0)
            MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
        if (rank % 2 == 0)
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter);
        else
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter);
        talk(inter, rank % 2 == 0);
        MPI_Comm_disconnect(&inter);
        MPI_Comm_free(&half);
        if (rank == 0)
            MPI_Close_port(port);
    }
    passed("spawn");
    MPI_Finalize();
    return 0;
}
