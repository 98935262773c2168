/* Programs that do what they must not do: each gets an error, and weft goes on. */
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TAG = 7, BOX = 5, OTHER = 6, UPCALL = 8, LEN = 1 << 20, ROUNDS = 200, PACKETS = 3000 };

static weft_job *job;
static int me;
static char big[LEN];

/* Ends the program unless a call returned `code`, with a text that has `part`. */
static void expect(int got, int code, const char *part, const char *what)
{
    if (got == code && (part == NULL || strstr(weft_last_error(), part) != NULL))
        return;
    fprintf(stderr, "rank %d: %s: %d and not %d: %s\n", me, what, got, code, weft_last_error());
    exit(1);
}

#define EXPECT(code, part, call) expect(call, code, part, #call)

/* A handler calls while another call runs. */
static volatile sig_atomic_t nested, wrong;

static void on_alarm(int number)
{
    static weft_request *request;
    static weft_set *set;
    static weft_job *second;
    static char byte;
    (void)number;
    if (weft_rank(job) != WEFT_SIGNAL)
        return; /* Between two calls. */
    nested++;
    wrong |= weft_poll(job) != WEFT_SIGNAL || weft_wait(job, -1) != WEFT_SIGNAL
             || weft_barrier(job) != WEFT_SIGNAL || weft_finish(job) != WEFT_SIGNAL
             || weft_msg_send(job, 0, TAG, "x", 1) != WEFT_SIGNAL
             || weft_msg_irecv(job, 0, TAG, 0, &byte, 1, &request) != WEFT_SIGNAL
             || weft_test(&request, NULL) != WEFT_SIGNAL
             || weft_wait_all(&request, 1, NULL) != WEFT_SIGNAL
             || weft_set_make(job, &set) != WEFT_SIGNAL || weft_set_free(set) != WEFT_SIGNAL
             || weft_init(&second) != WEFT_SIGNAL || request != NULL || set != NULL;
    weft_last_error();
}

static void in_handlers(void)
{
    struct itimerval often = {{0, 300}, {0, 300}};
    char more = 1;
    int round = 0, came;
    if (me == 1) {
        signal(SIGALRM, on_alarm);
        setitimer(ITIMER_REAL, &often, NULL);
    }
    for (; more; round++)
        if (me == 0) {
            CHECK(weft_msg_send(job, 1, TAG, &round, sizeof round));
            CHECK(weft_msg_recv(job, 1, TAG, 0, &more, 1, NULL));
        } else {
            CHECK(weft_msg_recv(job, 0, TAG, 0, &came, sizeof came, NULL));
            more = nested < ROUNDS;
            if (came != round || wrong) {
                fprintf(stderr, "round %d: %d came, %d\n", round, came, (int)wrong);
                exit(1);
            }
            CHECK(weft_msg_send(job, 0, TAG, &more, 1));
        }
    signal(SIGALRM, SIG_IGN);
}

