/* Packets in both directions between ranks 0 and 1 without upcalls; rank 0 prints the one-way
 * time. */
#include "check.h"
#include <string.h>

enum { BOX = 1, ROUNDS = 1000 };

int main(void)
{
    weft_job *job;
    int source;
    uint32_t argument;
    size_t got;
    char data[16] = "weft", into[16];

    CHECK(weft_init(&job));
    CHECK(weft_mailbox(job, BOX));
    CHECK(weft_barrier(job));
    int me = weft_rank(job);
    double start = now();
    for (uint32_t i = 0; me < 2 && i < ROUNDS; i++) {
        if (me == 0)
            CHECK(weft_send(job, 1, BOX, i, data, sizeof data));
        CHECK(weft_receive(job, 1 - me, BOX, into, sizeof into, &source, &argument, &got));
        if (source != 1 - me || argument != i || got != sizeof data || memcmp(data, into, got)) {
            fprintf(stderr, "rank %d: another packet came than was sent\n", me);
            return 1;
        }
        if (me == 1)
            CHECK(weft_send(job, 0, BOX, i, into, got));
    }
    if (me == 0)
        printf("%d rounds, %.2f us one way\n", ROUNDS, (now() - start) / ROUNDS / 2 * 1e6);
    CHECK(weft_barrier(job));
    CHECK(weft_finish(job));
    return 0;
}
