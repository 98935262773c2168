/* Everything that one process can test: results of functions, statuses, and misuse. */
#define _POSIX_C_SOURCE 200809L
#include "common.h"
#include <stdatomic.h>

static mx_endpoint_t ep;
static mx_endpoint_addr_t me;
static mx_status_t status;
static uint32_t result;

/* Calls each function of an endpoint; all give the code. */
static void each_gives(mx_return_t code, mx_endpoint_t of)
{
    char byte = 0;
    mx_segment_t segment = {&byte, 1};
    mx_request_t request = NULL;
    mx_endpoint_addr_t addr = {{0, 0}};
    uint32_t number;
    EXPECT(code, mx_close_endpoint(of));
    EXPECT(code, mx_wakeup(of));
    EXPECT(code, mx_progress(of));
    EXPECT(code, mx_disable_progression(of));
    EXPECT(code, mx_reenable_progression(of));
    EXPECT(code, mx_register_unexp_handler(of, NULL, NULL));
    EXPECT(code, mx_get_endpoint_addr(of, &addr));
    EXPECT(code, mx_connect(of, 0, 0, 0, 1, &addr));
    EXPECT(code, mx_iconnect(of, 0, 0, 0, 0, NULL, &request));
    EXPECT(code, mx_disconnect(of, addr));
    EXPECT(code, mx_isend(of, &segment, 1, addr, 0, NULL, &request));
    EXPECT(code, mx_issend(of, &segment, 1, addr, 0, NULL, &request));
    EXPECT(code, mx_irecv(of, &segment, 1, 0, ALL, NULL, &request));
    EXPECT(code, mx_test(of, &request, &status, &result));
    EXPECT(code, mx_wait(of, &request, 1, &status, &result));
    EXPECT(code, mx_test_any(of, 0, 0, &status, &result));
    EXPECT(code, mx_wait_any(of, 1, 0, 0, &status, &result));
    EXPECT(code, mx_ipeek(of, &request, &result));
    EXPECT(code, mx_peek(of, 1, &request, &result));
    EXPECT(code, mx_iprobe(of, 0, 0, &status, &result));
    EXPECT(code, mx_probe(of, 1, 0, 0, &status, &result));
    EXPECT(code, mx_ibuffered(of, &request, &result));
    EXPECT(code, mx_cancel(of, &request, &result));
    EXPECT(code, mx_forget(of, &request));
    EXPECT(code, mx_set_request_timeout(of, NULL, 1));
    if (of != NULL)
        EXPECT(code, mx_get_info(of, MX_NIC_COUNT, NULL, 0, &number, sizeof number));
}

static void before_init(void)
{
    mx_endpoint_t of;
    uint64_t id;
    uint32_t board;
    char name[MX_MAX_HOSTNAME_LEN] = "localhost";
    mx_request_t request = NULL;
    void *context;
    mx_endpoint_addr_t addr = {{0, 0}};
    const mx_return_t code = MX_NOT_INITIALIZED;
    each_gives(code, (mx_endpoint_t)&of);
    EXPECT(code, mx_open_endpoint(0, 0, 0, NULL, 0, &of));
    EXPECT(code, mx_get_info(NULL, MX_NIC_COUNT, NULL, 0, &board, sizeof board));
    EXPECT(code, mx_hostname_to_nic_id(name, &id));
    EXPECT(code, mx_nic_id_to_hostname(0, name));
    EXPECT(code, mx_board_number_to_nic_id(0, &id));
    EXPECT(code, mx_nic_id_to_board_number(0, &board));
    EXPECT(code, mx_context(&request, &context));
    EXPECT(code, mx_set_endpoint_addr_context(addr, NULL));
    EXPECT(code, mx_get_endpoint_addr_context(addr, &context));
    EXPECT(code, mx_decompose_endpoint_addr2(addr, &id, &board, &board));
    EXPECT(code, mx_finalize());
    EXPECT(MX_BAD_LIB_VERSION, mx__init_api(0));
    EXPECT(MX_BAD_LIB_VERSION, mx__init_api(0x201));
    EXPECT(MX_BAD_LIB_VERSION, mx__init_api(0x401));
    CHECK(mx__init_api(0x300));
    EXPECT(MX_ALREADY_INITIALIZED, mx_init());
}

static mx_return_t heard;
static char heard_text[128];

static mx_return_t hear(char *text, mx_return_t code)
{
    heard = code;
    snprintf(heard_text, sizeof heard_text, "%s", text);
    return MX_FAILURE;
}

static void opening(void)
{
    mx_endpoint_t of, many[65];
    mx_param_t param;
    memset(&param, 0, sizeof param);
    EXPECT(MX_BOARD_UNKNOWN, mx_open_endpoint(9999, 0, 0, NULL, 0, &of));
    EXPECT(MX_BAD_ENDPOINT_ID, mx_open_endpoint(0, 256, 0, NULL, 0, &of));
    EXPECT(MX_BAD_ENDPOINT, mx_open_endpoint(0, 1, 0, NULL, 0, NULL));
    EXPECT(MX_BAD_PARAM_LIST, mx_open_endpoint(0, 1, 0, NULL, 1, &of));
    param.key = (mx_param_key_t)9;
    EXPECT(MX_BAD_PARAM_NAME, mx_open_endpoint(0, 1, 0, &param, 1, &of));
    param.key = MX_PARAM_CONTEXT_ID;
    param.val.context_id.bits = 17;
    EXPECT(MX_BAD_PARAM_VAL, mx_open_endpoint(0, 1, 0, &param, 1, &of));
    param.val.context_id.bits = 16;
    param.val.context_id.shift = 49;
    EXPECT(MX_BAD_PARAM_VAL, mx_open_endpoint(0, 1, 0, &param, 1, &of));
    EXPECT(MX_BUSY, mx_open_endpoint(0, 7, 0, NULL, 0, &of));
    /* An endpoint has a handler of errors of its own. */
    param.key = MX_PARAM_ERROR_HANDLER;
    param.val.error_handler = hear;
    CHECK(mx_open_endpoint(0, 8, 0, &param, 1, &of));
    EXPECT(MX_FAILURE, mx_irecv(of, NULL, 0, 1, 0, NULL, (mx_request_t *)&many));
    EXPECT(MX_BAD_MATCH_MASK, heard);
    TRUE(strcmp(heard_text, "mx_irecv") == 0);
    CHECK(mx_close_endpoint(of));
    EXPECT(MX_BAD_ENDPOINT, mx_progress(of) == MX_FAILURE ? heard : MX_BAD_ENDPOINT);
    param.key = MX_PARAM_UNEXP_QUEUE_MAX;
    param.val.unexp_queue_max = 1 << 20;
    CHECK(mx_open_endpoint(MX_ANY_NIC, 8, 0, &param, 1, &of));
    CHECK(mx_close_endpoint(of));
    /* A process may have 64 endpoints, and one is open already. */
    int count = 0;
    while (count < 65 && mx_open_endpoint(0, MX_ANY_ENDPOINT, 0, NULL, 0, &many[count]) == 0)
        count++;
    EXPECT(63, count);
    EXPECT(MX_NO_RESOURCES, mx_open_endpoint(0, MX_ANY_ENDPOINT, 0, NULL, 0, &of));
    while (count > 0)
        CHECK(mx_close_endpoint(many[--count]));
}

