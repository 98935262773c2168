/* Ranks wait for a multicast of rank 0, which is killed, or with the argument `stops` only
 * stopped. Rank 1 notes that it expects packets of rank 0, and gets an error when rank 0 is
 * silent; the others get it from rank 1. Each prints its error. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <signal.h>
#include <string.h>

enum { DATA = 1, MAX = 64 };

static void on_data(weft_job *job, weft_packet *packet, void *context)
{
    (void)job;
    (void)packet;
    *(int *)context = 1;
}

int main(int argc, char **argv)
{
    weft_job *job;
    weft_group *group;
    int ranks[MAX], got = 0, failed = WEFT_OK;

    /* The launcher ends the other ranks when one fails: this leaves time to print the error. */
    signal(SIGTERM, SIG_IGN);
    CHECK(weft_init(&job));
    int me = weft_rank(job), size = weft_size(job);
    for (int rank = 0; rank < size && rank < MAX; rank++)
        ranks[rank] = rank;
    CHECK(weft_handle(job, DATA, on_data, &got));
    CHECK(weft_group_make(job, 1, ranks, size < MAX ? size : MAX, &group));
    /* Once to meet: a message to a rank that has not answered yet waits here, and would stop with
     * this one. Then all have met. */
    CHECK(weft_barrier(job));
    CHECK(weft_barrier(job));
    if (me == 0)
        raise(argc > 1 && strcmp(argv[1], "stops") == 0 ? SIGSTOP : SIGKILL);
    if (me == 1)
        failed = weft_group_expect(group, 0);
    while (!got && failed == WEFT_OK) {
        CHECK(weft_wait(job, -1));
        failed = weft_group_failed(group);
    }
    printf("rank %d: %s: %s\n", me, weft_strerror(failed), weft_last_error());
    /* A rank is missing: the job has failed. */
    return 1;
}
