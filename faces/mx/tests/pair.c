/* Two processes: a server, and a client that connects to it. */
#define _POSIX_C_SOURCE 200809L
#include "common.h"

enum { SERVER = 3, SECOND = 4, KEY = 0x99, LONG = 1 << 20, MANY = 200, THREADS = 4, ROUNDS = 50 };
enum { PING = 0x100, PONG, BURST, GO, SYNC, READY, IDLE, UNEXPECTED, PARTS, STILL, BYE };
enum { THREAD = 0x1000 };

static mx_endpoint_t ep;
static mx_endpoint_addr_t other;
static mx_status_t status;
static uint32_t result;
static const char *gate;

/* Sends a message and waits until its memory is free. */
static void send_one(uint64_t match, void *at, uint32_t len)
{
    mx_request_t request = isend(ep, other, match, at, len, NULL);
    EXPECT(MX_STATUS_SUCCESS, ended(ep, &request).code);
}

static mx_status_t receive_one(uint64_t match, void *at, uint32_t len)
{
    mx_request_t request = irecv(ep, match, ALL, at, len, NULL);
    mx_status_t of = ended(ep, &request);
    EXPECT(MX_STATUS_SUCCESS, of.code);
    return of;
}

static void connect_to(uint32_t number)
{
    const uint64_t id = server_nic();
    mx_return_t code;
    while ((code = mx_connect(ep, id, number, KEY, MX_INFINITE, &other)) == MX_CONNECTION_FAILED)
        moment();
    CHECK(code);
    EXPECT(MX_BAD_CONNECTION_KEY, mx_connect(ep, id, number, KEY + 1, MX_INFINITE, &other));
    CHECK(mx_connect(ep, id, number, KEY, MX_INFINITE, &other));
}

/* Messages of all lengths there and back. */
static void ping_pong(int server)
{
    static char out[LONG], in[LONG];
    const uint32_t lens[] = {0, 1, 32, 33, 128, 129, 4096, 32768, 32769, LONG};
    for (uint32_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        fill(out, lens[i], i);
        memset(in, 0, lens[i]);
        if (!server)
            send_one(PING, out, lens[i]);
        status = receive_one(server ? PING : PONG, in, lens[i]);
        EXPECT(lens[i], status.xfer_length);
        check_bytes(in, lens[i], i);
        if (server) {
            /* The source of a message is the way back. */
            other = status.source;
            send_one(PONG, out, lens[i]);
        } else {
            TRUE(same(status.source, other));
        }
    }
}

/* Messages that come before their receives keep their order. */
static void burst(int server)
{
    if (!server) {
        mx_request_t all[MANY];
        static uint32_t numbers[MANY];
        for (uint32_t i = 0; i < MANY; i++) {
            numbers[i] = i;
            all[i] = isend(ep, other, (uint64_t)i << 32 | BURST, &numbers[i], 4, NULL);
        }
        send_one(GO, NULL, 0);
        for (uint32_t i = 0; i < MANY; i++)
            EXPECT(MX_STATUS_SUCCESS, ended(ep, &all[i]).code);
        return;
    }
    receive_one(GO, NULL, 0);
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t number = MANY;
        mx_request_t request = irecv(ep, BURST, 0xffffffff, &number, 4, NULL);
        status = ended(ep, &request);
        TRUE(number == i && status.match_info == ((uint64_t)i << 32 | BURST));
    }
}

/* A synchronous send completes only after the match. */
static void sync_send(int server)
{
    char byte = 1;
    mx_segment_t segment = {&byte, 1};
    if (server) {
        receive_one(READY, NULL, 0);
        receive_one(SYNC, &byte, 1);
        return;
    }
    mx_request_t request;
    CHECK(mx_issend(ep, &segment, 1, other, SYNC, NULL, &request));
    CHECK(mx_wait(ep, &request, 10, &status, &result));
    EXPECT(0, result);
    send_one(READY, NULL, 0);
    EXPECT(MX_STATUS_SUCCESS, ended(ep, &request).code);
}

/* The server does not call the library, and a second endpoint connects to it none the less. */
static void idle(int server)
{
    if (server) {
        receive_one(IDLE, NULL, 0);
        while (access(gate, F_OK) != 0)
            moment();
        return;
    }
    send_one(IDLE, NULL, 0);
    mx_endpoint_t first = ep, second = opened(SECOND, 0);
    mx_endpoint_addr_t before = other;
    ep = second;
    connect_to(SERVER);
    ep = first;
    other = before;
    CHECK(mx_close_endpoint(second));
    FILE *file = fopen(gate, "w");
    TRUE(file != NULL && fclose(file) == 0);
}

/* A program that waits takes no time of a processor, and neither does one that does nothing.
 * Frames of a stranger take time, which is not the program's. */
static void still(int server)
{
    (void)server;
    const int flooded = getenv("TEST_FLOODED") != NULL;
    enum { MS = 300 };
    char byte;
    mx_request_t request = irecv(ep, STILL, ALL, &byte, 1, NULL);
    for (int way = 0; way < 4; way++) {
        const clock_t before = clock();
        result = 1;
        if (way == 0)
            CHECK(mx_wait(ep, &request, MS, &status, &result));
        else if (way == 1)
            CHECK(mx_wait_any(ep, MS, STILL, ALL, &status, &result));
        else if (way == 2)
            CHECK(mx_probe(ep, MS, STILL, ALL, &status, &result));
        else
            nanosleep(&(struct timespec){0, MS * 1000000L}, NULL);
        TRUE(way == 3 || result == 0);
        TRUE(flooded || (clock() - before) * 2000 < MS * CLOCKS_PER_SEC);
    }
    CHECK(mx_cancel(ep, &request, &result));
    EXPECT(1, result);
}

