/* Rank 2 keeps its multicast packets; its parent in the chain, rank 1, reports it as slow, and
 * then makes it go on. Reports come after WEFT_WARN_AFTER_MS. */
#include "check.h"

enum { DATA = 1, GO = 2, PACKETS = 100 };

struct got {
    int keeps, count, kept_count, go;
    weft_packet *kept[PACKETS];
};

static void on_data(weft_job *job, weft_packet *packet, void *context)
{
    struct got *got = context;

    (void)job;
    got->count++;
    if (got->keeps && !got->go)
        CHECK(weft_packet_keep(packet, &got->kept[got->kept_count++]));
}

static void on_go(weft_job *job, weft_packet *packet, void *context)
{
    (void)job;
    (void)packet;
    ((struct got *)context)->go = 1;
}

int main(void)
{
    weft_job *job;
    weft_group *group;
    struct got got = { 0 };
    const int ranks[] = { 0, 1, 2 };
    uint64_t named;
    int slow = -1;

    CHECK(weft_init(&job));
    CHECK(weft_handle(job, DATA, on_data, &got));
    CHECK(weft_handle(job, GO, on_go, &got));
    CHECK(weft_group_make(job, 1, ranks, 3, &group));
    CHECK(weft_barrier(job));
    int me = weft_rank(job);
    got.keeps = me == 2;
    for (int i = 0; me == 0 && i < PACKETS; i++)
        CHECK(weft_multicast(group, WEFT_TREE_CHAIN, DATA, i, "x", 1));
    if (me == 1) {
        while (CHECK(weft_group_slow(group, &slow, 1)) == 0)
            CHECK(weft_wait(job, 10000));
        CHECK(weft_stat(job, "slow_members", &named));
        printf("rank %d is slow\n", slow);
        if (slow != 2 || named == 0)
            return 1;
        CHECK(weft_send(job, 2, GO, 0, NULL, 0));
    }
    while (me == 2 && !got.go)
        CHECK(weft_wait(job, -1));
    for (int i = 0; i < got.kept_count; i++)
        CHECK(weft_packet_release(got.kept[i]));
    while (me != 0 && got.count < PACKETS)
        CHECK(weft_wait(job, -1));
    CHECK(weft_barrier(job));
    CHECK(weft_group_free(group));
    CHECK(weft_finish(job));
    return 0;
}
