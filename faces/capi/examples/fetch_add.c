/* Every rank draws numbers from a counter at rank 0; all are different. */
#include "check.h"
#include <string.h>

enum { KEY = 1, TICKETS = 100 };

static void on_key(weft_job *job, weft_packet *packet, void *context)
{
    (void)job;
    memcpy(context, weft_packet_data(packet, NULL), sizeof(uint64_t));
}

int main(void)
{
    weft_job *job;
    uint64_t key = 0, last = 0, value;

    CHECK(weft_init(&job));
    CHECK(weft_handle(job, KEY, on_key, &key));
    CHECK(weft_barrier(job));
    int rank = weft_rank(job), size = weft_size(job);
    if (rank == 0) {
        CHECK(weft_counter(job, 1, &key));
        for (int i = 1; i < size; i++)
            CHECK(weft_send(job, i, KEY, 0, &key, sizeof key));
    }
    while (key == 0)
        CHECK(weft_wait(job, -1));
    for (int i = 0; i < TICKETS; i++) {
        uint64_t ticket;
        CHECK(weft_fetch_add(job, 0, key, 1, &ticket));
        if (ticket <= last)
            return 1;
        last = ticket;
    }
    /* With WEFT_FETCH_ADD=kernel, from other hosts. */
    CHECK(weft_stat(job, "kernel_adds", &value));
    if (value > 0)
        printf("rank %d drew %d of them in a kernel\n", rank, (int)value);
    CHECK(weft_barrier(job));
    if (rank == 0) {
        CHECK(weft_counter_value(job, key, &value));
        printf("%d ranks drew %d tickets\n", size, (int)value - 1);
        if (value != 1 + (uint64_t)size * TICKETS)
            return 1;
        CHECK(weft_counter_end(job, key));
        if (weft_counter_end(job, key) != WEFT_ARGUMENT)
            return 1;
    }
    CHECK(weft_barrier(job));
    CHECK(weft_finish(job));
    return 0;
}
