/* A rank computes, without a call of MPI, while another receives a large message from it, sends
 * it one for a posted receive, and adds to its window: `computes WHAT FILE`. WHAT is `messages`,
 * or `all` with one-sided operations. A thread of the provider serves the other rank, which
 * creates a file when it is done. */
#include "check.h"
#include <time.h>
#include <unistd.h>

enum { LEN = 4 << 20 };
static unsigned char out[LEN], in[LEN];
static char path[4096];
static int rank, step;
static MPI_Win win;

/* Computes until the other rank has done its part; false if it takes too long. */
static int compute(void)
{
    time_t start = time(NULL);
    volatile double sum = 0;

    while (access(path, F_OK)) {
        for (int i = 1; i < 100000; i++)
            sum += 1.0 / i;
        if (time(NULL) - start > 60)
            return 0;
    }
    return 1;
}

/* One part: the other rank completes its part while this one computes. */
static void part(const char *file, void (*ours)(MPI_Request *), void (*theirs)(void))
{
    snprintf(path, sizeof(path), "%s.%d", file, step++);
    if (rank == 0)
        unlink(path);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Request request = MPI_REQUEST_NULL;

        if (ours)
            ours(&request);
        CHECK(compute());
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        theirs();
        FILE *f = fopen(path, "w");
        CHECK(f && !fclose(f));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        unlink(path);
}

static void isend(MPI_Request *request)
{
    fill(out, LEN, 1);
    MPI_Isend(out, LEN, MPI_BYTE, 1, 1, MPI_COMM_WORLD, request);
}

static void receive(void)
{
    MPI_Recv(in, LEN, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(filled(in, LEN, 1));
}

static void irecv(MPI_Request *request)
{
    MPI_Irecv(in, LEN, MPI_BYTE, 1, 2, MPI_COMM_WORLD, request);
}

static void send(void)
{
    fill(out, LEN, 2);
    MPI_Send(out, LEN, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
}

static void add(void)
{
    long one = 1, old = -1;

    for (long i = 0; i < 20; i++) {
        MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 0, MPI_SUM, win);
        MPI_Win_flush(0, win);
        CHECK(old == i);
    }
}

int main(int argc, char **argv)
{
    long *sum;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    CHECK(argc == 3);
    part(argv[2], isend, receive);
    part(argv[2], irecv, send);
    CHECK(rank || filled(in, LEN, 2));
    if (!strcmp(argv[1], "all")) {
        MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &sum, &win);
        *sum = 0;
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
        MPI_Barrier(MPI_COMM_WORLD);
        /* The two ranks exchange a first message. */
        if (rank)
            MPI_Win_flush(0, win);
        part(argv[2], NULL, add);
        MPI_Win_unlock_all(win);
        CHECK(rank || *sum == 20);
        MPI_Win_free(&win);
    }
    passed("computes");
    MPI_Finalize();
    return 0;
}
