/* Packets in both directions between ranks 0 and 1; rank 0 prints the one-way time. */
#include "check.h"
#include <string.h>

enum { HANDLER = 1, ROUNDS = 1000 };

static void on_packet(weft_job *job, weft_packet *packet, void *context)
{
    int *got = context;
    size_t len;
    const void *data = weft_packet_data(packet, &len);

    ++*got;
    if (weft_rank(job) == 1)
        CHECK(weft_send(job, weft_packet_source(packet), HANDLER, weft_packet_argument(packet),
                        data, len));
}

int main(void)
{
    weft_job *job;
    int got = 0;
    char data[16] = "weft";

    CHECK(weft_init(&job));
    CHECK(weft_handle(job, HANDLER, on_packet, &got));
    CHECK(weft_barrier(job));
    if (weft_rank(job) == 0) {
        double start = now();
        for (int i = 0; i < ROUNDS; i++) {
            CHECK(weft_send(job, 1, HANDLER, i, data, sizeof data));
            while (got <= i)
                CHECK(weft_wait(job, -1));
        }
        printf("%d rounds, %.2f us one way\n", ROUNDS, (now() - start) / ROUNDS / 2 * 1e6);
    } else if (weft_rank(job) == 1) {
        while (got < ROUNDS)
            CHECK(weft_wait(job, -1));
    }
    CHECK(weft_barrier(job));
    CHECK(weft_finish(job));
    return 0;
}
