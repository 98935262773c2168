/* Rank 0 sends to two ranks with different choices, and one adds to a counter of the other. */
#include "check.h"
#include <string.h>

enum { DATA = 1, KEY = 2, PACKETS = 200, LEN = 900, ADDS = 10 };

static void on_data(weft_job *job, weft_packet *packet, void *context)
{
    (void)job;
    (void)packet;
    ++*(int *)context;
}

static void on_key(weft_job *job, weft_packet *packet, void *context)
{
    (void)job;
    memcpy(context, weft_packet_data(packet, NULL), sizeof(uint64_t));
}

/* Sends to one rank from a copy of the memory, and to one from lent memory. */
static int send_all(weft_job *job)
{
    static unsigned char memory[2][LEN];
    const void *back;

    for (int n = 0; n < PACKETS; n++) {
        CHECK(weft_send_from(job, 1, DATA, n, memory[0], LEN));
        if (CHECK(weft_returned(job, &back)) != 1 || back != memory[0]) {
            fprintf(stderr, "packet %d was not copied\n", n);
            return 1;
        }
        CHECK(weft_send_from(job, 2, DATA, n, memory[1], LEN));
        CHECK(weft_flush(job));
    }
    return 0;
}

int main(void)
{
    weft_job *job;
    int got = 0;
    uint64_t key = 0, before = 0;

    CHECK(weft_init(&job));
    CHECK(weft_handle(job, DATA, on_data, &got));
    CHECK(weft_handle(job, KEY, on_key, &key));
    int me = weft_rank(job);
    if (me == 0) {
        CHECK(weft_choose(job, 1, "transfer", "copy"));
        CHECK(weft_choose(job, 2, "mtu", "1K"));
        CHECK(weft_choose(job, 2, "transfer", "gather"));
        if (weft_choose(job, 1, "tree", "flat") != WEFT_ARGUMENT
            || weft_choose(job, 1, "transfer", "quick") != WEFT_ARGUMENT
            || weft_packet_max(job, 2) >= 1024)
            return 1;
    }
    CHECK(weft_choose(job, 2, "fetch_add", "host"));
    CHECK(weft_barrier(job));
    /* Now the transfer can still be chosen, but the length of packets cannot. */
    if (me == 0 && weft_choose(job, 2, "mtu", "2K") != WEFT_BUSY)
        return 1;
    if (me == 0 && send_all(job))
        return 1;
    while (me != 0 && got < PACKETS)
        CHECK(weft_wait(job, -1));
    if (me == 2) {
        CHECK(weft_counter(job, 5, &key));
        CHECK(weft_send(job, 1, KEY, 0, &key, sizeof key));
    }
    while (me == 1 && key == 0)
        CHECK(weft_wait(job, -1));
    for (int n = 0; me == 1 && n < ADDS; n++)
        CHECK(weft_fetch_add(job, 2, key, 1, &before));
    CHECK(weft_barrier(job));
    if (me == 1 && before != 5 + ADDS - 1)
        return 1;
    if (me == 0)
        printf("%d packets to each of two ranks\n", PACKETS);
    CHECK(weft_finish(job));
    return 0;
}
