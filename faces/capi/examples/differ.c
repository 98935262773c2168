/* Ranks that call collective operations with different arguments: each of them gets an error that
 * names two ranks and the difference. */
#include "check.h"
#include <string.h>

static void expect(int code, int wanted, const char *call)
{
    if (code != wanted) {
        fprintf(stderr, "%s: %d, and not %d: %s\n", call, code, wanted, weft_last_error());
        exit(1);
    }
    if (code != WEFT_OK)
        printf("%s: %s\n", call, weft_last_error());
    fflush(stdout);
}

int main(void)
{
    weft_job *job;
    weft_comm *all, *some;
    double values[4] = {1, 2, 3, 4}, sums[4];
    char bytes[32] = {0};

    CHECK(weft_init(&job));
    CHECK(weft_comm_all(job, &all));
    int rank = weft_rank(job), size = weft_size(job), ranks[64];
    if (size < 2 || size > 64) {
        fprintf(stderr, "for 2 to 64 ranks: weft run -n 3 differ\n");
        return 1;
    }

    /* Rank 1 adds integers, the others add numbers of another type but of the same size. */
    int type = rank == 1 ? WEFT_INT64 : WEFT_DOUBLE;
    expect(weft_comm_allreduce(all, values, sums, 4, type, WEFT_SUM), WEFT_ARGUMENT, "allreduce");

    /* The root's 16 bytes are less than rank 1 has room for, and more than the others have. */
    size_t len = rank == 0 ? 16 : rank == 1 ? 32 : 8;
    int wanted = rank == 0 ? WEFT_OK : rank == 1 ? WEFT_ARGUMENT : WEFT_TOO_LONG;
    expect(weft_comm_broadcast(all, 0, bytes, len), wanted, "broadcast");

    /* Rank 1 lists the ranks in another order. */
    for (int i = 0; i < size; i++)
        ranks[i] = rank == 1 ? size - 1 - i : i;
    CHECK(weft_comm_make(job, 1, ranks, (size_t)size, &some));
    expect(weft_comm_barrier(some), WEFT_ARGUMENT, "barrier");

    CHECK(weft_barrier(job));
    if (rank == 0)
        printf("%d ranks: each has learned what differs\n", size);
    CHECK(weft_finish(job));
    return 0;
}
