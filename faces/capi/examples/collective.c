/* Collective operations: of all ranks, and of every other one; that wait, and with requests. */
#include "check.h"
#include <string.h>

enum { LEN = 100000, PART = 64 };

static int fail(const char *what)
{
    fprintf(stderr, "%s: not the right result\n", what);
    return 1;
}

/* Fills a message from one rank to another: `len` bytes that depend on both. */
static void fill(unsigned char *data, size_t len, int from, int to)
{
    for (size_t i = 0; i < len; i++)
        data[i] = (unsigned char)(from * 31 + to * 7 + (int)i);
}

static int differs(const unsigned char *data, size_t len, int from, int to)
{
    unsigned char wanted[PART];
    fill(wanted, len, from, to);
    return memcmp(data, wanted, len) != 0;
}

static int reductions(weft_comm *comm, int me, int size)
{
    double values[2] = {me + 1, -me}, results[2] = {0, 0};
    int32_t number = me + 1;
    uint8_t bits = (uint8_t)(1 << me % 8), all = (uint8_t)((1 << size) - 1);

    CHECK(weft_comm_allreduce(comm, values, results, 2, WEFT_DOUBLE, WEFT_SUM));
    if (results[0] != size * (size + 1) / 2 || results[1] != -size * (size - 1) / 2)
        return fail("sum");
    /* The result may take the place of the values. */
    CHECK(weft_comm_allreduce(comm, &bits, &bits, 1, WEFT_UINT8, WEFT_OR));
    if (bits != all)
        return fail("bits");
    CHECK(weft_comm_tree(comm, WEFT_TREE_CHAIN));
    int32_t most = -1;
    CHECK(weft_comm_reduce(comm, size - 1, &number, &most, 1, WEFT_INT32, WEFT_MAX));
    if (most != (me == size - 1 ? size : -1))
        return fail("maximum");
    CHECK(weft_comm_tree(comm, WEFT_TREE_DEFAULT));
    if (weft_comm_allreduce(comm, values, results, 2, WEFT_DOUBLE, WEFT_XOR) != WEFT_ARGUMENT ||
        weft_comm_reduce(comm, size, &number, &most, 1, WEFT_INT32, WEFT_MAX) != WEFT_ARGUMENT ||
        weft_comm_reduce(comm, 0, &number, &most, 1, 15, WEFT_MAX) != WEFT_ARGUMENT ||
        weft_comm_reduce(comm, 0, &number, &most, 1, WEFT_INT32, 8) != WEFT_ARGUMENT ||
        weft_comm_reduce(comm, me, &number, NULL, 1, WEFT_INT32, WEFT_MAX) != WEFT_ARGUMENT)
        return fail("wrong arguments");
    return 0;
}

/* Rank r gets a block of r values of the sum; the average of 16-bit numbers. */
static int blocks(weft_comm *comm, int me, int size)
{
    size_t all = (size_t)size * (size - 1) / 2, first = (size_t)me * (me - 1) / 2;
    size_t *counts = malloc((size_t)size * sizeof *counts);
    float *values = malloc((all + 1) * sizeof *values), *own = malloc((size_t)size * sizeof *own);
    /* 1.0 and 3.0 as bfloat16; all ranks have the same. */
    uint16_t halves[2] = {0x3f80, 0x4040}, means[2] = {0, 0};

    if (counts == NULL || values == NULL || own == NULL)
        return fail("memory");
    for (int rank = 0; rank < size; rank++)
        counts[rank] = (size_t)rank;
    for (size_t i = 0; i < all; i++)
        values[i] = (float)(i * (size_t)(me + 1));
    CHECK(weft_comm_reduce_scatter(comm, values, own, counts, WEFT_FLOAT, WEFT_SUM));
    for (int i = 0; i < me; i++)
        if (own[i] != (float)((first + (size_t)i) * (size_t)(size * (size + 1) / 2)))
            return fail("block");
    CHECK(weft_comm_allreduce(comm, halves, means, 2, WEFT_BFLOAT16, WEFT_AVERAGE));
    if (means[0] != halves[0] || means[1] != halves[1])
        return fail("average");
    if (weft_comm_allreduce(comm, counts, counts, 1, WEFT_UINT64, WEFT_AVERAGE) != WEFT_ARGUMENT)
        return fail("average of integers");
    free(counts);
    free(values);
    free(own);
    return 0;
}

