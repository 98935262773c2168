/* Memory that a send lends to the frames of MX over Ethernet: a program has it back as soon as the
   send has ended, also before its message has left. */
#define _POSIX_C_SOURCE 200809L
#include "common.h"

enum { SERVER = 3, HELLO = 1, LONG_ONE, GO, DONE, LOST, LEN = 400000, PATIENCE_MS = 30 };

static mx_endpoint_t ep;

/* The time of a send ends before its receiver wants it: the message is what it was then. */
static void late(mx_endpoint_addr_t to)
{
    char *out = malloc(LEN);
    fill(out, LEN, 5);
    mx_request_t request = isend(ep, to, LONG_ONE, out, LEN, NULL);
    CHECK(mx_set_request_timeout(ep, request, PATIENCE_MS));
    EXPECT(MX_STATUS_TIMEOUT, ended(ep, &request).code);
    memset(out, 0, LEN);
    free(out);
    char byte = 0;
    request = isend(ep, to, GO, &byte, 1, NULL);
    ended(ep, &request);
    request = irecv(ep, DONE, ALL, &byte, 1, NULL);
    ended(ep, &request);
}

/* Sends end with their peer: nobody reads or writes memory that is gone. */
static void lost(mx_endpoint_addr_t to)
{
    char *out = malloc(LEN), *in = malloc(LEN), byte = 0;
    mx_request_t sent = isend(ep, to, LOST, out, LEN, NULL);
    mx_request_t came = irecv(ep, LOST, ALL, in, LEN, NULL);
    mx_request_t told = isend(ep, to, GO, &byte, 1, NULL);
    const mx_status_code_t code = ended(ep, &sent).code;
    TRUE(code == MX_STATUS_ENDPOINT_CLOSED || code == MX_STATUS_ENDPOINT_UNREACHABLE);
    ended(ep, &told);
    free(out);
    uint32_t result;
    mx_status_t status;
    CHECK(mx_cancel(ep, &came, &result));
    if (result == 0)
        CHECK(mx_wait(ep, &came, MX_INFINITE, &status, &result));
    free(in);
    for (int i = 0; i < 20; i++) {
        CHECK(mx_progress(ep));
        moment();
    }
}

static void client(void)
{
    mx_endpoint_addr_t to;
    char byte = 0;
    while (mx_connect(ep, server_nic(), SERVER, 0, MX_INFINITE, &to) == MX_CONNECTION_FAILED)
        moment();
    mx_request_t request = isend(ep, to, HELLO, &byte, 1, NULL);
    ended(ep, &request);
    late(to);
    lost(to);
}

static void server(void)
{
    char byte, *in = malloc(LEN);
    mx_request_t request = irecv(ep, HELLO, ALL, &byte, 1, NULL);
    const mx_endpoint_addr_t to = ended(ep, &request).source;
    request = irecv(ep, GO, ALL, &byte, 1, NULL);
    ended(ep, &request);
    request = irecv(ep, LONG_ONE, ALL, in, LEN, NULL);
    const mx_status_t status = ended(ep, &request);
    EXPECT(MX_STATUS_SUCCESS, status.code);
    EXPECT(LEN, status.xfer_length);
    check_bytes(in, LEN, 5);
    request = isend(ep, to, DONE, &byte, 1, NULL);
    ended(ep, &request);
    request = irecv(ep, GO, ALL, &byte, 1, NULL);
    ended(ep, &request);
    /* This process dies while it pulls one message, and another one is pulled from it. */
    request = irecv(ep, LOST, ALL, in, LEN, NULL);
    isend(ep, to, LOST, in, LEN, NULL);
    mx_progress(ep);
    printf("all is as it has to be\n");
    fflush(stdout);
    raise(SIGKILL);
}

int main(int argc, char **argv)
{
    TRUE(argc >= 2);
    const int is_server = strcmp(argv[1], "server") == 0;
    mx_set_error_handler(MX_ERRORS_RETURN);
    CHECK(mx_init());
    ep = opened(is_server ? SERVER : MX_ANY_ENDPOINT, 0);
    if (is_server) {
        server();
        return 1;
    }
    client();
    CHECK(mx_finalize());
    printf("all is as it has to be\n");
    return 0;
}
