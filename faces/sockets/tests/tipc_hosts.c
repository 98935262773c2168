/* A service on one host of a cluster, its client on another one, and the cable between them cut. */
#define _GNU_SOURCE
#include "tipc_common.h"

#define TYPE 9000

/* The other host is not there any more: its event says so, and the connection. */
static void is_alone(int hosts, int sd, unsigned other) {
    struct tipc_event event;
    CHECK(recv(hosts, &event, sizeof event, 0) == sizeof event);
    CHECK(event.event == TIPC_WITHDRAWN && event.found_lower == other);
    CHECK(reason_of_end(sd) == TIPC_ERR_NO_NODE);
}

/* Subscribes to the hosts, and returns the other one of two. */
static unsigned other_of(int hosts) {
    unsigned other = 0, own = (unsigned)own_node();
    subscribe(hosts, TIPC_NODE_STATE, 0, ~0u, TIPC_WAIT_FOREVER, TIPC_SUB_PORTS);
    for (int i = 0; i < 2; i++) {
        struct tipc_event event;
        CHECK(recv(hosts, &event, sizeof event, 0) == sizeof event);
        CHECK(event.event == TIPC_PUBLISHED);
        if (event.found_lower != own) other = event.found_lower;
    }
    CHECK(other != 0);
    return other;
}

static void server(void) {
    int hosts = topology(), listener = listening(SOCK_SEQPACKET, TYPE, 1);
    int datagrams = bound(SOCK_RDM, TYPE, 2, 3, TIPC_CLUSTER_SCOPE);
    unsigned other = other_of(hosts);
    struct sockaddr_tipc from;
    socklen_t len = sizeof from;
    char text[32];
    int sd = accept(listener, NULL, NULL);
    CHECK(sd >= 0);
    CHECK(recvfrom(datagrams, text, sizeof text, 0, sa(&from), &len) == 5);
    CHECK(memcmp(text, "hello", 5) == 0 && from.addr.id.node == other);
    CHECK(send(sd, "answer", 6, 0) == 6);
    ready();
    is_alone(hosts, sd, other);
}

static void client(void) {
    int hosts = topology(), sd = socket(AF_TIPC, SOCK_SEQPACKET, 0);
    int datagrams = socket(AF_TIPC, SOCK_RDM, 0);
    unsigned other = other_of(hosts);
    struct sockaddr_tipc listener = service(TYPE, 1, 0), to = service(TYPE, 3, 0), peer;
    socklen_t len = sizeof peer;
    char text[32];
    wait_for(TYPE, 1, 3, 2);
    CHECK(connect(sd, sa(&listener), sizeof listener) == 0);
    CHECK(getpeername(sd, sa(&peer), &len) == 0 && peer.addr.id.node == other);
    CHECK(sendto(datagrams, "hello", 5, 0, sa(&to), sizeof to) == 5);
    CHECK(recv(sd, text, sizeof text, 0) == 6 && memcmp(text, "answer", 6) == 0);
    ready();
    is_alone(hosts, sd, other);
    /* Its names went with it. */
    sd = socket(AF_TIPC, SOCK_SEQPACKET, 0);
    FAILS(connect(sd, sa(&listener), sizeof listener), EHOSTUNREACH);
    FAILS(sendto(datagrams, "hello", 5, 0, sa(&to), sizeof to), EHOSTUNREACH);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "server") == 0) server();
    else client();
    printf("%s: all is as it has to be\n", argv[1]);
    return 0;
}