static void wrong_handles(void)
{
    int local;
    mx_endpoint_t closed = opened(9, 0);
    CHECK(mx_close_endpoint(closed));
    mx_endpoint_t wrong[] = {NULL, (mx_endpoint_t)&local, (mx_endpoint_t)~(uintptr_t)0, closed};
    mx_request_t request = irecv(ep, 5, ALL, NULL, 0, NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        each_gives(MX_BAD_ENDPOINT, wrong[i]);
    each_gives(MX_BAD_ENDPOINT, (mx_endpoint_t)request);
    /* A new one in its place is another. */
    mx_endpoint_t again = opened(9, 0);
    EXPECT(MX_BAD_ENDPOINT, mx_progress(closed));
    /* A request belongs to its endpoint. */
    EXPECT(MX_BAD_REQUEST, mx_test(again, &request, &status, &result));
    CHECK(mx_close_endpoint(again));
    CHECK(mx_cancel(ep, &request, &result));
    EXPECT(1, result);
}

/* Calls each function of a request; all give the code. */
static void requests_give(mx_return_t code, mx_request_t *request)
{
    EXPECT(code, mx_test(ep, request, &status, &result));
    EXPECT(code, mx_wait(ep, request, 1, &status, &result));
    EXPECT(code, mx_ibuffered(ep, request, &result));
    EXPECT(code, mx_cancel(ep, request, &result));
    EXPECT(code, mx_forget(ep, request));
}

static void wrong_requests(void)
{
    void *context;
    char byte = 1, in;
    mx_request_t sent = isend(ep, me, 1, &byte, 1, NULL);
    mx_request_t copy = sent, got = irecv(ep, 1, ALL, &in, 1, NULL), none = NULL;
    mx_request_t garbage = (mx_request_t)&byte, endpoint = (mx_request_t)ep;
    ended(ep, &sent);
    mx_request_t all[] = {copy, none, garbage, endpoint};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        requests_give(MX_BAD_REQUEST, &all[i]);
        EXPECT(MX_BAD_REQUEST, mx_context(&all[i], &context));
        if (all[i] != NULL)
            EXPECT(MX_BAD_REQUEST, mx_set_request_timeout(ep, all[i], 1));
    }
    requests_give(MX_BAD_REQUEST, NULL);
    EXPECT(MX_BAD_REQUEST, mx_context(NULL, &context));
    ended(ep, &got);
    EXPECT(MX_BAD_REQUEST, mx_irecv(ep, NULL, 0, 0, ALL, NULL, NULL));
    EXPECT(MX_BAD_REQUEST, mx_iconnect(ep, nic(), 7, 0, 0, NULL, NULL));
    EXPECT(MX_BAD_REQUEST, mx_ipeek(ep, NULL, &result));
    EXPECT(MX_BAD_REQUEST, mx_peek(ep, 1, NULL, &result));
}

static void places(void)
{
    mx_request_t request = irecv(ep, 9, ALL, NULL, 0, NULL);
    EXPECT(MX_BAD_INFO_VAL, mx_test(ep, &request, &status, NULL));
    EXPECT(MX_BAD_INFO_VAL, mx_wait(ep, &request, 1, &status, NULL));
    EXPECT(MX_BAD_INFO_VAL, mx_test_any(ep, 0, 0, &status, NULL));
    EXPECT(MX_BAD_INFO_VAL, mx_wait_any(ep, 1, 0, 0, &status, NULL));
    EXPECT(MX_BAD_INFO_VAL, mx_ipeek(ep, &request, NULL));
    EXPECT(MX_BAD_INFO_VAL, mx_peek(ep, 1, &request, NULL));
    EXPECT(MX_BAD_INFO_VAL, mx_iprobe(ep, 0, 0, &status, NULL));
    EXPECT(MX_BAD_INFO_VAL, mx_probe(ep, 1, 0, 0, &status, NULL));
    EXPECT(MX_BAD_INFO_VAL, mx_ibuffered(ep, &request, NULL));
    EXPECT(MX_BAD_INFO_VAL, mx_cancel(ep, &request, NULL));
    EXPECT(MX_BAD_INFO_VAL, mx_context(&request, NULL));
    EXPECT(MX_BAD_ADDR_LIST, mx_get_endpoint_addr(ep, NULL));
    EXPECT(MX_BAD_ADDR_LIST, mx_connect(ep, nic(), 7, 0, 1, NULL));
    CHECK(mx_cancel(ep, &request, &result));
}

static void segments(void)
{
    char bytes[300], in[300];
    mx_segment_t list[257];
    mx_request_t request;
    for (int i = 0; i < 257; i++)
        list[i] = (mx_segment_t){bytes + i, 1};
    EXPECT(MX_BAD_SEG_CNT, mx_isend(ep, list, 257, me, 0, NULL, &request));
    EXPECT(MX_BAD_SEG_LIST, mx_isend(ep, NULL, 1, me, 0, NULL, &request));
    EXPECT(MX_BAD_SEG_CNT, mx_irecv(ep, list, 257, 0, ALL, NULL, &request));
    EXPECT(MX_BAD_SEG_LIST, mx_irecv(ep, NULL, 1, 0, ALL, NULL, &request));
    mx_segment_t null = {NULL, 1}, huge[2] = {{bytes, UINT32_MAX}, {bytes, 1}};
    EXPECT(MX_BAD_SEG_MEM, mx_isend(ep, &null, 1, me, 0, NULL, &request));
    EXPECT(MX_BAD_SEG_MEM, mx_irecv(ep, &null, 1, 0, ALL, NULL, &request));
    EXPECT(MX_BAD_SEG_CNT, mx_isend(ep, huge, 2, me, 0, NULL, &request));
    mx_segment_t apart[2] = {{bytes, UINT32_MAX / 2}, {bytes, UINT32_MAX / 2}};
    for (uint32_t count = 1; count <= 2; count++) {
        mx_segment_t *all = count == 1 ? huge : apart;
        EXPECT(MX_BAD_SEG_MEM, mx_isend(ep, all, count, me, 0, NULL, &request));
        EXPECT(MX_BAD_SEG_MEM, mx_irecv(ep, all, count, 0, ALL, NULL, &request));
    }
    /* Parts of one message: 100 bytes one by one, an empty one, and the rest. */
    fill(bytes, 300, 1);
    list[100] = (mx_segment_t){NULL, 0};
    list[101] = (mx_segment_t){bytes + 100, 200};
    CHECK(mx_isend(ep, list, 102, me, 3, NULL, &request));
    mx_segment_t into[3] = {{in, 7}, {in + 7, 0}, {in + 7, 293}};
    mx_request_t got;
    memset(in, 0, sizeof in);
    CHECK(mx_irecv(ep, into, 3, 3, ALL, NULL, &got));
    status = ended(ep, &got);
    EXPECT(300, status.xfer_length);
    check_bytes(in, 300, 1);
    status = ended(ep, &request);
    EXPECT(300, status.msg_length);
    TRUE(same(status.source, me));
}