/* Rank 0 copies to memory that rank 1 exports, and that is read-only or vanishes. */
static void to_vanished(size_t len, int is_read_only)
{
    uint64_t keys[2];
    const char *part = "unmapped it or made it read-only";
    char *memory, *good, byte;
    if (me == 0) {
        CHECK(weft_msg_recv(job, 1, TAG, 0, keys, sizeof keys, NULL));
        CHECK(weft_rcpy(job, 1, keys[0], 0, big, len));
        CHECK(weft_msg_send(job, 1, TAG, "", 1));
        CHECK(weft_msg_recv(job, 1, TAG, 0, &byte, 1, NULL));
        EXPECT(WEFT_REFUSED, part, weft_rcpy(job, 1, keys[0], 0, big, len));
        EXPECT(WEFT_REFUSED, part, weft_rcpy(job, 1, keys[0], LEN / 2, big, len));
        CHECK(weft_rcpy(job, 1, keys[1], 0, big, len));
        CHECK(weft_msg_send(job, 1, TAG, "", 1));
    } else {
        memory = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        good = calloc(1, LEN);
        CHECK(weft_export(job, memory, LEN, &keys[0]));
        CHECK(weft_export(job, good, LEN, &keys[1]));
        CHECK(weft_msg_send(job, 0, TAG, keys, sizeof keys));
        CHECK(weft_msg_recv(job, 0, TAG, 0, &byte, 1, NULL));
        if (is_read_only)
            mprotect(memory, LEN, PROT_READ);
        else
            munmap(memory, LEN);
        CHECK(weft_msg_send(job, 0, TAG, "", 1));
        CHECK(weft_msg_recv(job, 0, TAG, 0, &byte, 1, NULL));
        if (memcmp(good, big, len) != 0)
            exit(1);
        CHECK(weft_unexport(job, keys[0]));
        CHECK(weft_unexport(job, keys[1]));
        free(good);
        if (is_read_only)
            munmap(memory, LEN);
        EXPECT(WEFT_ARGUMENT, "memory of this process", weft_export(job, memory, LEN, keys));
    }
}

static void in_vanished(void)
{
    for (int i = 0; i < 4; i++)
        to_vanished(i % 2 ? LEN / 2 : 1000, i / 2);
}

/* Packets that nobody receives do not block others. */
static void in_boxes(void)
{
    size_t got;
    if (me == 0) {
        for (int i = 0; i < PACKETS; i++)
            CHECK(weft_send(job, 1, BOX, (uint32_t)i, big, 1000));
        CHECK(weft_send(job, 1, OTHER, 0, "hello", 5));
    } else {
        CHECK(weft_receive(job, 0, OTHER, big, LEN, NULL, NULL, &got));
        for (uint32_t i = 0, argument; i < PACKETS; i++) {
            CHECK(weft_receive(job, 0, BOX, big, LEN, NULL, &argument, NULL));
            if (got != 5 || argument != i)
                exit(1);
        }
    }
}

/* Where they fill the room for them, both ranks get an error that counts them. */
static void in_a_full_box(void)
{
    int code;
    if (me == 0) {
        do {
            code = weft_try_send(job, 1, BOX, 0, big, 1000);
            if (code == WEFT_BUSY)
                weft_poll(job);
        } while (code == WEFT_OK || code == WEFT_BUSY);
    } else {
        code = weft_receive(job, 0, OTHER, big, LEN, NULL, NULL, NULL);
    }
    expect(code, WEFT_PEER, "WEFT_UNEXPECTED_MAX", "a full mailbox");
    expect(strstr(weft_last_error(), " 0 messages") != NULL, 0, NULL, "number of messages");
}

/* A child uses the job of its parent. */
static void in_a_child(void)
{
    const char *part = "is a copy";
    int status = 0;
    size_t at;
    weft_request *request;
    CHECK(weft_barrier(job));
    CHECK(weft_msg_irecv(job, 1 - me, 99, 0, big, 1, &request));
    pid_t child = fork();
    if (child == 0) {
        EXPECT(WEFT_PEER, part, weft_poll(job));
        EXPECT(WEFT_PEER, part, weft_wait(job, -1));
        EXPECT(WEFT_PEER, part, weft_prepare_wait(job));
        EXPECT(WEFT_PEER, part, weft_wait_fd(job));
        EXPECT(WEFT_PEER, part, weft_msg_send(job, 1 - me, TAG, big, 1));
        EXPECT(WEFT_PEER, part, weft_send(job, 1 - me, BOX, 0, big, 1));
        EXPECT(WEFT_PEER, part, weft_receive(job, 1 - me, BOX, big, 1, NULL, NULL, NULL));
        EXPECT(WEFT_PEER, part, weft_rcpy(job, 1 - me, 1, 0, big, 1));
        EXPECT(WEFT_PEER, part, weft_barrier(job));
        EXPECT(WEFT_PEER, part, weft_wait_any(&request, 1, &at, NULL));
        EXPECT(WEFT_PEER, part, weft_finish(job));
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "the child's status: %d\n", status);
        exit(1);
    }
    CHECK(weft_cancel(request));
    EXPECT(WEFT_CANCELLED, NULL, weft_wait_all(&request, 1, NULL));
}

