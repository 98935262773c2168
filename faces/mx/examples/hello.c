/* A client sends a line to a server, which answers it. */
#define _POSIX_C_SOURCE 200809L
#include "mx_check.h"

#include <time.h>

enum { SERVER = 3, KEY = 0x5eed, ROOM = 256 };

/* Match bits of the two messages. */
static const uint64_t QUESTION = 1, ANSWER = 2;

static mx_endpoint_t endpoint;

/* Sends a text. */
static void send_text(mx_endpoint_addr_t to, uint64_t match, char *text)
{
    mx_segment_t segment = {text, (uint32_t)strlen(text) + 1};
    mx_request_t request;
    CHECK(mx_isend(endpoint, &segment, 1, to, match, NULL, &request));
    wait_for(endpoint, &request);
}

/* Receives a text; returns its sender. */
static mx_endpoint_addr_t receive_text(uint64_t match, char *text)
{
    mx_segment_t segment = {text, ROOM};
    mx_request_t request;
    CHECK(mx_irecv(endpoint, &segment, 1, match, MX_MATCH_MASK_NONE, NULL, &request));
    return wait_for(endpoint, &request).source;
}

static void serve(void)
{
    char text[ROOM], answer[ROOM + 16];
    CHECK(mx_open_endpoint(MX_ANY_NIC, SERVER, KEY, NULL, 0, &endpoint));
    mx_endpoint_addr_t client = receive_text(QUESTION, text);
    printf("server received: %s\n", text);
    snprintf(answer, sizeof answer, "hello, %s", text);
    send_text(client, ANSWER, answer);
}

static void ask(char *host)
{
    char name[] = "client", answer[ROOM];
    uint64_t nic;
    mx_endpoint_addr_t server;
    CHECK(mx_open_endpoint(MX_ANY_NIC, MX_ANY_ENDPOINT, 0, NULL, 0, &endpoint));
    CHECK(mx_hostname_to_nic_id(host, &nic));
    /* The server may be opened later. */
    const struct timespec moment = {0, 10000000};
    while (mx_connect(endpoint, nic, SERVER, KEY, MX_INFINITE, &server) == MX_CONNECTION_FAILED)
        nanosleep(&moment, NULL);
    send_text(server, QUESTION, name);
    receive_text(ANSWER, answer);
    printf("client received: %s\n", answer);
}

int main(int argc, char **argv)
{
    mx_set_error_handler(MX_ERRORS_RETURN);
    CHECK(mx_init());
    if (argc == 2 && strcmp(argv[1], "server") == 0)
        serve();
    else if (argc == 3 && strcmp(argv[1], "client") == 0)
        ask(argv[2]);
    else
        return fprintf(stderr, "use: hello server, or: hello client HOST\n"), 2;
    CHECK(mx_close_endpoint(endpoint));
    CHECK(mx_finalize());
    return 0;
}
