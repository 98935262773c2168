/* Errors of operations with a rank that fails: rank 1 is killed, or with the argument `stops`
 * only stopped, and rank 0 prints the result of each type of operation. Further ranks take part in
 * the collective operations. A rank that is stopped counts as failed after WEFT_PEER_TIMEOUT_MS,
 * which is long: weft run -n 2 --env WEFT_PEER_TIMEOUT_MS=2000 ./failed stops */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <signal.h>
#include <string.h>

enum { BOX = 1, GROUP = 1 };

static int prints;

static void expect(int code, const char *what)
{
    if (code != WEFT_PEER) {
        fprintf(stderr, "%s: %d, and not that a rank failed\n", what, code);
        exit(1);
    }
    if (prints)
        printf("%s: %s: %s\n", what, weft_strerror(code), weft_last_error());
    fflush(stdout);
}

int main(int argc, char **argv)
{
    weft_job *job;
    weft_group *group;
    weft_comm *comm;
    weft_request *request;
    weft_status status;
    int sum = 1;
    const int ranks[] = {0, 1};
    char data[16] = "weft", into[16], *all;

    /* The launcher ends the other ranks when one fails: this leaves time to print the error. */
    signal(SIGTERM, SIG_IGN);
    CHECK(weft_init(&job));
    if (weft_size(job) < 2) {
        fprintf(stderr, "for two ranks or more: weft run -n 2 ./failed\n");
        return 1;
    }
    prints = weft_rank(job) == 0;
    CHECK(weft_mailbox(job, BOX));
    if (weft_rank(job) < 2)
        CHECK(weft_group_make(job, GROUP, ranks, 2, &group));
    CHECK(weft_comm_all(job, &comm));
    CHECK(weft_barrier(job));
    if (weft_rank(job) == 1)
        raise(argc > 1 && strcmp(argv[1], "stops") == 0 ? SIGSTOP : SIGKILL);
    if (weft_rank(job) > 1) {
        expect(weft_barrier(job), "barrier");
        expect(weft_comm_allreduce(comm, &sum, &sum, 1, WEFT_INT32, WEFT_SUM), "allreduce");
        /* The gather sends to rank 0 and needs no other rank. */
        weft_comm_gather(comm, 0, data, sizeof data, NULL, 0, NULL);
        /* After the first rank that ends with an error the launcher ends the job, for which it
         * lets a stopped rank go on. Rank 0 learns of rank 1 before that. */
        weft_receive(job, 0, BOX, into, sizeof into, NULL, NULL, NULL);
        return 1;
    }
    expect(weft_receive(job, 1, BOX, into, sizeof into, NULL, NULL, NULL), "receive");
    expect(weft_send(job, 1, BOX, 0, data, sizeof data), "send");
    expect(weft_send_from(job, 1, BOX, 0, data, sizeof data), "send_from");
    expect(weft_multicast(group, WEFT_TREE_FLAT, BOX, 0, data, sizeof data), "multicast");
    expect(weft_fetch_add(job, 1, 1, 1, NULL), "fetch_add");
    expect(weft_barrier(job), "barrier");
    expect(weft_comm_allreduce(comm, &sum, &sum, 1, WEFT_INT32, WEFT_SUM), "allreduce");
    all = malloc((size_t)weft_size(job) * sizeof data);
    CHECK(weft_comm_igather(comm, 0, data, sizeof data, all, sizeof data, NULL, &request));
    expect(weft_wait_all(&request, 1, &status), "igather");
    if (status.source != 1 || status.code != WEFT_PEER) {
        fprintf(stderr, "the status names rank %d\n", status.source);
        return 1;
    }
    free(all);
    /* One rank is missing: the job has failed. */
    return 1;
}