/* An upcall calls functions that wait, and functions that do not. */
static weft_packet *kept;
static int upcalls;
static weft_request *awaited;
static weft_set *set;

static void on_packet(weft_job *of, weft_packet *packet, void *context)
{
    weft_request *request;
    (void)context;
    EXPECT(WEFT_UPCALL, NULL, weft_wait(of, -1));
    EXPECT(WEFT_UPCALL, NULL, weft_barrier(of));
    EXPECT(WEFT_UPCALL, NULL, weft_finish(of));
    EXPECT(WEFT_UPCALL, NULL, weft_flush(of));
    EXPECT(WEFT_UPCALL, NULL, weft_msg_send(of, 0, TAG, big, 1));
    EXPECT(WEFT_ARGUMENT, "not kept", weft_packet_release(packet));
    CHECK(weft_msg_isend(of, 1 - me, TAG, "x", 1, &request));
    while (!CHECK(weft_test(&request, NULL)))
        continue;
    if (awaited != NULL) {
        /* A request that an outer call waits for ends there, and not here. */
        EXPECT(WEFT_ARGUMENT, "uses it", weft_test(&awaited, NULL));
        EXPECT(WEFT_ARGUMENT, "uses it", weft_wait_any(&awaited, 1, NULL, NULL));
        EXPECT(WEFT_ARGUMENT, "uses it", weft_set_add(set, awaited, NULL));
        CHECK(weft_cancel(awaited));
    } else if (set != NULL) {
        EXPECT(WEFT_ARGUMENT, "uses it", weft_set_free(set));
        EXPECT(WEFT_ARGUMENT, "uses it", weft_set_wait(set, 0, NULL, NULL));
    }
    if (kept != NULL)
        CHECK(weft_packet_release(kept));
    CHECK(weft_packet_keep(packet, &kept));
    upcalls++;
}

/* The other rank sends the packet only when it has got the message sent before the wait. */
static void in_waits(void)
{
    char byte;
    weft_request *request, *other;
    CHECK(weft_set_make(job, &set));
    CHECK(weft_msg_irecv(job, 1, TAG + 1, 0, &byte, 1, &awaited));
    CHECK(weft_msg_isend(job, 1, TAG + 2, "x", 1, &other));
    EXPECT(WEFT_CANCELLED, NULL, weft_wait_all(&awaited, 1, NULL));
    CHECK(weft_wait_all(&other, 1, NULL));
    CHECK(weft_msg_irecv(job, 1, TAG + 1, 0, &byte, 1, &request));
    CHECK(weft_set_add(set, request, NULL));
    CHECK(weft_msg_isend(job, 1, TAG + 2, "x", 1, &other));
    if (CHECK(weft_set_wait(set, -1, NULL, NULL)) != 1 || upcalls != 5)
        exit(1);
    CHECK(weft_wait_all(&other, 1, NULL));
    CHECK(weft_set_free(set));
}

static void in_upcalls(void)
{
    char byte;
    CHECK(weft_handle(job, UPCALL, on_packet, NULL));
    CHECK(weft_barrier(job));
    for (int i = 0; i < 3; i++)
        CHECK(weft_send(job, 1 - me, UPCALL, 0, "x", 1));
    while (upcalls < 3)
        CHECK(weft_wait(job, -1));
    for (int i = 0; i < 3; i++)
        CHECK(weft_msg_recv(job, 1 - me, TAG, 0, &byte, 1, NULL));
    if (me == 0)
        in_waits();
    else
        for (int i = 0; i < 2; i++) {
            CHECK(weft_msg_recv(job, 0, TAG + 2, 0, &byte, 1, NULL));
            CHECK(weft_send(job, 0, UPCALL, 0, "x", 1));
            if (i == 1)
                CHECK(weft_msg_send(job, 0, TAG + 1, "x", 1));
            CHECK(weft_msg_recv(job, 0, TAG, 0, &byte, 1, NULL));
        }
    CHECK(weft_packet_release(kept));
}

