/* A client ends in some way under a server, which learns of it by a status. */
#define _POSIX_C_SOURCE 200809L
#include "common.h"

enum { SERVER = 3 };

static mx_endpoint_t ep;

static void client(const char *way)
{
    mx_endpoint_addr_t server;
    char byte = 1;
    while (mx_connect(ep, server_nic(), SERVER, 0, MX_INFINITE, &server) == MX_CONNECTION_FAILED)
        moment();
    mx_request_t request = isend(ep, server, 1, &byte, 1, NULL);
    ended(ep, &request);
    request = irecv(ep, 2, ALL, &byte, 1, NULL);
    ended(ep, &request);
    if (strcmp(way, "exit") == 0)
        exit(0);
    raise(strcmp(way, "kill") == 0 ? SIGKILL : SIGSTOP);
}

static void serve(const char *way)
{
    char byte = 0;
    mx_segment_t segment = {&byte, 1};
    mx_request_t request = irecv(ep, 1, ALL, &byte, 1, NULL), never;
    mx_status_t status = ended(ep, &request);
    mx_endpoint_addr_t other = status.source;
    /* The last send waits for a match that never comes. */
    CHECK(mx_issend(ep, &segment, 1, other, 9, NULL, &never));
    request = isend(ep, other, 2, &byte, 1, NULL);
    ended(ep, &request);
    mx_status_code_t code = ended(ep, &never).code;
    TRUE(code == MX_STATUS_ENDPOINT_CLOSED || code == MX_STATUS_ENDPOINT_UNREACHABLE);
    if (strcmp(way, "exit") == 0)
        EXPECT(MX_STATUS_ENDPOINT_CLOSED, code);
    /* Later sends say the same. */
    request = isend(ep, other, 3, &byte, 1, NULL);
    EXPECT(code, ended(ep, &request).code);
    CHECK(mx_disconnect(ep, other));
    CHECK(mx_finalize());
    printf("the server goes on\n");
}

int main(int argc, char **argv)
{
    TRUE(argc == 3);
    const int server = strcmp(argv[1], "server") == 0;
    mx_set_error_handler(MX_ERRORS_RETURN);
    CHECK(mx_init());
    ep = opened(server ? SERVER : MX_ANY_ENDPOINT, 0);
    if (server)
        serve(argv[2]);
    else
        client(argv[2]);
    return 0;
}
