/* Messages with tags: any length, any source, probes, requests, a set. Each rank sends to the
 * next and receives from the one before; rank 0 receives parts from all others as they arrive. */
#include "check.h"
#include <string.h>

enum { RING = 1, PART = 2, LONG = 1 << 20, PARTS = 100 };

static int fail(const char *what)
{
    fprintf(stderr, "%s is not as sent\n", what);
    return 1;
}

/* A long message around the ring, with requests. */
static int ring(weft_job *job, int me, int size)
{
    unsigned char *out = malloc(LONG), *in = malloc(LONG);
    weft_request *requests[3] = {NULL, NULL, NULL};
    weft_status statuses[3];
    int before = (me + size - 1) % size;

    memset(out, me + 1, LONG);
    CHECK(weft_msg_irecv(job, before, RING, 0, in, LONG, &requests[0]));
    CHECK(weft_msg_issend(job, (me + 1) % size, RING, out, LONG, &requests[2]));
    /* A request may stand in a list once. */
    requests[1] = requests[0];
    if (weft_wait_all(requests, 3, statuses) != WEFT_ARGUMENT)
        return fail("a request that stands twice in a list");
    requests[1] = NULL;
    CHECK(weft_wait_all(requests, 3, statuses));
    if (requests[0] || requests[2] || statuses[0].source != before || statuses[0].tag != RING ||
        statuses[0].len != LONG || in[0] != before + 1 || in[LONG - 1] != before + 1)
        return fail("the message of the rank before");
    free(out);
    free(in);
    return 0;
}

/* Parts of all other ranks, in any order, by a set: each context is the destination of a part. */
static int parts(weft_job *job, int me, int size)
{
    static int into[PARTS];
    int sum = 0, n = PARTS / (size - 1) * (size - 1);

    if (me != 0) {
        for (int i = 0; i < PARTS / (size - 1); i++) {
            int part = me * 1000 + i;
            CHECK(weft_msg_send(job, 0, PART | (uint32_t)i << 8, &part, sizeof part));
        }
        return 0;
    }
    weft_set *set;
    CHECK(weft_set_make(job, &set));
    for (int i = 0; i < n; i++) {
        weft_request *request;
        /* Any rank, and any number in the upper bits of the tag. */
        CHECK(weft_msg_irecv(job, WEFT_ANY, PART, ~0xffu, &into[i], sizeof into[i], &request));
        CHECK(weft_set_add(set, request, &into[i]));
        /* The set owns it now: only weft_set_wait reports its end. */
        if (weft_test(&request, NULL) != WEFT_ARGUMENT ||
            weft_wait_all(&request, 1, NULL) != WEFT_ARGUMENT)
            return fail("a request of a set");
    }
    for (int i = 0; i < n; i++) {
        void *context;
        weft_status status;
        if (CHECK(weft_set_wait(set, -1, &context, &status)) != 1 || status.code != WEFT_OK)
            return fail("a part");
        int part = *(int *)context;
        if (part != status.source * 1000 + (int)(status.tag >> 8))
            return fail("the part of a rank");
        sum += part % 1000;
    }
    if (weft_set_wait(set, 0, NULL, NULL) != 0)
        return fail("an empty set");
    CHECK(weft_set_free(set));
    int each = PARTS / (size - 1);
    return sum == (size - 1) * each * (each - 1) / 2 ? 0 : fail("the sum of the parts");
}

/* A message whose length is probed first; one that is too long; a cancelled receive. */
static int lengths(weft_job *job, int me, int size)
{
    weft_status status;
    char text[64], shorter[4];

    if (me == size - 1) {
        CHECK(weft_msg_send(job, 0, 7, "a message", 10));
        CHECK(weft_msg_send(job, 0, 8, "another one", 12));
    }
    if (me != 0)
        return 0;
    weft_message *message = NULL;
    while (!CHECK(weft_msg_claim(job, WEFT_ANY, 7, 0, &message, &status)))
        ;
    if (status.len != 10 || status.source != size - 1)
        return fail("the length");
    if (CHECK(weft_msg_probe(job, WEFT_ANY, 7, 0, NULL)) != 0)
        return fail("a message that was claimed");
    CHECK(weft_msg_take(message, text, sizeof text, NULL));
    if (strcmp(text, "a message"))
        return fail("the message");
    if (weft_msg_recv(job, size - 1, 8, 0, shorter, sizeof shorter, &status) != WEFT_TOO_LONG ||
        status.len != 12 || memcmp(shorter, "anot", 4))
        return fail("the first part");
    weft_request *request;
    CHECK(weft_msg_irecv(job, WEFT_ANY, 99, 0, text, sizeof text, &request));
    if (CHECK(weft_test(&request, NULL)) != 0)
        return fail("a message that nobody sent");
    CHECK(weft_cancel(request));
    int code;
    while ((code = weft_test(&request, &status)) == 0)
        ;
    return code == WEFT_CANCELLED && !request ? 0 : fail("a receive that was taken back");
}

int main(void)
{
    weft_job *job;

    CHECK(weft_init(&job));
    int me = weft_rank(job), size = weft_size(job);
    if (size < 2) {
        fprintf(stderr, "two ranks and more: weft run -n 2 %s\n", "./message");
        return 1;
    }
    int bad = ring(job, me, size) || parts(job, me, size) || lengths(job, me, size);
    CHECK(weft_barrier(job));
    if (me == 0 && !bad)
        printf("%d ranks: all messages came as they were sent\n", size);
    CHECK(weft_finish(job));
    return bad;
}
