/* `matched HOW MODE SEED`: ranks send each other messages of up to 1 MiB in a random order with
 * random tags, many at a time. They take them by receives of any message, and by probes: with HOW
 * `mrecv` and `imrecv` by matched ones, with `recv` by MPI_Probe and MPI_Recv. MODE `synchronous`
 * makes every fourth send wait for its receive, `standard` none. Sends that have no end after their
 * messages were received are counted, since not every MPI ends them. Three ranks or more. */
#include "check.h"
#include <unistd.h>

enum { EACH = 100, TAGS = 6, LONGEST = 1 << 20, LEAST = 4 * sizeof(int) };

struct message {
    MPI_Request request;
    unsigned char *bytes;
    int number; /* of the receive, in the order of matching */
};

static int rank, size, total, sent, begun, got;
static const char *how;
static unsigned state;
static struct message *out, *in;
static int *left;      /* messages to send, by rank */
static int (*order)[3]; /* rank, tag and number of the message that each receive matched */

static unsigned chosen(unsigned below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

static int is(const char *word)
{
    return !strcmp(how, word);
}

/* Starts a send of a random message to a random rank. */
static void send_one(int synchronous)
{
    int to, tag = (int)chosen(TAGS), length = LEAST + (int)chosen(64);
    do
        to = (int)chosen((unsigned)size);
    while (!left[to]);
    left[to]--;
    if (chosen(3))
        length += (int)chosen(chosen(2) ? LONGEST : 40000);
    int head[4] = { rank, tag, sent, length };
    struct message *m = &out[sent];
    m->bytes = malloc((size_t)length);
    fill(m->bytes, (size_t)length, (unsigned)(rank * 1000 + sent));
    memcpy(m->bytes, head, LEAST);
    if (synchronous && sent % 4 == 0)
        MPI_Issend(m->bytes, length, MPI_BYTE, to, tag, MPI_COMM_WORLD, &m->request);
    else
        MPI_Isend(m->bytes, length, MPI_BYTE, to, tag, MPI_COMM_WORLD, &m->request);
    sent++;
}

static struct message *begin(int length)
{
    struct message *m = &in[begun];
    m->number = begun++;
    m->bytes = malloc((size_t)length);
    return m;
}

/* Checks a message that was received. */
static void end(struct message *m, const MPI_Status *status)
{
    int head[4], length;
    MPI_Get_count(status, MPI_BYTE, &length);
    memcpy(head, m->bytes, LEAST);
    CHECK(head[0] == status->MPI_SOURCE && head[1] == status->MPI_TAG && head[3] == length);
    fill(m->bytes, LEAST, (unsigned)(head[0] * 1000 + head[2]));
    CHECK(filled(m->bytes, (size_t)length, (unsigned)(head[0] * 1000 + head[2])));
    memcpy(order[m->number], head, sizeof(order[0]));
    free(m->bytes);
    m->bytes = NULL;
    got++;
}

/* Ends the receives whose messages have come. */
static void end_some(void)
{
    for (int i = 0; i < begun; i++) {
        int came;
        MPI_Status status;
        if (!in[i].bytes)
            continue;
        MPI_Test(&in[i].request, &came, &status);
        if (came)
            end(&in[i], &status);
    }
}

/* Receives a message that a probe finds, if it finds one. */
static void probe_one(int wait)
{
    int found = 1, length, matched = !is("recv");
    MPI_Message message;
    MPI_Status status;
    if (matched && wait)
        MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
    else if (matched)
        MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, &message, &status);
    else if (wait)
        MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    else
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, &status);
    if (!found)
        return;
    MPI_Get_count(&status, MPI_BYTE, &length);
    struct message *m = begin(length);
    if (is("imrecv")) {
        MPI_Imrecv(m->bytes, length, MPI_BYTE, &message, &m->request);
        return;
    }
    if (matched)
        MPI_Mrecv(m->bytes, length, MPI_BYTE, &message, &status);
    else
        MPI_Recv(m->bytes, length, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
                 &status);
    end(m, &status);
}

static void exchange(int synchronous)
{
    while (got < total || sent < total) {
        for (unsigned n = chosen(8); n > 0 && sent < total; n--)
            send_one(synchronous);
        end_some();
        for (unsigned n = chosen(4); n > 0 && begun < total; n--) {
            if (chosen(3)) {
                probe_one(sent == total && chosen(2));
                continue;
            }
            int length = LEAST + 64 + LONGEST;
            struct message *m = begin(length);
            MPI_Irecv(m->bytes, length, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
                      &m->request);
        }
    }
    for (int i = 0; i < total; i++)
        for (int j = i + 1; j < total; j++)
            CHECK(order[i][0] != order[j][0] || order[i][1] != order[j][1] ||
                  order[i][2] < order[j][2]);
}

/* Ends the sends. Returns the number of those that do not end, though nothing else is under way:
 * their messages were received before the receivers came here. */
static int endless(void)
{
    int open = total, before = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (double last = MPI_Wtime(); open && MPI_Wtime() < last + 5;) {
        before = open, open = 0;
        for (int i = 0; i < total; i++) {
            int ended;
            MPI_Test(&out[i].request, &ended, MPI_STATUS_IGNORE);
            open += !ended;
        }
        if (open != before)
            last = MPI_Wtime();
        else
            usleep(1000);
    }
    MPI_Allreduce(MPI_IN_PLACE, &open, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return open;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(argc == 4 && size >= 3);
    alarm(120);
    how = argv[1];
    state = (unsigned)atoi(argv[3]) * 7919u + (unsigned)rank;
    total = EACH * (size - 1);
    out = calloc((size_t)total, sizeof(*out));
    in = calloc((size_t)total, sizeof(*in));
    order = calloc((size_t)total, sizeof(*order));
    left = calloc((size_t)size, sizeof(*left));
    for (int to = 0; to < size; to++)
        left[to] = to == rank ? 0 : EACH;
    exchange(!strcmp(argv[2], "synchronous"));
    int open = endless();
    if (rank == 0 && open)
        printf("matched: %d sends have no end\n", open);
    else if (rank == 0)
        printf("matched: passed\n");
    fflush(stdout);
    /* Sends without an end are left to the end of the process. */
    MPI_Finalize();
    return 0;
}
