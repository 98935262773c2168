/* Rank 0 sends packets to all others over each tree; some are kept and read later. */
#include "check.h"
#include <string.h>

enum { HANDLER = 1, PACKETS = 100, KEPT = 10 };

struct got {
    int count;
    weft_packet *kept[KEPT];
};

static void on_packet(weft_job *job, weft_packet *packet, void *context)
{
    struct got *got = context;
    size_t len;
    const unsigned char *data = weft_packet_data(packet, &len);

    (void)job;
    if (weft_packet_argument(packet) != (uint32_t)got->count || len != 1000
        || data[0] != (unsigned char)got->count || data[999] != data[0]) {
        fprintf(stderr, "packet %d is wrong\n", got->count);
        exit(1);
    }
    if (got->count < KEPT)
        CHECK(weft_packet_keep(packet, &got->kept[got->count]));
    got->count++;
}

/* The forwarder over a tree. If it shall be the agents, members join them while packets go on:
 * this waits for them, for a short time. */
static const char *forwarder(weft_job *job, weft_group *group, int tree)
{
    const char *chosen = getenv("WEFT_MULTICAST");

    for (int n = 0; chosen && !strcmp(chosen, "agent") && n < 10000; n++) {
        if (CHECK(weft_forwarded_by(group, tree)) == WEFT_BY_AGENT)
            return "agents";
        CHECK(weft_wait(job, 1000));
    }
    return CHECK(weft_forwarded_by(group, tree)) == WEFT_BY_AGENT ? "agents" : "ranks";
}

int main(void)
{
    weft_job *job;
    weft_group *group;
    struct got got = { 0 };

    CHECK(weft_init(&job));
    CHECK(weft_handle(job, HANDLER, on_packet, &got));
    int size = weft_size(job), *ranks = malloc(size * sizeof *ranks);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    CHECK(weft_group_make(job, 1, ranks, size, &group));
    if (weft_rank(job) == 0) {
        unsigned char data[1000];
        const char *by = "";
        for (int i = 0; i < PACKETS; i++) {
            memset(data, i, sizeof data);
            CHECK(weft_multicast(group, i % 4, HANDLER, i, data, sizeof data));
            if (i == PACKETS / 2)
                by = forwarder(job, group, i % 4);
        }
        int slow, count = CHECK(weft_group_slow(group, &slow, 1));
        if (count > 0)
            fprintf(stderr, "%d members are slow, rank %d is one\n", count, slow);
        printf("%d packets to %d ranks, forwarded by %s\n", PACKETS, size - 1, by);
    } else {
        while (got.count < PACKETS)
            CHECK(weft_wait(job, -1));
        for (int i = 0; i < KEPT; i++) {
            const unsigned char *data = weft_packet_data(got.kept[i], NULL);
            if (data[500] != i)
                return 1;
            CHECK(weft_packet_release(got.kept[i]));
        }
    }
    CHECK(weft_barrier(job));
    CHECK(weft_group_free(group));
    free(ranks);
    CHECK(weft_finish(job));
    return 0;
}