/* Parts of different lengths: of rank r to rank t 1 + (r + t) % PART bytes. */
static int parts(weft_comm *comm, int me, int size)
{
    unsigned char *out = malloc((size_t)size * PART), *in = malloc((size_t)size * PART);
    size_t *lens = malloc((size_t)size * sizeof *lens), *got = malloc((size_t)size * sizeof *got);
    unsigned char own[PART];
    size_t own_len = 0;

    for (int to = 0; to < size; to++) {
        lens[to] = 1 + (size_t)(me + to) % PART;
        fill(out + to * PART, lens[to], me, to);
    }
    CHECK(weft_comm_alltoall(comm, out, lens, in, got, PART));
    for (int from = 0; from < size; from++)
        if (got[from] != 1 + (size_t)(from + me) % PART ||
            differs(in + from * PART, got[from], from, me))
            return fail("alltoall");
    /* Rank 0 has a part for each, which they send back, and then to all. */
    CHECK(weft_comm_scatter(comm, 0, out, PART, lens, own, sizeof own, &own_len));
    if (own_len != 1 + (size_t)me % PART || differs(own, own_len, 0, me))
        return fail("scatter");
    memset(in, 0, (size_t)size * PART);
    CHECK(weft_comm_gather(comm, 0, own, own_len, in, PART, got));
    for (int from = 0; me == 0 && from < size; from++)
        if (got[from] != lens[from] || differs(in + from * PART, got[from], 0, from))
            return fail("gather");
    CHECK(weft_comm_allgather(comm, own, own_len, in, PART, got));
    for (int from = 0; from < size; from++)
        if (got[from] != 1 + (size_t)from % PART || differs(in + from * PART, got[from], 0, from))
            return fail("allgather");
    /* One byte of room is too little for all but rank 0's. */
    int code = weft_comm_allgather(comm, own, own_len, in, 1, got);
    if (code != (size == 1 ? WEFT_OK : WEFT_TOO_LONG) || got[size - 1] != 1 + (size_t)(size - 1))
        return fail("allgather without room");
    free(out);
    free(in);
    free(lens);
    free(got);
    return 0;
}

/* Several at once, beside a message, waited for in another order than they were called in. */
static int requests(weft_job *job, weft_comm *comm, int me, int size)
{
    unsigned char *data = malloc(LEN);
    int from = (me + size - 1) % size, token = me, received = -1;
    int64_t sum = me, total = 0;
    weft_request *all[5];
    weft_status statuses[5];

    memset(data, me == 0 ? 42 : 0, LEN);
    CHECK(weft_msg_irecv(job, weft_comm_job_rank(comm, from), 3, 0, &received, sizeof received,
                         &all[4]));
    CHECK(weft_comm_ibroadcast(comm, 0, data, LEN, &all[3]));
    CHECK(weft_comm_iallreduce(comm, &sum, &total, 1, WEFT_INT64, WEFT_SUM, &all[2]));
    /* The values were copied. */
    sum = -1;
    CHECK(weft_comm_ibarrier(comm, &all[1]));
    CHECK(weft_msg_isend(job, weft_comm_job_rank(comm, (me + 1) % size), 3, &token, sizeof token,
                         &all[0]));
    CHECK(weft_cancel(all[1]));
    CHECK(weft_wait_all(all, 5, statuses));
    if (total != size * (size - 1) / 2 || received != from || data[0] != 42 ||
        data[LEN - 1] != 42 || statuses[3].len != LEN || statuses[1].code != WEFT_OK)
        return fail("requests");

    weft_set *set;
    void *context = NULL;
    CHECK(weft_set_make(job, &set));
    CHECK(weft_comm_ibarrier(comm, &all[0]));
    CHECK(weft_set_add(set, all[0], data));
    if (CHECK(weft_set_wait(set, -1, &context, NULL)) != 1 || context != data)
        return fail("a set");
    /* A result that nobody waits for. */
    CHECK(weft_comm_iallreduce(comm, &sum, &total, 1, WEFT_INT64, WEFT_SUM, &all[0]));
    CHECK(weft_set_add(set, all[0], data));
    CHECK(weft_set_free(set));
    free(data);
    return 0;
}

/* Every other rank of the job, in reverse order. */
static int some(weft_job *job, int me, int size)
{
    int ranks[64], count = 0, code;
    weft_comm *comm = NULL;

    for (int rank = size - 1; rank >= 0; rank--)
        if (rank % 2 == 0)
            ranks[count++] = rank;
    code = weft_comm_make(job, 7, ranks, (size_t)count, &comm);
    if (me % 2 == 1)
        return code == WEFT_ARGUMENT ? 0 : fail("a communicator of others");
    CHECK(code);
    if (weft_comm_size(comm) != count || ranks[weft_comm_rank(comm)] != me ||
        weft_comm_job_rank(comm, 0) != ranks[0] ||
        weft_comm_job_rank(comm, count) != WEFT_ARGUMENT)
        return fail("ranks of a communicator");
    weft_comm *other;
    if (weft_comm_make(job, 7, ranks, (size_t)count, &other) != WEFT_ARGUMENT ||
        weft_comm_make(job, 0, ranks, (size_t)count, &other) != WEFT_ARGUMENT)
        return fail("an id in use");
    int bad = reductions(comm, weft_comm_rank(comm), count) ||
              blocks(comm, weft_comm_rank(comm), count) ||
              parts(comm, weft_comm_rank(comm), count) ||
              requests(job, comm, weft_comm_rank(comm), count);
    CHECK(weft_comm_barrier(comm));
    CHECK(weft_comm_free(comm));
    return bad;
}

int main(void)
{
    weft_job *job;
    weft_comm *all;

    CHECK(weft_init(&job));
    CHECK(weft_comm_all(job, &all));
    int me = weft_comm_rank(all), size = weft_comm_size(all);
    int bad = some(job, me, size) || reductions(all, me, size) || blocks(all, me, size) ||
              parts(all, me, size) || requests(job, all, me, size);
    CHECK(weft_comm_barrier(all));
    CHECK(weft_barrier(job));
    if (me == 0 && !bad)
        printf("%d ranks: all results are right\n", size);
    CHECK(weft_finish(job));
    return bad;
}