static void masks(void)
{
    mx_request_t request;
    EXPECT(MX_BAD_MATCH_MASK, mx_irecv(ep, NULL, 0, 3, 1, NULL, &request));
    EXPECT(MX_BAD_MATCH_MASK, mx_test_any(ep, 3, 1, &status, &result));
    EXPECT(MX_BAD_MATCH_MASK, mx_wait_any(ep, 1, 3, 1, &status, &result));
    EXPECT(MX_BAD_MATCH_MASK, mx_iprobe(ep, 3, 1, &status, &result));
    EXPECT(MX_BAD_MATCH_MASK, mx_probe(ep, 1, 3, 1, &status, &result));
}

static void one_message(uint32_t len, uint32_t room, int late, int sync)
{
    char *out = malloc(len + 1), *in = calloc(room + 1, 1);
    mx_segment_t segment = {out, len};
    mx_request_t sent, got = NULL;
    int context;
    fill(out, len, len);
    if (!late)
        got = irecv(ep, 0x5500, 0xff00, in, room, &context);
    if (sync)
        CHECK(mx_issend(ep, &segment, 1, me, 0x5512, &context, &sent));
    else
        CHECK(mx_isend(ep, &segment, 1, me, 0x5512, &context, &sent));
    if (sync && late) {
        CHECK(mx_wait(ep, &sent, 2, &status, &result));
        EXPECT(0, result);
    }
    if (late)
        got = irecv(ep, 0x5500, 0xff00, in, room, &context);
    status = ended(ep, &got);
    EXPECT(len > room ? MX_STATUS_TRUNCATED : MX_STATUS_SUCCESS, status.code);
    EXPECT(len, status.msg_length);
    EXPECT(len > room ? room : len, status.xfer_length);
    TRUE(status.match_info == 0x5512 && same(status.source, me) && status.context == &context);
    check_bytes(in, status.xfer_length, len);
    EXPECT(0, in[room]);
    status = ended(ep, &sent);
    TRUE(status.code == MX_STATUS_SUCCESS && status.context == &context);
    free(out);
    free(in);
}

static void messages(void)
{
    const uint32_t lens[] = {0, 1, 32, 129, 4097, 40000, 300000};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++)
        for (int how = 0; how < 4; how++) {
            one_message(lens[i], lens[i], how & 1, how >> 1);
            if (lens[i] > 0)
                one_message(lens[i], lens[i] / 2, how & 1, how >> 1);
        }
}

static void any_request(void)
{
    char out[3] = {1, 2, 3}, in[3];
    mx_request_t request, sent;
    void *context;
    CHECK(mx_test_any(ep, 0, 0, &status, &result));
    EXPECT(0, result);
    CHECK(mx_wait_any(ep, 2, 0, 0, &status, &result));
    EXPECT(0, result);
    CHECK(mx_ipeek(ep, &request, &result));
    EXPECT(0, result);
    CHECK(mx_peek(ep, 2, &request, &result));
    EXPECT(0, result);
    for (int i = 0; i < 3; i++)
        irecv(ep, 0x10u + (unsigned)i, ALL, in + i, 1, in + i);
    for (int i = 0; i < 3; i++) {
        mx_segment_t segment = {out + i, 1};
        CHECK(mx_isend(ep, &segment, 1, me, 0x10u + (unsigned)i, NULL, NULL));
    }
    CHECK(mx_wait_any(ep, MX_INFINITE, 0x11, ALL, &status, &result));
    TRUE(result == 1 && status.context == in + 1 && in[1] == 2);
    CHECK(mx_peek(ep, MX_INFINITE, &request, &result));
    EXPECT(1, result);
    CHECK(mx_context(&request, &context));
    TRUE(context == in);
    CHECK(mx_ipeek(ep, &sent, &result));
    TRUE(result == 1 && sent == request);
    CHECK(mx_test(ep, &request, &status, &result));
    TRUE(result == 1 && request == NULL && in[0] == 1);
    CHECK(mx_wait_any(ep, MX_INFINITE, ANY_BITS, 0, &status, &result));
    TRUE(result == 1 && status.context == in + 2 && in[2] == 3);
    CHECK(mx_test_any(ep, 0, 0, &status, &result));
    EXPECT(0, result);
    /* Sends count, too. */
    sent = isend(ep, me, 0x20, out, 1, out);
    CHECK(mx_wait_any(ep, MX_INFINITE, 0x20, ALL, &status, &result));
    TRUE(result == 1 && status.context == out);
    EXPECT(MX_BAD_REQUEST, mx_test(ep, &sent, &status, &result));
    request = irecv(ep, 0x20, ALL, in, 1, NULL);
    ended(ep, &request);
}

