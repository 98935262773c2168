/* Ranks find each other by the names of a cluster, and are told when one goes.
 *
 * Every rank claims solver:RANK, and rank 0 asks for the solvers one after another. */
#include <string.h>

#include "check.h"

static void last_rank_withdraws(weft_job *job, weft_names *names, uint64_t claim)
{
    weft_names_watch *watch;
    weft_names_event event;
    const int last = weft_size(job) - 1;
    char name[32];
    snprintf(name, sizeof name, "solver:%d", last);
    CHECK(weft_names_watch_make(names, name, 0, -1, &watch));
    CHECK(weft_names_watch_next(watch, 60000000, &event));
    if (event.kind != WEFT_NAMES_PUBLISHED || strcmp(event.owner.name, name) != 0)
        exit(2);
    CHECK(weft_names_watch_next(watch, 60000000, &event));
    if (event.kind != WEFT_NAMES_ALL || event.number != 2)
        exit(3);
    CHECK(weft_barrier(job));
    if (weft_rank(job) == last)
        CHECK(weft_names_withdraw(names, claim));
    if (CHECK(weft_names_watch_next(watch, 60000000, &event)) != 1)
        exit(4);
    if (event.kind != WEFT_NAMES_WITHDRAWN || strstr(event.cause, "withdrawn") == NULL)
        exit(5);
    if (CHECK(weft_names_watch_next(watch, 0, &event)) != 0)
        exit(6);
    CHECK(weft_names_watch_free(watch));
}

static void ask_all(weft_names *names, int ranks)
{
    weft_names_event event;
    for (int rank = 1; rank < ranks; rank++) {
        char name[32];
        snprintf(name, sizeof name, "solver:%d", rank);
        CHECK(weft_names_send(names, name, 0, name, strlen(name) + 1));
    }
    CHECK(weft_names_send(names, "solver", 1, "all", 4));
    uint64_t number = 0;
    CHECK(weft_names_sent(names, &number));
    if (number == 0)
        exit(18);
    /* Rank 0 is a solver as well. */
    if (CHECK(weft_names_next(names, 60000000, &event)) != 1 || event.kind != WEFT_NAMES_MESSAGE)
        exit(7);
    if (strcmp(event.data, "all") != 0 || event.len != 4 || !event.owner.here)
        exit(8);
    if (weft_names_send(names, "solver:1000", 0, "x", 1) != WEFT_REFUSED)
        exit(9);
}

static void be_asked(weft_names *names, const char *name)
{
    weft_names_event event;
    int named = 0, all = 0;
    while (named + all < 2) {
        if (CHECK(weft_names_next(names, 60000000, &event)) != 1)
            exit(10);
        named += strcmp(event.data, name) == 0;
        all += strcmp(event.data, "all") == 0;
    }
    if (named != 1 || all != 1)
        exit(11);
}

int main(void)
{
    weft_job *job;
    weft_names *names;
    weft_owner owner, owners[2];
    uint64_t claim;
    char name[32];
    CHECK(weft_init(&job));
    CHECK(weft_names_open(&names));
    const int rank = weft_rank(job), ranks = weft_size(job);
    snprintf(name, sizeof name, "solver:%d", rank);
    CHECK(weft_names_claim_rank(names, job, name, WEFT_NAMES_MESSAGES, &claim));
    if (CHECK(weft_names_wait(names, "solver", ranks, 60000000, owners, 2)) != ranks)
        exit(12);
    for (int other = 0; other < ranks; other++) {
        char of[32];
        snprintf(of, sizeof of, "solver:%d", other);
        if (CHECK(weft_connect_name(job, names, of, WEFT_NAMES_TURN)) != other)
            exit(13);
    }
    if (CHECK(weft_names_find(names, "solver:1000", WEFT_NAMES_NEAREST, &owner)) != 0)
        exit(14);
    if (CHECK(weft_names_find(names, name, WEFT_NAMES_NEAREST, &owner)) != 1
        || strcmp(owner.name, name) != 0 || owner.endpoint == 0)
        exit(15);
    if (weft_names_find(names, "no name", WEFT_NAMES_TURN, &owner) != WEFT_ARGUMENT)
        exit(16);
    CHECK(weft_barrier(job));
    if (rank == 0)
        ask_all(names, ranks);
    else
        be_asked(names, name);
    last_rank_withdraws(job, names, claim);
    CHECK(weft_barrier(job));
    if (rank == 0)
        printf("%d ranks: all were found by their names\n", ranks);
    CHECK(weft_names_close(names));
    if (weft_names_withdraw(names, claim) != WEFT_ARGUMENT)
        exit(17);
    CHECK(weft_finish(job));
    return 0;
}
