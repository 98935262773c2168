/* The program that `weft bench mpi` runs on each MPI: PROGRAM MODE SECONDS SIZE...
 * Prints "SIZE SECONDS" for every size, seconds of one operation:
 * pingpong: half a round trip between the first and the last rank;
 * poll: the same where both sides look for the message by MPI_Iprobe;
 * exchange: the first and the last rank send to each other at once;
 * test: MPI_Test of a rank that computes SIZE microseconds between two of them;
 * allreduce: sum of SIZE bytes over all ranks;
 * ring: every rank computes a little, passes SIZE bytes on in a ring and takes part in a sum;
 * stream: a message of many from the first to the last rank, WINDOW of which are answered;
 * broadcast: MPI_Bcast of the second rank, until the last rank has it (all ranks share a clock);
 * broadcasts: MPI_Bcast of many of the second rank. */
#define _GNU_SOURCE
#include "pin.h"
#include <mpi.h>
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

/* Looks for a message without end, then receives it. */
static void await(int size, int from) {
    int found = 0;
    while (!found)
        MPI_Iprobe(from, 1, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    MPI_Recv(in, size, MPI_BYTE, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void poll(int size) {
    int last = ranks - 1;
    if (rank == 0) {
        MPI_Send(out, size, MPI_BYTE, last, 1, MPI_COMM_WORLD);
        await(size, last);
    } else if (rank == last) {
        await(size, 0);
        MPI_Send(out, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
}

static void exchange(int size) {
    int last = ranks - 1;
    if (rank == 0 || rank == last)
        MPI_Sendrecv(out, size, MPI_BYTE, last - rank, 5, in, size, MPI_BYTE, last - rank, 5,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
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

static double used(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* Time in MPI_Test of the first rank, which computes between two of them. */
static double test(int micros, long count) {
    double sum = 0;
    MPI_Request pending;
    if (rank != 0)
        return 0;
    MPI_Irecv(in, 1, MPI_BYTE, ranks - 1, 6, MPI_COMM_WORLD, &pending);
    for (long i = 0; i < count; i++) {
        double until = used() + 1e-6 * micros, begun;
        int done;
        while (used() < until)
            ;
        begun = now();
        MPI_Test(&pending, &done, MPI_STATUS_IGNORE);
        sum += now() - begun;
    }
    MPI_Cancel(&pending);
    MPI_Wait(&pending, MPI_STATUS_IGNORE);
    return sum;
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

typedef void Once(int size);
typedef double Many(int size, long count);

/* Time of so many operations, of which one or many are a call. */
static double timed(Once *once, Many *many, int size, long count) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    if (many != NULL)
        return many(size, count);
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
    pin(rank, ranks);
    Once *once = strcmp(argv[1], "pingpong") == 0     ? pingpong
                 : strcmp(argv[1], "poll") == 0       ? poll
                 : strcmp(argv[1], "exchange") == 0   ? exchange
                 : strcmp(argv[1], "allreduce") == 0  ? allreduce
                 : strcmp(argv[1], "stream") == 0     ? stream
                 : strcmp(argv[1], "broadcasts") == 0 ? broadcasts
                                                      : ring;
    Many *many = strcmp(argv[1], "broadcast") == 0 ? broadcast
                 : strcmp(argv[1], "test") == 0    ? test
                                                   : NULL;
    double wanted = atof(argv[2]);
    for (int a = 3; a < argc; a++) {
        int size = atoi(argv[a]);
        out = calloc(1, size + 8);
        in = calloc(1, size + 8);
        /* The first operation of a size opens connections and touches its memory. */
        timed(once, many, size, 1);
        long count = 1;
        double took = 0;
        for (;;) {
            double start = now();
            took = timed(once, many, size, count);
            double whole = many == test ? now() - start : took;
            /* The clock of one rank decides for all. */
            MPI_Bcast(&whole, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
            if (whole >= wanted)
                break;
            double more = whole > 0 ? 1.2 * wanted / whole : 10;
            count *= more > 10 ? 10 : more < 2 ? 2 : (long)more + 1;
        }
        if (rank == 0) {
            int ways = once == pingpong || once == poll ? 2 : 1;
            int parts = many != NULL ? 1 : once == stream ? WINDOW : ways;
            double each = took / count / parts;
            printf("weft-bench %d %.9g\n", size, each);
            fflush(stdout);
        }
        free(out);
        free(in);
    }
    MPI_Finalize();
    return 0;
}
