/* The topology server: subscriptions and their events. */
#define _GNU_SOURCE
#include "tipc_common.h"
#include <arpa/inet.h>

#define TYPE 5000

static struct tipc_event next(int sd, unsigned what, unsigned low, unsigned high) {
    struct tipc_event event;
    CHECK(recv(sd, &event, sizeof event, 0) == sizeof event);
    if (event.event != what || event.found_lower != low || event.found_upper != high) {
        fprintf(stderr, "event %u %u-%u instead of %u %u-%u\n", event.event, event.found_lower,
                event.found_upper, what, low, high);
        exit(1);
    }
    CHECK(memcmp(event.s.usr_handle, "handle!", 8) == 0);
    return event;
}

static void each_and_first_and_last(void) {
    int each = topology(), first = topology();
    int one = bound(SOCK_RDM, TYPE, 10, 19, TIPC_CLUSTER_SCOPE);
    struct sockaddr_tipc at;
    socklen_t len = sizeof at;
    subscribe(each, TYPE, 0, 99, TIPC_WAIT_FOREVER, TIPC_SUB_PORTS);
    subscribe(first, TYPE, 0, 99, TIPC_WAIT_FOREVER, TIPC_SUB_SERVICE);
    /* Names that are there are told at once. */
    struct tipc_event event = next(each, TIPC_PUBLISHED, 10, 19);
    CHECK(getsockname(one, sa(&at), &len) == 0);
    CHECK(event.port.ref == at.addr.id.ref && event.port.node == at.addr.id.node);
    CHECK(event.s.seq.type == TYPE && event.s.seq.upper == 99);
    next(first, TIPC_PUBLISHED, 10, 19);
    int two = bound(SOCK_RDM, TYPE, 15, 15, TIPC_NODE_SCOPE);
    int other = bound(SOCK_RDM, TYPE, 100, 100, TIPC_CLUSTER_SCOPE);
    next(each, TIPC_PUBLISHED, 15, 15);
    close(one);
    next(each, TIPC_WITHDRAWN, 10, 19);
    close(two);
    next(each, TIPC_WITHDRAWN, 15, 15);
    next(first, TIPC_WITHDRAWN, 15, 15);
    close(other), close(each), close(first);
}

static void cancelled_and_over(void) {
    int sd = topology();
    subscribe(sd, TYPE, 1, 1, 1, TIPC_SUB_SERVICE);
    struct tipc_event event = next(sd, TIPC_SUBSCR_TIMEOUT, 1, 1);
    CHECK(event.s.timeout == 1);
    subscribe(sd, TYPE, 2, 2, TIPC_WAIT_FOREVER, TIPC_SUB_PORTS);
    subscribe(sd, TYPE, 3, 3, TIPC_WAIT_FOREVER, TIPC_SUB_PORTS);
    subscribe(sd, TYPE, 2, 2, TIPC_WAIT_FOREVER, TIPC_SUB_PORTS | TIPC_SUB_CANCEL);
    /* A round to the agent and back: it has taken all three. */
    subscribe(sd, TYPE, 4, 4, 1, TIPC_SUB_PORTS);
    next(sd, TIPC_SUBSCR_TIMEOUT, 4, 4);
    int one = bound(SOCK_RDM, TYPE, 2, 3, TIPC_CLUSTER_SCOPE);
    next(sd, TIPC_PUBLISHED, 2, 3);
    CHECK(!is_readable(sd));
    close(one), close(sd);
}

static void other_byte_order(void) {
    struct tipc_subscr s;
    unsigned words[12];
    int sd = topology(), one = bound(SOCK_RDM, TYPE, 7, 7, TIPC_CLUSTER_SCOPE);
    memset(&s, 0, sizeof s);
    s.seq.type = htonl(TYPE);
    s.seq.lower = s.seq.upper = htonl(7);
    s.timeout = TIPC_WAIT_FOREVER;
    s.filter = htonl(TIPC_SUB_PORTS);
    CHECK(send(sd, &s, sizeof s, 0) == sizeof s);
    CHECK(recv(sd, words, sizeof words, 0) == 48);
    CHECK(words[0] == htonl(TIPC_PUBLISHED) && words[1] == htonl(7) && words[5] == htonl(TYPE));
    close(one), close(sd);
}

static void wrong_ones(void) {
    struct tipc_subscr s;
    char c;
    for (int i = 0; i < 3; i++) {
        int sd = topology();
        memset(&s, 0, sizeof s);
        s.seq.type = TYPE;
        s.seq.lower = i == 0 ? 2 : 1;
        s.seq.upper = 1;
        s.filter = i == 1 ? TIPC_SUB_PORTS | TIPC_SUB_SERVICE : TIPC_SUB_PORTS;
        size_t len = i == 2 ? 7 : sizeof s;
        CHECK(send(sd, &s, len, 0) == (ssize_t)len);
        CHECK(recv(sd, &c, 1, 0) == 0);
        FAILS(recv(sd, &c, 1, 0), ENOTCONN);
        close(sd);
    }
}

/* Type 0 has the hosts. */
static void hosts(int count) {
    int sd = topology(), own = own_node(), has_own = 0;
    struct tipc_event event;
    subscribe(sd, TIPC_NODE_STATE, 0, ~0u, TIPC_WAIT_FOREVER, TIPC_SUB_PORTS);
    for (; count > 0; count--) {
        CHECK(recv(sd, &event, sizeof event, 0) == sizeof event);
        CHECK(event.event == TIPC_PUBLISHED && event.found_lower == event.port.node);
        has_own |= (int)event.port.node == own;
    }
    CHECK(has_own);
    close(sd);
}

int main(int argc, char **argv) {
    hosts(argc > 1 ? atoi(argv[1]) : 1);
    each_and_first_and_last();
    cancelled_and_over();
    other_byte_order();
    wrong_ones();
    puts("topology: all is as it has to be");
    return 0;
}