static void probing(void)
{
    char out[5] = "four", in[5];
    CHECK(mx_iprobe(ep, 0x30, ALL, &status, &result));
    EXPECT(0, result);
    CHECK(mx_probe(ep, 2, 0x30, ALL, &status, &result));
    EXPECT(0, result);
    mx_request_t sent = isend(ep, me, 0x30, out, 5, NULL);
    CHECK(mx_probe(ep, MX_INFINITE, 0x30, ALL, &status, &result));
    TRUE(result == 1 && status.msg_length == 5 && status.match_info == 0x30);
    TRUE(same(status.source, me) && status.code == MX_STATUS_SUCCESS);
    CHECK(mx_iprobe(ep, 0, 0, &status, &result));
    EXPECT(1, result);
    mx_request_t got = irecv(ep, 0x30, ALL, in, 5, NULL);
    ended(ep, &got);
    CHECK(mx_iprobe(ep, 0, 0, &status, &result));
    EXPECT(0, result);
    for (result = 0; result == 0;)
        CHECK(mx_ibuffered(ep, &sent, &result));
    ended(ep, &sent);
    got = irecv(ep, 0x31, ALL, in, 5, NULL);
    EXPECT(MX_BAD_REQUEST, mx_ibuffered(ep, &got, &result));
    CHECK(mx_cancel(ep, &got, &result));
}

/* The one receive that waits takes its message before a probe or another receive can. */
static void lone_receive(void)
{
    char out[2] = {1, 2}, in[2] = {0, 0};
    mx_request_t first = irecv(ep, 0x60, ALL, in, 1, NULL);
    mx_request_t sent = isend(ep, me, 0x60, out, 1, NULL);
    CHECK(mx_iprobe(ep, 0x60, ALL, &status, &result));
    EXPECT(0, result);
    mx_request_t second = irecv(ep, 0x60, ALL, in + 1, 1, NULL);
    mx_request_t other = isend(ep, me, 0x60, out + 1, 1, NULL);
    ended(ep, &second);
    ended(ep, &first);
    TRUE(in[0] == 1 && in[1] == 2);
    ended(ep, &sent);
    ended(ep, &other);
    /* After its time its memory is the program's, and the message somebody else's. */
    CHECK(mx_set_request_timeout(ep, NULL, 2));
    first = irecv(ep, 0x61, ALL, in, 1, NULL);
    CHECK(mx_set_request_timeout(ep, NULL, 0));
    EXPECT(MX_STATUS_TIMEOUT, ended(ep, &first).code);
    sent = isend(ep, me, 0x61, out + 1, 1, NULL);
    CHECK(mx_probe(ep, MX_INFINITE, 0x61, ALL, &status, &result));
    TRUE(result == 1 && in[0] == 1);
    second = irecv(ep, 0x61, ALL, in + 1, 1, NULL);
    ended(ep, &second);
    ended(ep, &sent);
}

static void ending_early(void)
{
    char byte = 7, in = 0;
    mx_request_t got = irecv(ep, 0x40, ALL, &in, 1, NULL), copy = got;
    CHECK(mx_cancel(ep, &got, &result));
    TRUE(result == 1 && got == NULL);
    EXPECT(MX_BAD_REQUEST, mx_test(ep, &copy, &status, &result));
    /* One that has matched is not cancelled, nor is a send. */
    mx_request_t sent = isend(ep, me, 0x40, &byte, 1, NULL);
    got = irecv(ep, 0x40, ALL, &in, 1, NULL);
    CHECK(mx_wait(ep, &got, 0, &status, &result));
    got = irecv(ep, 0x41, ALL, &in, 1, NULL);
    mx_request_t second = isend(ep, me, 0x41, &byte, 1, NULL);
    ended(ep, &second);
    for (result = 0; result == 0;)
        CHECK(mx_ipeek(ep, &copy, &result));
    CHECK(mx_cancel(ep, &got, &result));
    EXPECT(0, result);
    EXPECT(MX_CANCEL_NOT_SUPPORTED, mx_cancel(ep, &sent, &result));
    ended(ep, &got);
    ended(ep, &sent);
    /* A forgotten receive still takes its message. */
    in = 0;
    got = irecv(ep, 0x42, ALL, &in, 1, NULL);
    CHECK(mx_forget(ep, &got));
    TRUE(got == NULL);
    sent = isend(ep, me, 0x42, &byte, 1, NULL);
    ended(ep, &sent);
    while (*(volatile char *)&in == 0)
        CHECK(mx_progress(ep));
    CHECK(mx_test_any(ep, 0, 0, &status, &result));
    EXPECT(0, result);
}

static void timeouts(void)
{
    char byte = 1, in = 0;
    mx_segment_t segment = {&byte, 1};
    mx_request_t got = irecv(ep, 0x50, ALL, &in, 1, NULL), sent;
    CHECK(mx_set_request_timeout(ep, got, 5));
    EXPECT(MX_STATUS_TIMEOUT, ended(ep, &got).code);
    CHECK(mx_set_request_timeout(ep, NULL, 5));
    CHECK(mx_issend(ep, &segment, 1, me, 0x51, NULL, &sent));
    got = irecv(ep, 0x52, ALL, &in, 1, NULL);
    EXPECT(MX_STATUS_TIMEOUT, ended(ep, &got).code);
    status = ended(ep, &sent);
    TRUE(status.code == MX_STATUS_TIMEOUT && status.msg_length == 1 && status.xfer_length == 0);
    CHECK(mx_set_request_timeout(ep, NULL, MX_INFINITE));
    got = irecv(ep, 0x53, ALL, &in, 1, NULL);
    CHECK(mx_set_request_timeout(ep, got, 60000));
    CHECK(mx_set_request_timeout(ep, got, MX_INFINITE));
    sent = isend(ep, me, 0x53, &byte, 1, NULL);
    EXPECT(MX_STATUS_SUCCESS, ended(ep, &got).code);
    ended(ep, &sent);
    /* The send above may have left its message. */
    CHECK(mx_iprobe(ep, 0x51, ALL, &status, &result));
    if (result) {
        got = irecv(ep, 0x51, ALL, &in, 1, NULL);
        ended(ep, &got);
    }
}

static void *wake(void *arg)
{
    /* A wakeup wakes only the threads that wait at this moment. */
    while (*(volatile int *)arg == 0) {
        moment();
        CHECK(mx_wakeup(ep));
    }
    return NULL;
}

static void wakeup(void)
{
    char in;
    pthread_t thread;
    volatile int enough = 0;
    mx_request_t got = irecv(ep, 0x60, ALL, &in, 1, NULL), any;
    EXPECT(0, pthread_create(&thread, NULL, wake, (void *)&enough));
    CHECK(mx_wait(ep, &got, MX_INFINITE, &status, &result));
    EXPECT(0, result);
    CHECK(mx_wait_any(ep, MX_INFINITE, 0, 0, &status, &result));
    EXPECT(0, result);
    CHECK(mx_peek(ep, MX_INFINITE, &any, &result));
    EXPECT(0, result);
    CHECK(mx_probe(ep, MX_INFINITE, 0, 0, &status, &result));
    EXPECT(0, result);
    enough = 1;
    EXPECT(0, pthread_join(thread, NULL));
    CHECK(mx_cancel(ep, &got, &result));
    EXPECT(1, result);
}

