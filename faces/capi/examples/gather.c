/* Rank 0 sends memory to all others without a copy; returned memory is used again. Each rank
 * adds up the received numbers. */
#include "check.h"
#include <string.h>

enum { NUMBERS = 1, PARTS = 8, PACKETS = 400, WORDS = 100 };

struct sum {
    uint64_t value;
    uint32_t packets;
};

static uint64_t parts[PARTS][WORDS];

static void add(weft_job *job, weft_packet *packet, void *context)
{
    struct sum *sum = context;
    size_t len;
    const void *data = weft_packet_data(packet, &len);
    uint64_t words[WORDS];

    (void)job;
    memcpy(words, data, len);
    for (size_t i = 0; i < len / sizeof words[0]; i++)
        sum->value += words[i];
    sum->packets++;
}

/* A free part: one not used yet, or one that was returned for every rank. */
static uint64_t *next_part(weft_job *job, uint32_t packet, int *lent)
{
    uint32_t at = packet % PARTS;
    const void *back;

    while (lent[at] > 0) {
        while (CHECK(weft_returned(job, &back)))
            lent[((const uint64_t *)back - parts[0]) / WORDS]--;
        if (lent[at] > 0)
            CHECK(weft_wait(job, 1000));
    }
    return parts[at];
}

int main(void)
{
    weft_job *job;
    struct sum sum = {0, 0};
    int lent[PARTS] = {0};

    CHECK(weft_init(&job));
    CHECK(weft_handle(job, NUMBERS, add, &sum));
    CHECK(weft_barrier(job));
    int me = weft_rank(job), size = weft_size(job);
    uint64_t expected = 0;
    for (uint32_t n = 0; n < PACKETS; n++) {
        expected += (uint64_t)n * WORDS;
        if (me != 0)
            continue;
        uint64_t *part = next_part(job, n, lent);
        for (int i = 0; i < WORDS; i++)
            part[i] = n;
        for (int to = 1; to < size; to++, lent[n % PARTS]++)
            CHECK(weft_send_from(job, to, NUMBERS, n, part, sizeof parts[0]));
    }
    CHECK(weft_flush(job));
    while (me != 0 && sum.packets < PACKETS)
        CHECK(weft_wait(job, -1));
    if (me != 0 && sum.value != expected) {
        fprintf(stderr, "rank %d: another sum came than was sent\n", me);
        return 1;
    }
    CHECK(weft_barrier(job));
    if (me == 0)
        printf("%d packets to each of %d ranks, from memory lent\n", PACKETS, size - 1);
    CHECK(weft_finish(job));
    return 0;
}
