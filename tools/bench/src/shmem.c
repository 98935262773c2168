/* The program that `weft bench models` and `weft bench consumers` run on two PEs of an OpenSHMEM:
 * PROGRAM MODE SECONDS.
 * PE 0 works on the memory of PE 1, which waits in a barrier, where it makes progress:
 * ticket: fetch-and-add of 8 bytes;
 * write: a get of 16 bytes, which are changed, a put of them, and a quiet;
 * put: a put of 8 bytes, which count, and a quiet;
 * get: a get of 8 bytes.
 * Prints "weft-shmem NAME" and "weft-bench SIZE SECONDS", seconds of one operation, if all values
 * are right, else "weft-failed REASON". */
#define _GNU_SOURCE
#include "pin.h"
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Symmetric: the values of PE 1 are those that PE 0 works on. */
static long ticket, words[2], verdict;
/* Operations so far, and wrong values that they returned. */
static long done, wrong;

static void take_ticket(void) {
    wrong += shmem_long_atomic_fetch_add(&ticket, 1, 1) != done++;
}

static void write_region(void) {
    long copy[2];
    shmem_getmem(copy, words, sizeof copy, 1);
    wrong += copy[0] != done || copy[1] != 2 * done;
    done++;
    copy[0] = done;
    copy[1] = 2 * done;
    shmem_putmem(words, copy, sizeof copy, 1);
    shmem_quiet();
}

static void put_word(void) {
    long next = ++done;
    shmem_putmem(&ticket, &next, sizeof next, 1);
    shmem_quiet();
}

static void get_word(void) {
    long copy = -1;
    shmem_getmem(&copy, &ticket, sizeof copy, 1);
    wrong += copy != 0;
    done++;
}

static double timed(void (*once)(void), long count) {
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long i = 0; i < count; i++)
        once();
    clock_gettime(CLOCK_MONOTONIC, &end);
    return end.tv_sec - start.tv_sec + 1e-9 * (end.tv_nsec - start.tv_nsec);
}

/* Returns the seconds of one operation: of the first series that takes as long as is wanted. */
static double measure(void (*once)(void), double wanted) {
    for (long count = 10;; count *= 2) {
        double took = timed(once, count);
        if (took >= wanted)
            return took / count;
    }
}

/* Returns 1 if the memory of PE 1 holds what so many operations leave there. */
static long judge(void (*once)(void), long count) {
    if (once == take_ticket || once == put_word)
        return ticket == count;
    if (once == get_word)
        return ticket == 0;
    return words[0] == count && words[1] == 2 * count;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    void (*once)(void) = strcmp(argv[1], "ticket") == 0 ? take_ticket
                         : strcmp(argv[1], "put") == 0  ? put_word
                         : strcmp(argv[1], "get") == 0  ? get_word
                                                        : write_region;
    static long total;
    double each = 0;
    shmem_init();
    int pe = shmem_my_pe(), pes = shmem_n_pes();
    if (pes != 2) {
        printf("weft-failed a job of %d PEs has started, not of 2\n", pes);
        return 1;
    }
    pin(pe, pes);
    shmem_barrier_all();
    if (pe == 0) {
        each = measure(once, atof(argv[2]));
        shmem_long_p(&total, done, 1);
    }
    shmem_barrier_all();
    if (pe == 1)
        shmem_long_p(&verdict, judge(once, total), 0);
    shmem_barrier_all();
    if (pe == 0 && verdict == 1 && wrong == 0) {
        char name[SHMEM_MAX_NAME_LEN];
        shmem_info_get_name(name);
        int size = once == write_region ? sizeof words : sizeof ticket;
        printf("weft-shmem %s\nweft-bench %d %.9g\n", name, size, each);
    } else if (pe == 0) {
        printf("weft-failed %ld of %ld values were wrong, those at the end %s\n", wrong, done,
               verdict == 1 ? "right" : "wrong");
    }
    fflush(stdout);
    shmem_finalize();
    return 0;
}