static void progression(void)
{
    char byte = 9, in;
    mx_request_t got = irecv(ep, 0x70, ALL, &in, 1, NULL);
    CHECK(mx_disable_progression(ep));
    mx_request_t sent = isend(ep, me, 0x70, &byte, 1, NULL);
    CHECK(mx_wait(ep, &got, 3, &status, &result));
    EXPECT(0, result);
    CHECK(mx_reenable_progression(ep));
    ended(ep, &got);
    ended(ep, &sent);
}

/* The handler of unexpected messages: what it saw, and what it does. */
static struct {
    int calls;
    uint64_t match;
    uint32_t length;
    int has_data;
    mx_unexp_handler_action_t action;
    int closes, posts;
    char *into;
    mx_request_t got;
} seen;

static mx_unexp_handler_action_t handle(void *context, mx_endpoint_addr_t source, uint64_t match,
                                        uint32_t length, void *data)
{
    TRUE(context == &seen && same(source, me));
    seen.calls++;
    seen.match = match;
    seen.length = length;
    seen.has_data = data != NULL;
    if (data != NULL)
        check_bytes(data, length, (uint32_t)match);
    if (seen.closes) {
        EXPECT(MX_CLOSE_IN_HANDLER, mx_close_endpoint(ep));
        EXPECT(MX_CLOSE_IN_HANDLER, mx_finalize());
        TRUE(same(me, own(ep)));
    }
    if (seen.posts)
        seen.got = irecv(ep, match, ALL, seen.into, length, NULL);
    return seen.action;
}

/* Sends a message to the handler; returns when that has seen it. */
static void to_handler(uint64_t match, char *out, uint32_t len, int sync)
{
    mx_segment_t segment = {out, len};
    int before = seen.calls;
    fill(out, len, (uint32_t)match);
    if (sync)
        CHECK(mx_issend(ep, &segment, 1, me, match, NULL, NULL));
    else
        CHECK(mx_isend(ep, &segment, 1, me, match, NULL, NULL));
    while (seen.calls == before)
        CHECK(mx_progress(ep));
    TRUE(seen.calls == before + 1 && seen.match == match && seen.length == len);
}

static void handler(void)
{
    static char out[100000], second[64], in[100000];
    memset(&seen, 0, sizeof seen);
    CHECK(mx_register_unexp_handler(ep, handle, &seen));
    /* Dropped; whoever waits for the match of a dropped message goes on. */
    seen.action = MX_RECV_FINISHED;
    seen.closes = 1;
    to_handler(0x80, out, 100, 0);
    EXPECT(1, seen.has_data);
    to_handler(0x81, out, 4096, 0);
    EXPECT(1, seen.has_data);
    to_handler(0x82, out, 100000, 0);
    EXPECT(0, seen.has_data);
    mx_segment_t segment = {out, 10};
    mx_request_t sent;
    fill(out, 10, 0x83);
    CHECK(mx_issend(ep, &segment, 1, me, 0x83, NULL, &sent));
    EXPECT(MX_STATUS_SUCCESS, ended(ep, &sent).code);
    EXPECT(0, seen.has_data);
    CHECK(mx_iprobe(ep, 0, 0, &status, &result));
    EXPECT(0, result);
    /* Left: a later receive finds the messages in their order. */
    seen.action = MX_RECV_CONTINUE;
    seen.closes = 0;
    to_handler(0x84, out, 100000, 0);
    to_handler(0x84, second, 64, 0);
    CHECK(mx_probe(ep, MX_INFINITE, 0x84, ALL, &status, &result));
    TRUE(result == 1 && status.msg_length == 100000);
    mx_request_t got = irecv(ep, 0x84, ALL, in, sizeof in, NULL);
    status = ended(ep, &got);
    EXPECT(100000, status.msg_length);
    check_bytes(in, 100000, 0x84);
    got = irecv(ep, 0x84, ALL, in, 10, NULL);
    status = ended(ep, &got);
    TRUE(status.code == MX_STATUS_TRUNCATED && status.msg_length == 64);
    /* A receive that the handler posts takes the message. */
    seen.posts = 1;
    seen.into = in;
    for (int len = 1000; len <= 100000; len *= 10) {
        memset(in, 0, sizeof in);
        to_handler(0x85, out, (uint32_t)len, 0);
        status = ended(ep, &seen.got);
        TRUE(status.code == MX_STATUS_SUCCESS && status.xfer_length == (uint32_t)len);
        check_bytes(in, (size_t)len, 0x85);
    }
    seen.posts = 0;
    /* A message with a receive does not come to it. */
    int before = seen.calls;
    got = irecv(ep, 0x86, ALL, in, 64, NULL);
    sent = isend(ep, me, 0x86, second, 64, NULL);
    ended(ep, &got);
    ended(ep, &sent);
    EXPECT(before, seen.calls);
    CHECK(mx_register_unexp_handler(ep, NULL, NULL));
}

static void contexts(void)
{
    mx_param_t param;
    mx_endpoint_t of;
    mx_request_t request;
    char byte = 1, in;
    memset(&param, 0, sizeof param);
    param.key = MX_PARAM_CONTEXT_ID;
    param.val.context_id.bits = 4;
    param.val.context_id.shift = 60;
    CHECK(mx_open_endpoint(0, 20, 0, &param, 1, &of));
    const mx_return_t code = MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK;
    EXPECT(code, mx_irecv(of, NULL, 0, 0, 0xff, NULL, &request));
    EXPECT(code, mx_test_any(of, 0, 0, &status, &result));
    EXPECT(code, mx_wait_any(of, 1, 0, 0, &status, &result));
    EXPECT(code, mx_iprobe(of, 0, 0, &status, &result));
    EXPECT(code, mx_probe(of, 1, 0, 0, &status, &result));
    const uint64_t mask = (uint64_t)0xf << 60;
    mx_request_t sent = isend(of, own(of), (uint64_t)3 << 60 | 5, &byte, 1, NULL);
    mx_request_t got = irecv(of, (uint64_t)3 << 60, mask, &in, 1, NULL);
    ended(of, &sent);
    status = ended(of, &got);
    TRUE(status.match_info == ((uint64_t)3 << 60 | 5));
    CHECK(mx_close_endpoint(of));
}

