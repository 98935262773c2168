/* The program that `weft bench mpi` runs on each MPI: PROGRAM MODE SECONDS SIZE...
 * Prints "SIZE SECONDS" for every size, seconds of one operation:
 * pingpong: half a round trip between the first and the last rank;
 * allreduce: sum of SIZE bytes over all ranks;
 * ring: every rank computes a little, passes SIZE bytes on in a ring and takes part in a sum;
 * stream: a message of many from the first to the last rank, WINDOW of which are answered;
 * broadcast: MPI_Bcast of the second rank, until the last rank has it (all ranks share a clock);
 * broadcasts: MPI_Bcast of many of the second rank. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WINDOW 16

static int rank, ranks;
static char *out, *in;
static double work = 1.0;

static void pingpong(int size) {
    int last = ranks - 1;
    if (rank == 0) {
        MPI_Send(out, size, MPI_BYTE, last, 1, MPI_COMM_WORLD);
        MPI_Recv(in, size, MPI_BYTE, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == last) {
        MPI_Recv(in, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
}

static void allreduce(int size) {
    MPI_Allreduce(out, in, size / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void ring(int size) {
    double mine = work, all;
    for (int i = 0; i < 20000; i++)
        mine = mine * 1.0000001 + 1e-9;
    MPI_Sendrecv(out, size, MPI_BYTE, (rank + 1) % ranks, 2, in, size, MPI_BYTE,
                 (rank + ranks - 1) % ranks, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    work = 1.0 + 1e-12 * all;
}

static void stream(int size) {
    MPI_Request all[WINDOW];
    int last = ranks - 1;
    if (rank != 0 && rank != last)
        return;
    for (int i = 0; i < WINDOW; i++) {
        if (rank == 0)
            MPI_Isend(out, size, MPI_BYTE, last, 3, MPI_COMM_WORLD, &all[i]);
        else
            MPI_Irecv(in, size, MPI_BYTE, 0, 3, MPI_COMM_WORLD, &all[i]);
    }
    MPI_Waitall(WINDOW, all, MPI_STATUSES_IGNORE);
    if (rank == 0)
        MPI_Recv(in, 0, MPI_BYTE, last, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Send(out, 0, MPI_BYTE, 0, 4, MPI_COMM_WORLD);
}

static void broadcasts(int size) {
    MPI_Bcast(out, size, MPI_BYTE, 1, MPI_COMM_WORLD);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* Time from the call of the root until the last rank has the message. */
static double broadcast(int size, long count) {
    double sum = 0;
    for (long i = 0; i < count; i++) {
        double begun = 0, last, come;
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1)
            begun = now();
        MPI_Bcast(out, size, MPI_BYTE, 1, MPI_COMM_WORLD);
        come = now();
        MPI_Allreduce(&come, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        MPI_Bcast(&begun, 1, MPI_DOUBLE, 1, MPI_COMM_WORLD);
        sum += last - begun;
    }
    return sum;
}

/* Binds each rank to a core if there are enough: two ranks that share a core by chance spoil the
 * figures. With more ranks than cores the system places them. */
static void pin(void) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0 || ranks > CPU_COUNT(&all))
        return;
    int nth = rank;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all) || nth-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

static double timed(void (*once)(int), int size, long count) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    if (once == NULL)
        return broadcast(size, count);
    for (long i = 0; i < count; i++)
        once(size);
    if (once == broadcasts)
        MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime() - start;
}

int main(int argc, char **argv) {
    if (argc < 4)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    pin();
    void (*once)(int) = strcmp(argv[1], "pingpong") == 0     ? pingpong
                        : strcmp(argv[1], "allreduce") == 0  ? allreduce
                        : strcmp(argv[1], "stream") == 0     ? stream
                        : strcmp(argv[1], "broadcast") == 0  ? NULL
                        : strcmp(argv[1], "broadcasts") == 0 ? broadcasts
                                                             : ring;
    double wanted = atof(argv[2]);
    for (int a = 3; a < argc; a++) {
        int size = atoi(argv[a]);
        out = calloc(1, size + 8);
        in = calloc(1, size + 8);
        /* The first operation of a size opens connections and touches its memory. */
        timed(once, size, 1);
        long count = 1;
        double took = 0;
        for (;;) {
            took = timed(once, size, count);
            /* The clock of one rank decides for all. */
            MPI_Bcast(&took, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
            if (took >= wanted)
                break;
            double more = took > 0 ? 1.2 * wanted / took : 10;
            count *= more > 10 ? 10 : more < 2 ? 2 : (long)more + 1;
        }
        if (rank == 0) {
            double each = took / count / (once == pingpong ? 2 : once == stream ? WINDOW : 1);
            printf("weft-bench %d %.9g\n", size, each);
            fflush(stdout);
        }
        free(out);
        free(in);
    }
    MPI_Finalize();
    return 0;
}