static int calls;

static mx_unexp_handler_action_t handle(void *context, mx_endpoint_addr_t source, uint64_t match,
                                        uint32_t length, void *data)
{
    (void)context;
    TRUE(same(source, other));
    TRUE((data != NULL) == (length <= 4096));
    if (data != NULL)
        check_bytes(data, length, (uint32_t)(match >> 32));
    calls++;
    return (match >> 32) % 2 == 0 ? MX_RECV_FINISHED : MX_RECV_CONTINUE;
}

/* The server's handler drops every other message; the rest is received in order. */
static void unexpected(int server)
{
    static char out[10][10000], in[10000];
    const uint32_t lens[10] = {0, 1, 100, 4096, 4096, 4097, 5000, 10, 10000, 10000};
    if (!server) {
        for (uint32_t i = 0; i < 10; i++) {
            fill(out[i], lens[i], i);
            mx_segment_t segment = {out[i], lens[i]};
            CHECK(mx_isend(ep, &segment, 1, other, (uint64_t)i << 32 | UNEXPECTED, NULL, NULL));
        }
        receive_one(GO, NULL, 0);
        return;
    }
    CHECK(mx_register_unexp_handler(ep, handle, NULL));
    while (calls < 10)
        CHECK(mx_progress(ep));
    for (uint32_t i = 1; i < 10; i += 2) {
        mx_request_t request = irecv(ep, UNEXPECTED, 0xffffffff, in, sizeof in, NULL);
        status = ended(ep, &request);
        TRUE(status.match_info >> 32 == i && status.xfer_length == lens[i]);
        check_bytes(in, lens[i], i);
    }
    CHECK(mx_register_unexp_handler(ep, NULL, NULL));
    send_one(GO, NULL, 0);
}

/* Messages of ten parts, up to 4 MB. */
static void parts(int server)
{
    const uint32_t each[] = {1, 1000, 40000, 400000};
    char *memory = malloc(10 * 400000);
    for (uint32_t i = 0; i < 4; i++) {
        mx_segment_t list[10];
        mx_request_t request;
        for (uint32_t k = 0; k < 10; k++)
            list[k] = (mx_segment_t){memory + k * each[i], each[i]};
        if (server) {
            memset(memory, 0, 10 * each[i]);
            CHECK(mx_irecv(ep, list, 10, PARTS, ALL, NULL, &request));
        } else {
            fill(memory, 10 * each[i], i);
            CHECK(mx_isend(ep, list, 10, other, PARTS, NULL, &request));
        }
        status = ended(ep, &request);
        TRUE(status.code == MX_STATUS_SUCCESS && status.xfer_length == 10 * each[i]);
        if (server)
            check_bytes(memory, 10 * each[i], i);
    }
    free(memory);
}

struct talk {
    int server;
    uint64_t match;
};

static void *talk(void *arg)
{
    const struct talk *of = arg;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t in = 0;
        if (!of->server)
            send_one(of->match, &i, 4);
        receive_one(of->match, &in, 4);
        EXPECT(i, in);
        if (of->server)
            send_one(of->match, &i, 4);
    }
    return NULL;
}

static void threads(int server)
{
    pthread_t all[THREADS];
    struct talk each[THREADS];
    for (uint64_t i = 0; i < THREADS; i++) {
        each[i] = (struct talk){server, THREAD + i};
        EXPECT(0, pthread_create(&all[i], NULL, talk, &each[i]));
    }
    for (int i = 0; i < THREADS; i++)
        EXPECT(0, pthread_join(all[i], NULL));
}

/* The server closes its endpoint, and the client learns of it. */
static void bye(int server)
{
    char byte = 0;
    if (server) {
        receive_one(BYE, NULL, 0);
        CHECK(mx_close_endpoint(ep));
        return;
    }
    send_one(BYE, NULL, 0);
    do {
        mx_request_t request = isend(ep, other, BYE, &byte, 1, NULL);
        status = ended(ep, &request);
    } while (status.code == MX_STATUS_SUCCESS);
    EXPECT(MX_STATUS_ENDPOINT_CLOSED, status.code);
    CHECK(mx_close_endpoint(ep));
}

int main(int argc, char **argv)
{
    TRUE(argc == 3);
    const int server = strcmp(argv[1], "server") == 0;
    gate = argv[2];
    mx_set_error_handler(MX_ERRORS_RETURN);
    CHECK(mx_init());
    ep = opened(server ? SERVER : MX_ANY_ENDPOINT, server ? KEY : 0);
    if (!server)
        connect_to(SERVER);
    void (*const all[])(int) = {ping_pong,  burst, sync_send, idle, still,
                                unexpected, parts, threads,   bye};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        all[i](server);
    CHECK(mx_finalize());
    printf("all is as it has to be\n");
    return 0;
}
