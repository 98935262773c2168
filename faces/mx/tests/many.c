/* 64 endpoints of a server, and a client that talks with each; numbers that are taken, or that
   nobody has. */
#define _POSIX_C_SOURCE 200809L
#include "common.h"

enum { COUNT = 64, KEY = 0x77, FIRST = 100, NOBODY = 50, LONG = 70000 };

static mx_status_t status;
static uint32_t result;

/* Another process cannot have a number that is taken. */
static void taken(char **argv)
{
    const pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", argv[0], "taken", NULL);
        _exit(1);
    }
    int end;
    EXPECT(child, waitpid(child, &end, 0));
    TRUE(WIFEXITED(end) && WEXITSTATUS(end) == 0);
}

static void serve(char **argv)
{
    mx_endpoint_t all[COUNT], none;
    static char bytes[LONG];
    for (uint32_t i = 0; i < COUNT; i++)
        all[i] = opened(FIRST + i, KEY);
    EXPECT(MX_BUSY, mx_open_endpoint(0, FIRST + 5, KEY, NULL, 0, &none));
    taken(argv);
    for (uint32_t i = 0; i < COUNT; i++) {
        const uint32_t len = i % 2 == 0 ? i : LONG;
        mx_request_t request = irecv(all[i], i, ALL, bytes, LONG, NULL);
        status = ended(all[i], &request);
        TRUE(status.code == MX_STATUS_SUCCESS && status.xfer_length == len);
        check_bytes(bytes, len, i);
        request = isend(all[i], status.source, i, bytes, len, NULL);
        EXPECT(MX_STATUS_SUCCESS, ended(all[i], &request).code);
    }
    for (uint32_t i = 0; i < COUNT; i++)
        CHECK(mx_close_endpoint(all[i]));
}

static void ask(void)
{
    static char out[LONG], in[LONG];
    mx_endpoint_t ep = opened(MX_ANY_ENDPOINT, 0);
    mx_endpoint_addr_t to, none;
    const uint64_t id = server_nic();
    for (uint32_t i = 0; i < COUNT; i++) {
        while (mx_connect(ep, id, FIRST + i, KEY, MX_INFINITE, &to) == MX_CONNECTION_FAILED)
            moment();
        uint64_t nic_of;
        uint32_t number, session;
        CHECK(mx_decompose_endpoint_addr2(to, &nic_of, &number, &session));
        TRUE(nic_of == id && number == FIRST + i);
        if (i == 0) {
            /* An endpoint that speaks for its host says that nobody has the number. */
            EXPECT(MX_CONNECTION_FAILED, mx_connect(ep, id, NOBODY, KEY, MX_INFINITE, &none));
            EXPECT(MX_BAD_CONNECTION_KEY, mx_connect(ep, id, FIRST, KEY + 1, MX_INFINITE, &none));
            CHECK(mx_connect(ep, id, FIRST, KEY, MX_INFINITE, &to));
        }
        const uint32_t len = i % 2 == 0 ? i : LONG;
        fill(out, len, i);
        mx_segment_t segment = {out, len};
        mx_request_t sent, answer = irecv(ep, i, ALL, in, LONG, NULL);
        CHECK(mx_issend(ep, &segment, 1, to, i, NULL, &sent));
        EXPECT(MX_STATUS_SUCCESS, ended(ep, &sent).code);
        status = ended(ep, &answer);
        TRUE(status.code == MX_STATUS_SUCCESS && status.xfer_length == len);
        TRUE(same(status.source, to));
        check_bytes(in, len, i);
    }
    /* A receive that is too short, of an announced message of this endpoint's own. */
    mx_request_t cut = irecv(ep, 1, ALL, in, 10, NULL);
    mx_request_t sent = isend(ep, own(ep), 1, out, LONG, NULL);
    status = ended(ep, &cut);
    TRUE(status.code == MX_STATUS_TRUNCATED && status.msg_length == LONG);
    ended(ep, &sent);
    CHECK(mx_wakeup(ep));
    CHECK(mx_test_any(ep, 0, 0, &status, &result));
    EXPECT(0, result);
    CHECK(mx_close_endpoint(ep));
}

int main(int argc, char **argv)
{
    TRUE(argc == 2);
    mx_endpoint_t none;
    mx_set_error_handler(MX_ERRORS_RETURN);
    CHECK(mx_init());
    if (strcmp(argv[1], "taken") == 0) {
        EXPECT(MX_BUSY, mx_open_endpoint(0, FIRST + 5, 0, NULL, 0, &none));
        return 0;
    }
    if (strcmp(argv[1], "server") == 0)
        serve(argv);
    else
        ask();
    CHECK(mx_finalize());
    printf("all is as it has to be\n");
    return 0;
}
