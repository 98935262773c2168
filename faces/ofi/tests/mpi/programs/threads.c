/* Four threads a rank, each with communicators of its own, and one communicator that all share. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, COMMS = 8 };
static int rank, size, rounds = 60;
static MPI_Comm own[THREADS][COMMS], shared;

static void ring(MPI_Comm comm, int tag, int round, size_t len)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    unsigned char *out = malloc(len + 1), *in = malloc(len + 1);
    MPI_Request request[2];
    MPI_Status status[2];
    fill(out, len, (unsigned)(rank * 7919 + tag * 31 + round));
    MPI_Irecv(in, (int)len, MPI_BYTE, from, tag, comm, &request[0]);
    MPI_Isend(out, (int)len, MPI_BYTE, to, tag, comm, &request[1]);
    MPI_Waitall(2, request, status);
    int count;
    MPI_Get_count(&status[0], MPI_BYTE, &count);
    CHECK(count == (int)len && status[0].MPI_SOURCE == from && status[0].MPI_TAG == tag);
    CHECK(filled(in, len, (unsigned)(from * 7919 + tag * 31 + round)));
    free(out);
    free(in);
}

static void *work(void *arg)
{
    int me = (int)(long)arg;
    static const size_t lengths[] = {0, 1, 64, 4096, 17000, 70000, 300000};
    for (int round = 0; round < rounds; round++) {
        size_t len = lengths[(round + me) % 7];
        ring(own[me][round % COMMS], 5, round, len);
        ring(shared, 100 + me, round, len);
        int sum = 0;
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, own[me][(round + 3) % COMMS]);
        CHECK(sum == size * (size - 1) / 2);
        if (round % 5 == 0) {
            /* A thread that probes finds the message for this thread. */
            MPI_Message message;
            MPI_Status status;
            MPI_Request request;
            int value = rank * 1000 + me, got = -1, from = (rank + size - 1) % size;
            MPI_Isend(&value, 1, MPI_INT, (rank + 1) % size, 200 + me, shared, &request);
            MPI_Mprobe(from, 200 + me, shared, &message, &status);
            MPI_Mrecv(&got, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            CHECK(got == from * 1000 + me);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided;
    pthread_t thread[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1)
        rounds = atoi(argv[1]);
    MPI_Comm_dup(MPI_COMM_WORLD, &shared);
    for (int t = 0; t < THREADS; t++)
        for (int c = 0; c < COMMS; c++)
            MPI_Comm_dup(MPI_COMM_WORLD, &own[t][c]);
    for (int t = 0; t < THREADS; t++)
        CHECK(pthread_create(&thread[t], NULL, work, (void *)(long)t) == 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(thread[t], NULL);
    passed("threads");
    MPI_Finalize();
    return 0;
}
