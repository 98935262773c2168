/* Rank 1 exports memory, rank 0 copies to it. */
#include "check.h"
#include <string.h>

enum { KEY = 1, DONE = 2, LEN = 1 << 20, PAGE = 64 << 10, ROUNDS = 4 };

static void on_key(weft_job *job, weft_packet *packet, void *context)
{
    (void)job;
    memcpy(context, weft_packet_data(packet, NULL), sizeof(uint64_t));
}

static void on_done(weft_job *job, weft_packet *packet, void *context)
{
    (void)job;
    *(int *)context = weft_packet_argument(packet);
}

int main(void)
{
    weft_job *job;
    uint64_t key = 0;
    int done = 0;

    CHECK(weft_init(&job));
    CHECK(weft_handle(job, KEY, on_key, &key));
    CHECK(weft_handle(job, DONE, on_done, &done));
    CHECK(weft_barrier(job));
    unsigned char *memory = malloc(LEN);
    if (weft_rank(job) == 1) {
        CHECK(weft_export(job, memory, LEN, &key));
        CHECK(weft_send(job, 0, KEY, 0, &key, sizeof key));
        while (done < ROUNDS)
            CHECK(weft_wait(job, -1));
        if (weft_unexport(job, key ^ 1) != WEFT_ARGUMENT)
            return 1;
        CHECK(weft_unexport(job, key));
        for (int i = 0; i < LEN; i++)
            if (memory[i] != ROUNDS) {
                fprintf(stderr, "byte %d is %d\n", i, memory[i]);
                return 1;
            }
        printf("%d bytes are there\n", LEN);
    } else if (weft_rank(job) == 0) {
        while (key == 0)
            CHECK(weft_wait(job, -1));
        for (int round = 1; round <= ROUNDS; round++) {
            memset(memory, round, LEN);
            CHECK(weft_rcpy(job, 1, key, 0, memory, LEN));
            CHECK(weft_send(job, 1, DONE, round, NULL, 0));
        }
        /* The first use of each page brings its translation, the others find it. */
        uint64_t hits, misses;
        CHECK(weft_stat(job, "rcpy_hits", &hits));
        CHECK(weft_stat(job, "rcpy_misses", &misses));
        printf("%d misses, %d hits\n", (int)misses, (int)hits);
        if (misses < LEN / PAGE || misses > LEN / PAGE + 1 || hits + misses < ROUNDS * LEN / PAGE
            || weft_stat(job, "no_such", &hits) != WEFT_ARGUMENT)
            return 1;
        if (weft_rcpy(job, 1, key, LEN - 1, memory, 2) != WEFT_REFUSED)
            return 1;
    }
    CHECK(weft_barrier(job));
    free(memory);
    CHECK(weft_finish(job));
    return 0;
}
