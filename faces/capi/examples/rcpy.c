/* Rank 1 exports memory, weft's and then its own, and rank 0 copies to it. */
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

/* Rank 1: exports memory, waits until rank 0 has copied, and checks the bytes. False: they
 * differ. */
static int receive(weft_job *job, unsigned char *own, int *done)
{
    uint64_t key;
    unsigned char *memory = own;
    *done = 0;
    if (own == NULL) {
        void *made;
        CHECK(weft_export_new(job, LEN, &made, &key));
        memory = made;
    } else {
        CHECK(weft_export(job, own, LEN, &key));
    }
    CHECK(weft_send(job, 0, KEY, 0, &key, sizeof key));
    while (*done < ROUNDS)
        CHECK(weft_wait(job, -1));
    for (int i = 0; i < LEN; i++)
        if (memory[i] != ROUNDS) {
            fprintf(stderr, "byte %d is %d\n", i, memory[i]);
            return 0;
        }
    int wrong = weft_unexport(job, key ^ 1);
    CHECK(weft_unexport(job, key));
    return wrong == WEFT_ARGUMENT;
}

/* Rank 0: copies a few times. */
static int copy(weft_job *job, unsigned char *data, uint64_t *key)
{
    while (*key == 0)
        CHECK(weft_wait(job, -1));
    int wrong = weft_rcpy(job, 1, *key, LEN - 1, data, 2);
    for (int round = 1; round <= ROUNDS; round++) {
        memset(data, round, LEN);
        CHECK(weft_rcpy(job, 1, *key, 0, data, LEN));
        if (round == ROUNDS)
            *key = 0;
        CHECK(weft_send(job, 1, DONE, round, NULL, 0));
    }
    return wrong == WEFT_REFUSED;
}

int main(void)
{
    weft_job *job;
    uint64_t key = 0;
    int done = 0, right = 1;

    CHECK(weft_init(&job));
    CHECK(weft_handle(job, KEY, on_key, &key));
    CHECK(weft_handle(job, DONE, on_done, &done));
    CHECK(weft_barrier(job));
    unsigned char *memory = malloc(LEN);
    if (weft_rank(job) == 1) {
        right = receive(job, NULL, &done) && receive(job, memory, &done);
        if (right)
            printf("%d bytes are there\n", LEN);
    } else if (weft_rank(job) == 0) {
        right = copy(job, memory, &key) && copy(job, memory, &key);
        /* The first use of each page fetches its translation, later ones find it. */
        uint64_t hits, misses, pages = 2 * LEN / PAGE;
        CHECK(weft_stat(job, "rcpy_hits", &hits));
        CHECK(weft_stat(job, "rcpy_misses", &misses));
        printf("%d misses, %d hits\n", (int)misses, (int)hits);
        right = right && misses >= pages && misses <= pages + 2 && hits + misses >= ROUNDS * pages
                && weft_stat(job, "no_such", &hits) == WEFT_ARGUMENT;
    }
    CHECK(weft_barrier(job));
    free(memory);
    CHECK(weft_finish(job));
    return !right;
}
