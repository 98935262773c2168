/* A connection of two hosts, the second one's agent ends: what each side sees of it. */
#define _GNU_SOURCE
#include "tipc_common.h"

#define TYPE 8000

/* Its host stays. */
static void survivor(void) {
    struct sockaddr_tipc at = service(TYPE, 1, 0);
    struct tipc_event event;
    int sd = socket(AF_TIPC, SOCK_SEQPACKET, 0), names = topology();
    wait_for(TYPE, 1, 1, 1);
    CHECK(connect(sd, sa(&at), sizeof at) == 0);
    subscribe(names, TYPE, 1, 1, TIPC_WAIT_FOREVER, TIPC_SUB_SERVICE);
    CHECK(recv(names, &event, sizeof event, 0) == sizeof event);
    CHECK(event.event == TIPC_PUBLISHED);
    ready();
    CHECK(reason_of_end(sd) == TIPC_ERR_NO_NODE);
    CHECK(recv(names, &event, sizeof event, 0) == sizeof event);
    CHECK(event.event == TIPC_WITHDRAWN);
    sd = socket(AF_TIPC, SOCK_SEQPACKET, 0);
    FAILS(connect(sd, sa(&at), sizeof at), EHOSTUNREACH);
}

/* Its agent ends. */
static void orphan(void) {
    int listener = listening(SOCK_SEQPACKET, TYPE, 1);
    int datagrams = socket(AF_TIPC, SOCK_RDM, 0);
    struct sockaddr_tipc at = service(TYPE, 2, TIPC_CLUSTER_SCOPE);
    char c;
    int sd = accept(listener, NULL, NULL);
    CHECK(sd >= 0);
    ready();
    FAILS(recv(sd, &c, 1, 0), ENOTCONN);
    FAILS(send(sd, &c, 1, 0), EPIPE);
    FAILS(recv(datagrams, &c, 1, 0), ECONNRESET);
    FAILS(bind(datagrams, sa(&at), sizeof at), ENETDOWN);
    FAILS(accept(listener, NULL, NULL), EINVAL);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "survivor") == 0) survivor();
    else orphan();
    printf("%s: all is as it has to be\n", argv[1]);
    return 0;
}
