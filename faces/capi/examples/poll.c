/* A token goes round the ranks; each sleeps in poll(2) on the job and on a pipe of its own. */
#include "check.h"
#include <poll.h>
#include <unistd.h>

enum { TOKEN = 1, ROUNDS = 100 };

static int done[2];

/* Passes the token on; after the last round it wakes its own loop by the pipe. */
static void token(weft_job *job, weft_packet *packet, void *context)
{
    uint32_t round = weft_packet_argument(packet);
    int me = weft_rank(job), size = weft_size(job);

    (void)context;
    round += me == 0;
    if (me != 0 || round <= ROUNDS)
        CHECK(weft_send(job, (me + 1) % size, TOKEN, round, NULL, 0));
    if (round >= ROUNDS && write(done[1], "x", 1) != 1)
        perror("write");
}

int main(void)
{
    weft_job *job;
    int sleeps = 0;

    CHECK(weft_init(&job));
    if (pipe(done)) {
        perror("pipe");
        return 1;
    }
    CHECK(weft_handle(job, TOKEN, token, NULL));
    CHECK(weft_barrier(job));
    if (weft_rank(job) == 0)
        CHECK(weft_send(job, 1 % weft_size(job), TOKEN, 0, NULL, 0));
    struct pollfd all[2] = {
        {.fd = CHECK(weft_wait_fd(job)), .events = POLLIN},
        {.fd = done[0], .events = POLLIN},
    };
    while (!(all[1].revents & POLLIN)) {
        while (CHECK(weft_poll(job)))
            ;
        if (!CHECK(weft_prepare_wait(job)))
            continue;
        poll(all, 2, -1);
        sleeps++;
        CHECK(weft_finish_wait(job));
    }
    printf("rank %d of %d: %d rounds, slept\n", weft_rank(job), weft_size(job), ROUNDS);
    if (!sleeps)
        fprintf(stderr, "rank %d never slept\n", weft_rank(job));
    CHECK(weft_barrier(job));
    CHECK(weft_finish(job));
    return 0;
}
