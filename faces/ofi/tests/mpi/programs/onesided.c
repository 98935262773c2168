/* One-sided operations: put, get, accumulate, fetch and compare, under fence, lock and PSCW.
   onesided [ROUNDS [threads]]: with MPI_THREAD_MULTIPLE */
#include "check.h"

/* Post, start, complete and wait: each rank writes to the next and reads from it, and no other
 * takes part. */
static void neighbours(MPI_Win win, long *base, int n, int round)
{
    static long out[5000], in[5000];
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Group world, next, last;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &to, &next);
    MPI_Group_incl(world, 1, &from, &last);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) {
        base[i] = base[n + i] = rank + i;
        out[i] = rank * 1000003L + round + i;
    }
    MPI_Win_post(last, 0, win);
    MPI_Win_start(next, 0, win);
    MPI_Put(out, n, MPI_LONG, to, 0, n, MPI_LONG, win);
    MPI_Get(in, n, MPI_LONG, to, n, n, MPI_LONG, win);
    MPI_Win_complete(win);
    for (int i = 0; i < n; i++)
        CHECK(in[i] == to + i);
    MPI_Win_wait(win);
    for (int i = 0; i < n; i++)
        CHECK(base[i] == from * 1000003L + round + i);
    MPI_Group_free(&world);
    MPI_Group_free(&next);
    MPI_Group_free(&last);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    enum { N = 5000 };
    int rank, size, rounds = argc > 1 ? atoi(argv[1]) : 20;
    int threads = argc > 2 && strcmp(argv[2], "threads") == 0, level;
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    CHECK(!threads || level == MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    long *base;
    MPI_Win win;
    MPI_Win_allocate(2 * N * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &base,
                     &win);
    static long out[N], in[N];
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < N; i++) {
            out[i] = rank * 1000000L + round * 10000 + i;
            base[i] = base[N + i] = 0;
        }
        MPI_Win_fence(0, win);
        MPI_Put(out, N, MPI_LONG, to, 0, N, MPI_LONG, win);
        MPI_Win_fence(0, win);
        for (int i = 0; i < N; i++)
            CHECK(base[i] == from * 1000000L + round * 10000 + i);
        MPI_Get(in, N, MPI_LONG, from, 0, N, MPI_LONG, win);
        MPI_Win_fence(0, win);
        int before = (from + size - 1) % size;
        for (int i = 0; i < N; i++)
            CHECK(in[i] == before * 1000000L + round * 10000 + i);
        /* All ranks add to the second half of rank 0. */
        long ones[16], old;
        for (int i = 0; i < 16; i++)
            ones[i] = 1 + i;
        MPI_Win_fence(0, win);
        MPI_Accumulate(ones, 16, MPI_LONG, 0, N, 16, MPI_LONG, MPI_SUM, win);
        MPI_Win_fence(0, win);
        if (rank == 0)
            for (int i = 0; i < 16; i++)
                CHECK(base[N + i] == (long)size * (1 + i));
        MPI_Barrier(MPI_COMM_WORLD);
        /* A counter from which all ranks draw numbers: each number is drawn once. */
        long one = 1, sum = 0;
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        for (int i = 0; i < 10; i++) {
            MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, N + 20, MPI_SUM, win);
            MPI_Win_flush(0, win);
            sum += old;
        }
        MPI_Win_unlock(0, win);
        long all = 0, n = 10L * size;
        MPI_Allreduce(&sum, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        CHECK(all == n * (n - 1) / 2);
        /* Exactly one rank wins. */
        long mine = rank + 1, zero = 0, won = 0, winners = 0;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Compare_and_swap(&mine, &zero, &old, MPI_LONG, 0, N + 30, win);
        MPI_Win_unlock(0, win);
        won = old == 0;
        MPI_Allreduce(&won, &winners, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        CHECK(winners == 1);
        neighbours(win, base, N, round);
    }
    MPI_Win_free(&win);
    passed("onesided");
    MPI_Finalize();
    return 0;
}