/* Another thread calls. */
static weft_group *group;
static weft_buffer *buffer;
static weft_comm *comm;

static void *elsewhere(void *nothing)
{
    EXPECT(WEFT_THREAD, NULL, weft_poll(job));
    EXPECT(WEFT_THREAD, NULL, weft_finish(job));
    EXPECT(WEFT_THREAD, NULL, weft_msg_send(job, 0, TAG, big, 1));
    EXPECT(WEFT_THREAD, NULL, weft_comm_barrier(comm));
    EXPECT(WEFT_THREAD, NULL, weft_group_packet_max(group));
    EXPECT(WEFT_THREAD, NULL, weft_group_free(group));
    EXPECT(WEFT_THREAD, NULL, weft_comm_free(comm));
    EXPECT(WEFT_THREAD, NULL, weft_buffer_free(buffer));
    EXPECT(WEFT_THREAD, NULL, weft_set_free(set));
    return nothing;
}

/* Another thread calls at the same moment as this one. */
static atomic_int is_over;

static void *beside(void *nothing)
{
    while (!is_over)
        EXPECT(WEFT_THREAD, NULL, weft_comm_size(comm));
    return nothing;
}

static void in_two_threads(void)
{
    pthread_t thread;
    CHECK(weft_comm_all(job, &comm));
    pthread_create(&thread, NULL, beside, NULL);
    for (int i = 0; i < 2 * LEN; i++)
        EXPECT(2, NULL, weft_comm_size(comm));
    is_over = 1;
    pthread_join(thread, NULL);
    CHECK(weft_comm_free(comm));
}

static void in_another_thread(void)
{
    int ranks[2] = {0, 1};
    void *data;
    pthread_t thread;
    CHECK(weft_group_make(job, 1, ranks, 2, &group));
    CHECK(weft_set_make(job, &set));
    CHECK(weft_buffer_alloc(job, 10, &buffer, &data));
    CHECK(weft_comm_all(job, &comm));
    pthread_create(&thread, NULL, elsewhere, NULL);
    pthread_join(thread, NULL);
    CHECK(weft_group_free(group));
    CHECK(weft_set_free(set));
    CHECK(weft_buffer_free(buffer));
    CHECK(weft_comm_free(comm));
    in_two_threads();
}

/* A place for a result is misaligned: nothing is done. */
static void with_bad_places(void)
{
    void *odd = big + 1;
    uint64_t key, value;
    char byte;
    weft_request *request;
    CHECK(weft_counter(job, 5, &key));
    EXPECT(WEFT_ARGUMENT, "place", weft_fetch_add(job, me, key, 1, odd));
    CHECK(weft_counter_value(job, key, &value));
    expect((int)value, 5, NULL, "a counter that nobody has added to");
    CHECK(weft_msg_isend(job, 1 - me, TAG, "x", 1, &request));
    CHECK(weft_msg_recv(job, 1 - me, TAG, 0, &byte, 1, NULL));
    EXPECT(WEFT_ARGUMENT, "place", weft_test(&request, odd));
    EXPECT(WEFT_ARGUMENT, "place", weft_wait_any(&request, 1, NULL, odd));
    EXPECT(WEFT_ARGUMENT, "misaligned", weft_wait_all(&request, 1, odd));
    expect(request != NULL, 1, NULL, "a request that nobody has taken");
    CHECK(weft_wait_all(&request, 1, NULL));
}