static void addresses(void)
{
    uint64_t id = 0;
    uint32_t number = 0, session = 0, other = 0;
    void *context = &id;
    mx_endpoint_addr_t wrong = me;
    CHECK(mx_decompose_endpoint_addr(me, &id, &number));
    TRUE(id == nic() && number == 7);
    CHECK(mx_decompose_endpoint_addr(me, NULL, NULL));
    CHECK(mx_decompose_endpoint_addr2(me, &id, &number, &session));
    TRUE(id == nic() && number == 7);
    CHECK(mx_get_endpoint_addr_context(me, &context));
    TRUE(context == NULL);
    CHECK(mx_set_endpoint_addr_context(me, &number));
    CHECK(mx_get_endpoint_addr_context(me, &context));
    TRUE(context == &number);
    EXPECT(MX_BAD_INFO_VAL, mx_get_endpoint_addr_context(me, NULL));
    mx_endpoint_t of = opened(21, 0);
    mx_endpoint_addr_t its = own(of);
    CHECK(mx_decompose_endpoint_addr2(its, &id, &number, &other));
    TRUE(number == 21 && other != session);
    /* The address of one endpoint is none of another. */
    EXPECT(MX_BAD_ENDPOINT, mx_isend(ep, NULL, 0, its, 0, NULL, NULL));
    EXPECT(MX_BAD_ENDPOINT, mx_disconnect(ep, its));
    CHECK(mx_close_endpoint(of));
    EXPECT(MX_BAD_ENDPOINT, mx_set_endpoint_addr_context(its, NULL));
    for (int bit = 0; bit < 128; bit++) {
        wrong = me;
        wrong.stuff[bit / 64] ^= (uint64_t)1 << bit % 64;
        if (bit >= 96 && bit < 104)
            continue; /* The connection: the status says that it has ended. */
        EXPECT(MX_BAD_ENDPOINT, mx_isend(ep, NULL, 0, wrong, 0, NULL, NULL));
        EXPECT(MX_BAD_ENDPOINT, mx_get_endpoint_addr_context(wrong, &context));
    }
}