/* Lengths and counts that no machine has: `at` has none of them, or all of them at once. */
static void one_huge(void *at, size_t n, size_t count, int code)
{
    void *memory;
    uint64_t key;
    weft_request *request, *list[1] = {NULL};
    char small[8];
    size_t got;
    for (int i = 0; i < 2 && code == WEFT_ARGUMENT; i++) {
        void *in = i ? at : small, *out = i ? small : at;
        EXPECT(code, NULL, weft_comm_scatter(comm, me, at, n, NULL, small, 8, NULL));
        EXPECT(code, NULL, weft_comm_scatter(comm, me, small, 1, NULL, at, n, NULL));
        EXPECT(code, NULL, weft_comm_gather(comm, me, small, 1, at, n, &got));
        EXPECT(code, NULL, weft_comm_allgather(comm, small, 1, at, n, NULL));
        EXPECT(code, NULL, weft_comm_alltoall(comm, in, NULL, out, NULL, n));
        EXPECT(code, NULL, weft_comm_broadcast(comm, 1 - me, at, n));
        EXPECT(code, NULL, weft_export(job, at, n, &key));
        EXPECT(WEFT_TOO_MANY, NULL, weft_export_new(job, n / 2, &memory, &key));
        EXPECT(code, NULL, weft_msg_send(job, 1 - me, TAG, at, n));
        EXPECT(code, NULL, weft_msg_isend(job, 1 - me, TAG, at, n, &request));
        EXPECT(code, NULL, weft_msg_issend(job, 1 - me, TAG, at, n, &request));
        EXPECT(code, NULL, weft_msg_recv(job, 1 - me, TAG, 0, at, n, NULL));
        EXPECT(code, NULL, weft_msg_irecv(job, 1 - me, TAG, 0, at, n, &request));
        EXPECT(code, NULL, weft_send(job, 1 - me, BOX, 0, at, n));
        EXPECT(code, NULL, weft_try_send(job, 1 - me, BOX, 0, at, n));
        EXPECT(code, NULL, weft_send_from(job, 1 - me, BOX, 0, at, n));
        EXPECT(code, NULL, weft_receive(job, 1 - me, BOX, at, n, NULL, NULL, NULL));
        EXPECT(code, NULL, weft_multicast(group, WEFT_TREE_FLAT, BOX, 0, at, n));
        EXPECT(code, NULL, weft_rcpy(job, 1 - me, 1, 0, at, n));
        EXPECT(code, NULL, weft_wait_any(list, n, &got, NULL));
        EXPECT(code, NULL, weft_wait_all(list, n, NULL));
        EXPECT(code, NULL, weft_group_make(job, 9, &me, n, &group));
        EXPECT(code, NULL, weft_comm_make(job, 9, &me, n, &comm));
        EXPECT(WEFT_TOO_LONG, NULL, weft_buffer_alloc(job, n, &buffer, &memory));
    }
    EXPECT(code, NULL, weft_comm_broadcast(comm, me, at, n));
    EXPECT(code, NULL, weft_comm_ibroadcast(comm, me, at, n, &request));
    EXPECT(code, NULL, weft_comm_gather(comm, me, at, n, small, 1, NULL));
    EXPECT(code, NULL, weft_comm_igather(comm, 1 - me, at, n, NULL, 0, NULL, &request));
    EXPECT(code, NULL, weft_comm_allgather(comm, at, n, small, 1, NULL));
    EXPECT(code, NULL, weft_comm_iscatter(comm, me, at, n, NULL, small, 8, NULL, &request));
    EXPECT(code, NULL, weft_comm_ialltoall(comm, at, NULL, at, NULL, n, &request));
    for (int type = WEFT_INT64; type <= WEFT_DOUBLE; type += WEFT_DOUBLE - WEFT_INT64) {
        EXPECT(code, NULL, weft_comm_allreduce(comm, at, at, count, type, WEFT_SUM));
        EXPECT(code, NULL, weft_comm_iallreduce(comm, at, at, count, type, WEFT_SUM, &request));
        EXPECT(code, NULL, weft_comm_reduce(comm, 1 - me, at, NULL, count, type, WEFT_SUM));
        EXPECT(code, NULL, weft_comm_ireduce(comm, me, at, at, count, type, WEFT_SUM, &request));
    }
}

static void with_huge_counts(void)
{
    static double few[LEN / sizeof(double)];
    const size_t lens[] = {1ull << 40, 0x7fffffffffff, SIZE_MAX / 8, SIZE_MAX / 2, SIZE_MAX - 7};
    const size_t all = 1ull << 44;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    int ranks[2] = {0, 1};
    void *there = mmap(NULL, all, PROT_READ, flags, -1, 0);
    CHECK(weft_comm_all(job, &comm));
    CHECK(weft_group_make(job, 1, ranks, 2, &group));
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++)
        one_huge(few, lens[i], lens[i], WEFT_ARGUMENT);
    /* All of it is there, and no machine can copy it. */
    if (there != MAP_FAILED)
        one_huge(there, all / 2, all / 8, WEFT_TOO_MANY);
    CHECK(weft_group_free(group));
    CHECK(weft_comm_free(comm));
}

/* The job is used after its end. */
static void after_the_end(void)
{
    weft_request *request;
    weft_comm *all;
    weft_set *some;
    weft_job *ended = job;
    size_t at;
    CHECK(weft_comm_all(job, &all));
    CHECK(weft_set_make(job, &some));
    CHECK(weft_msg_irecv(job, 1 - me, 99, 0, big, 1, &request));
    CHECK(weft_barrier(job));
    CHECK(weft_finish(job));
    EXPECT(WEFT_ARGUMENT, "was freed", weft_finish(ended));
    EXPECT(WEFT_ARGUMENT, "was freed", weft_poll(ended));
    EXPECT(WEFT_ARGUMENT, "was freed", weft_wait(ended, -1));
    EXPECT(WEFT_ARGUMENT, "was freed", weft_msg_send(ended, 1 - me, TAG, big, 1));
    EXPECT(WEFT_ARGUMENT, "was freed", weft_comm_barrier(all));
    EXPECT(WEFT_ARGUMENT, "was freed", weft_comm_free(all));
    EXPECT(WEFT_ARGUMENT, "was freed", weft_set_add(some, request, NULL));
    EXPECT(WEFT_ARGUMENT, "was freed", weft_set_free(some));
    EXPECT(WEFT_ARGUMENT, "was freed", weft_test(&request, NULL));
    EXPECT(WEFT_ARGUMENT, "was freed", weft_wait_any(&request, 1, &at, NULL));
    EXPECT(WEFT_ARGUMENT, "was freed", weft_cancel(request));
    printf("rank %d went on after misuse: finished\n", me);
    exit(0);
}

static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {
    {"handlers", in_handlers}, {"vanished", in_vanished}, {"boxes", in_boxes},
    {"full", in_a_full_box},   {"child", in_a_child},     {"upcalls", in_upcalls},
    {"finished", after_the_end}, {"huge", with_huge_counts}, {"thread", in_another_thread},
    {"places", with_bad_places},
};

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    size_t i = 0;
    CHECK(weft_init(&job));
    me = CHECK(weft_rank(job));
    memset(big, 'b', LEN);
    CHECK(weft_mailbox(job, BOX));
    CHECK(weft_mailbox(job, OTHER));
    CHECK(weft_barrier(job));
    while (i < sizeof CASES / sizeof *CASES && strcmp(what, CASES[i].name) != 0)
        i++;
    if (i == sizeof CASES / sizeof *CASES)
        return 2;
    CASES[i].run();
    if (strcmp(what, "full") != 0)
        CHECK(weft_barrier(job));
    CHECK(weft_finish(job));
    printf("rank %d went on after misuse: %s\n", me, what);
    return 0;
}