static void connecting(void)
{
    mx_endpoint_t of = opened(22, 0x1234);
    mx_endpoint_addr_t addr, again;
    mx_request_t request;
    char byte = 5, in = 0;
    EXPECT(MX_NIC_NOT_FOUND, mx_connect(ep, 42, 22, 0x1234, 1000, &addr));
    EXPECT(MX_BAD_ENDPOINT_ID, mx_connect(ep, nic(), 256, 0, 1000, &addr));
    EXPECT(MX_CONNECTION_FAILED, mx_connect(ep, nic(), 99, 0, 1000, &addr));
    EXPECT(MX_BAD_CONNECTION_KEY, mx_connect(ep, nic(), 22, 0x1235, MX_INFINITE, &addr));
    CHECK(mx_connect(ep, nic(), 22, 0x1234, MX_INFINITE, &addr));
    CHECK(mx_connect(ep, nic(), 22, 0x1234, MX_INFINITE, &again));
    TRUE(same(addr, again));
    int context;
    struct {
        uint64_t id;
        uint32_t number, key;
        mx_status_code_t code;
    } cases[] = {
        {42, 22, 0x1234, MX_STATUS_ENDPOINT_UNKNOWN}, {nic(), 256, 0, MX_STATUS_BAD_ENDPOINT},
        {nic(), 99, 0, MX_STATUS_ENDPOINT_CLOSED},    {nic(), 22, 0, MX_STATUS_BAD_KEY},
        {nic(), 22, 0x1234, MX_STATUS_SUCCESS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(mx_iconnect(ep, cases[i].id, cases[i].number, cases[i].key, 0x90 + i, &context,
                          &request));
        CHECK(mx_wait_any(ep, MX_INFINITE, 0x90 + i, ALL, &status, &result));
        TRUE(result == 1 && status.context == &context);
        EXPECT(cases[i].code, status.code);
    }
    TRUE(same(status.source, addr));
    /* Disconnected: sends that wait end, and the address is of no use until it connects again. */
    mx_segment_t segment = {&byte, 1};
    CHECK(mx_issend(ep, &segment, 1, addr, 1, NULL, &request));
    CHECK(mx_disconnect(ep, addr));
    EXPECT(MX_STATUS_ENDPOINT_UNREACHABLE, ended(ep, &request).code);
    request = isend(ep, addr, 1, &byte, 1, NULL);
    EXPECT(MX_STATUS_BAD_SESSION, ended(ep, &request).code);
    CHECK(mx_disconnect(ep, addr));
    CHECK(mx_connect(ep, nic(), 22, 0x1234, MX_INFINITE, &again));
    TRUE(!same(addr, again));
    request = isend(ep, again, 2, &byte, 1, NULL);
    mx_request_t got = irecv(of, 2, ALL, &in, 1, NULL);
    status = ended(of, &got);
    uint64_t id;
    uint32_t number;
    CHECK(mx_decompose_endpoint_addr(status.source, &id, &number));
    TRUE(in == 5 && id == nic() && number == 7);
    EXPECT(MX_STATUS_SUCCESS, ended(ep, &request).code);
    /* Closed: the next send says so. */
    CHECK(mx_close_endpoint(of));
    do {
        request = isend(ep, again, 3, &byte, 1, NULL);
        status = ended(ep, &request);
    } while (status.code == MX_STATUS_SUCCESS);
    EXPECT(MX_STATUS_ENDPOINT_CLOSED, status.code);
}

static void info(void)
{
    uint32_t count = 0, number = 0;
    uint64_t ids[64] = {0};
    EXPECT(MX_BAD_INFO_VAL, mx_get_info(NULL, MX_NIC_COUNT, NULL, 0, NULL, 4));
    EXPECT(MX_BAD_INFO_LENGTH, mx_get_info(NULL, MX_NIC_COUNT, NULL, 0, &count, 3));
    EXPECT(MX_BAD_INFO_KEY, mx_get_info(NULL, (mx_get_info_key_t)99, NULL, 0, &count, 4));
    CHECK(mx_get_info(NULL, MX_NIC_COUNT, NULL, 0, &count, sizeof count));
    TRUE(count > 0 && count < 63);
    EXPECT(MX_BAD_INFO_LENGTH, mx_get_info(NULL, MX_NIC_IDS, NULL, 0, ids, 8 * count));
    CHECK(mx_get_info(ep, MX_NIC_IDS, NULL, 0, ids, sizeof ids));
    TRUE(ids[0] == nic() && ids[count] == 0);
    struct {
        mx_get_info_key_t key;
        uint32_t value;
    } numbers[] = {
        {MX_MAX_NATIVE_ENDPOINTS, 256}, {MX_NATIVE_REQUESTS, UINT32_MAX}, {MX_PORT_COUNT, 1},
        {MX_PIO_SEND_MAX, 128},         {MX_COPY_SEND_MAX, 32768},
        {MX_NET_TYPE, MX_NET_ETHER},    {MX_LINE_SPEED, MX_SPEED_OPEN_MX},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        CHECK(mx_get_info(ep, numbers[i].key, NULL, 0, &number, sizeof number));
        EXPECT(numbers[i].value, number);
    }
    uint32_t board = 0, none = 9999;
    CHECK(mx_get_info(NULL, MX_NUMA_NODE, &board, sizeof board, &number, sizeof number));
    CHECK(mx_get_info(ep, MX_NUMA_NODE, NULL, 0, &number, sizeof number));
    EXPECT(MX_BAD_INFO_VAL, mx_get_info(NULL, MX_NUMA_NODE, NULL, 4, &number, 4));
    EXPECT(MX_BAD_INFO_LENGTH, mx_get_info(NULL, MX_NUMA_NODE, &board, 0, &number, 4));
    EXPECT(MX_BOARD_UNKNOWN, mx_get_info(NULL, MX_NUMA_NODE, &none, 4, &number, 4));
    CHECK(mx_get_info(ep, MX_COUNTERS_COUNT, NULL, 0, &count, sizeof count));
    uint32_t *values = calloc(count, sizeof *values);
    char *labels = calloc(count, MX_MAX_STR_LEN), text[4];
    CHECK(mx_get_info(ep, MX_COUNTERS_VALUES, NULL, 0, values, count * 4));
    CHECK(mx_get_info(ep, MX_COUNTERS_LABELS, NULL, 0, labels, count * MX_MAX_STR_LEN));
    TRUE(strlen(labels) > 0 && strlen(labels + (count - 1) * MX_MAX_STR_LEN) > 0);
    EXPECT(MX_BAD_INFO_LENGTH, mx_get_info(ep, MX_COUNTERS_VALUES, NULL, 0, values, count));
    const mx_get_info_key_t texts[] = {MX_PRODUCT_CODE, MX_PART_NUMBER, MX_SERIAL_NUMBER};
    for (int i = 0; i < 3; i++) {
        memset(text, 'x', sizeof text);
        CHECK(mx_get_info(NULL, texts[i], NULL, 0, text, 3));
        TRUE(text[2] == 0 && text[3] == 'x');
    }
    free(values);
    free(labels);
}

static void names(void)
{
    char name[MX_MAX_HOSTNAME_LEN], local[] = "localhost", nobody[] = "no.such.host.invalid";
    char endless[200], board[] = "localhost:9999", listed[] = "far";
    uint64_t id = 0;
    uint32_t number = 9;
    memset(endless, 'x', sizeof endless);
    CHECK(mx_hostname_to_nic_id(local, &id));
    TRUE(id == nic());
    CHECK(mx_nic_id_to_hostname(id, name));
    id = 0;
    CHECK(mx_hostname_to_nic_id(name, &id));
    TRUE(id == nic());
    EXPECT(MX_BAD_HOSTNAME_ARGS, mx_hostname_to_nic_id(NULL, &id));
    EXPECT(MX_BAD_HOSTNAME_ARGS, mx_hostname_to_nic_id(local, NULL));
    EXPECT(MX_BAD_HOSTNAME_ARGS, mx_hostname_to_nic_id(endless, &id));
    EXPECT(MX_BAD_HOSTNAME_ARGS, mx_nic_id_to_hostname(id, NULL));
    EXPECT(MX_HOST_NOT_FOUND, mx_hostname_to_nic_id(board, &id));
    EXPECT(MX_HOST_NOT_FOUND, mx_hostname_to_nic_id(nobody, &id));
    EXPECT(MX_NIC_NOT_FOUND, mx_nic_id_to_hostname(42, name));
    CHECK(mx_nic_id_to_board_number(nic(), &number));
    EXPECT(0, number);
    EXPECT(MX_BOARD_UNKNOWN, mx_nic_id_to_board_number(42, &number));
    EXPECT(MX_BAD_INFO_VAL, mx_nic_id_to_board_number(nic(), NULL));
    EXPECT(MX_BOARD_UNKNOWN, mx_board_number_to_nic_id(9999, &id));
    EXPECT(MX_BAD_INFO_VAL, mx_board_number_to_nic_id(0, NULL));
    if (getenv("WEFT_MX_PEERS") != NULL) {
        CHECK(mx_hostname_to_nic_id(listed, &id));
        TRUE(id == (uint64_t)0x02570a090807);
        CHECK(mx_nic_id_to_hostname(id, name));
        TRUE(strcmp(name, "far:0") == 0);
    }
}

static void texts(void)
{
    for (int code = 0; code < 44; code++)
        TRUE(strlen(mx_strerror((mx_return_t)code)) > 3);
    for (int code = 0; code < 17; code++)
        TRUE(strlen(mx_strstatus((mx_status_code_t)code)) > 3);
    TRUE(strcmp(mx_strerror(MX_SUCCESS), "success") == 0);
    TRUE(strcmp(mx_strerror((mx_return_t)44), mx_strerror((mx_return_t)-1)) == 0);
}

static void never(void)
{
    mx_request_t request = NULL;
    EXPECT(MX_FAILURE, mx_register_unexp_callback(ep, NULL, NULL));
    EXPECT(MX_FAILURE, mx_iput(ep, NULL, 0, me, 0, NULL, &request));
    EXPECT(MX_FAILURE, mx_iget(ep, NULL, 0, me, 0, NULL, &request));
    EXPECT(MX_FAILURE, mx_buffered(ep, &request, 0, &result));
    mx_mapper_state_t state;
    mx_endpt_handle_t handle = MX__INVALID_HANDLE;
    CHECK(mx_open_board(0, &handle));
    EXPECT(0, handle);
    CHECK(mx__get_mapper_state(handle, &state));
    TRUE(state.mapper_mac[0] == 0x02 && state.network_configured == 1);
    EXPECT(MX_BAD_INFO_VAL, mx__get_mapper_state(handle, NULL));
    EXPECT(0, mx__regcache_clean(&state, sizeof state));
}

enum { THREADS = 4, ROUNDS = 200 };

/* Sends messages to itself and receives them, each thread its own. */
static void *talk(void *arg)
{
    const uint64_t match = 0x1000 + (uint64_t)(uintptr_t)arg;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t in = 0;
        mx_request_t got = irecv(ep, match, ALL, &in, sizeof in, NULL);
        mx_request_t sent = isend(ep, me, match, &i, sizeof i, NULL);
        EXPECT(MX_STATUS_SUCCESS, ended(ep, &got).code);
        EXPECT(MX_STATUS_SUCCESS, ended(ep, &sent).code);
        EXPECT(i, in);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t all[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        EXPECT(0, pthread_create(&all[i], NULL, talk, (void *)i));
    for (int i = 0; i < THREADS; i++)
        EXPECT(0, pthread_join(all[i], NULL));
}

/* A child made by fork has no endpoint. */
static void child(void)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        EXPECT(MX_BUSY, mx_progress(ep));
        EXPECT(MX_BUSY, mx_wakeup(ep));
        EXPECT(MX_BUSY, mx_close_endpoint(ep));
        TRUE(strstr(mx_strerror(MX_BUSY), "fork") != NULL);
        /* The child may end its own use of the library, and begins no other. */
        EXPECT(MX_BUSY, mx_init());
        CHECK(mx_finalize());
        EXPECT(MX_NOT_INITIALIZED, mx_finalize());
        EXPECT(MX_BUSY, mx_init());
        _exit(0);
    }
    int how = 0;
    TRUE(waitpid(pid, &how, 0) == pid && WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static void handlers_of_errors(void)
{
    TRUE(mx_set_error_handler(hear) == MX_ERRORS_RETURN);
    EXPECT(MX_FAILURE, mx_progress(NULL));
    EXPECT(MX_BAD_ENDPOINT, heard);
    TRUE(strcmp(heard_text, "mx_progress") == 0);
    TRUE(mx_set_error_handler(NULL) == hear);
    TRUE(mx_set_error_handler(MX_ERRORS_RETURN) == MX_ERRORS_ARE_FATAL);
}

static void *wait_for_ever(void *arg)
{
    char in;
    mx_request_t got = irecv(arg, 1, ALL, &in, 1, NULL);
    uint32_t found;
    mx_status_t of;
    return (void *)(intptr_t)mx_wait(arg, &got, MX_INFINITE, &of, &found);
}

static mx_request_t awaited;

static void *wait_for_awaited(void *arg)
{
    uint32_t found;
    mx_status_t of;
    return (void *)(intptr_t)mx_wait(arg, &awaited, MX_INFINITE, &of, &found);
}

/* A thread that waits learns that another one has forgotten the request. */
static void forgotten(void)
{
    char in;
    mx_request_t copy = awaited = irecv(ep, 1, ALL, &in, 1, NULL);
    pthread_t thread;
    void *code;
    EXPECT(0, pthread_create(&thread, NULL, wait_for_awaited, ep));
    for (int i = 0; i < 5; i++)
        moment();
    CHECK(mx_forget(ep, &copy));
    EXPECT(0, pthread_join(thread, &code));
    EXPECT(MX_BAD_REQUEST, (intptr_t)code);
    /* The receive goes on: this message is for it. */
    mx_request_t sent = isend(ep, me, 1, "x", 1, NULL);
    uint32_t found;
    mx_status_t of;
    CHECK(mx_wait(ep, &sent, MX_INFINITE, &of, &found));
}

/* A thread that waits learns that its endpoint is closed. */
static void closing(void)
{
    mx_endpoint_t of = opened(23, 0);
    pthread_t thread;
    void *code;
    EXPECT(0, pthread_create(&thread, NULL, wait_for_ever, of));
    for (int i = 0; i < 5; i++)
        moment();
    CHECK(mx_close_endpoint(of));
    EXPECT(0, pthread_join(thread, &code));
    EXPECT(MX_BAD_ENDPOINT, (intptr_t)code);
}

/* Nobody can receive a long message of an endpoint to itself when that closes: the log of this
 * program must not say that such a message was lost after a long wait. */
static void closing_with_messages(void)
{
    static char out[300000], in[sizeof out];
    for (int posts = 0; posts < 2; posts++) {
        mx_endpoint_t of = opened(24, 0);
        isend(of, own(of), 1, out, sizeof out, NULL);
        if (posts)
            irecv(of, 1, ALL, in, sizeof in, NULL);
        CHECK(mx_close_endpoint(of));
    }
}

static atomic_int begins, is_closed;

static void *close_it(void *of)
{
    begins = 1;
    CHECK(mx_close_endpoint(of));
    is_closed = 1;
    return NULL;
}

/* Endpoints open while another thread closes one that waits for the other side of its messages. */
static void opening_meanwhile(void)
{
    static char out[300000];
    mx_endpoint_t silent = opened(25, 0), of = opened(26, 0);
    mx_endpoint_addr_t to;
    pthread_t thread;
    CHECK(mx_connect(of, nic(), 25, 0, MX_INFINITE, &to));
    CHECK(mx_disable_progression(silent));
    isend(of, to, 1, out, sizeof out, NULL);
    EXPECT(0, pthread_create(&thread, NULL, close_it, of));
    while (!begins)
        moment();
    /* The thread has no lock yet when the first of these opens, perhaps. */
    for (int i = 0; i < 4; i++)
        CHECK(mx_close_endpoint(opened(27, 0)));
    TRUE(!is_closed);
    CHECK(mx_reenable_progression(silent));
    CHECK(mx_close_endpoint(silent));
    EXPECT(0, pthread_join(thread, NULL));
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "fatal") == 0) {
        CHECK(mx_init());
        mx_progress(NULL);
        return 0;
    }
    TRUE(mx_set_error_handler(MX_ERRORS_RETURN) != NULL && argv != NULL);
    if (argc == 2) {
        /* No link opens. */
        CHECK(mx_init());
        EXPECT(MX_NO_DEV, mx_open_endpoint(0, 7, 0, NULL, 0, &ep));
        CHECK(mx_finalize());
        return 0;
    }
    before_init();
    ep = opened(7, 0x77);
    me = own(ep);
    void (*const all[])(void) = {opening, wrong_handles, wrong_requests, places, segments,
                                 masks, messages, any_request, probing, lone_receive,
                                 ending_early, timeouts, wakeup, progression, handler, contexts,
                                 addresses, connecting, info, names, texts,
                                 never, threads, child, forgotten, closing, closing_with_messages,
                                 opening_meanwhile, handlers_of_errors};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        all[i]();
    CHECK(mx_finalize());
    EXPECT(MX_NOT_INITIALIZED, mx_progress(ep));
    CHECK(mx_init());
    EXPECT(MX_BAD_ENDPOINT, mx_progress(ep));
    CHECK(mx_finalize());
    return 0;
}
