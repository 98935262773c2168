/* Parts that the programs of AF_TIPC have in common. */
#ifndef TIPC_COMMON_H
#define TIPC_COMMON_H
#include <errno.h>
#include <linux/tipc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK(what)                                                        \
    do {                                                                   \
        if (!(what)) {                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, \
                    strerror(errno));                                      \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

#define FAILS(call, error) CHECK((call) < 0 && errno == (error))

static inline struct sockaddr *sa(struct sockaddr_tipc *at) { return (struct sockaddr *)at; }

static inline struct sockaddr_tipc service(unsigned type, unsigned instance, int scope) {
    struct sockaddr_tipc at;
    memset(&at, 0, sizeof at);
    at.family = AF_TIPC;
    at.addrtype = TIPC_SERVICE_ADDR;
    at.scope = (signed char)scope;
    at.addr.name.name.type = type;
    at.addr.name.name.instance = instance;
    return at;
}

static inline struct sockaddr_tipc range(unsigned type, unsigned low, unsigned high, int scope) {
    struct sockaddr_tipc at;
    memset(&at, 0, sizeof at);
    at.family = AF_TIPC;
    at.addrtype = TIPC_SERVICE_RANGE;
    at.scope = (signed char)scope;
    at.addr.nameseq.type = type;
    at.addr.nameseq.lower = low;
    at.addr.nameseq.upper = high;
    return at;
}

static inline int bound(int kind, unsigned type, unsigned low, unsigned high, int scope) {
    struct sockaddr_tipc at = range(type, low, high, scope);
    int sd = socket(AF_TIPC, kind, 0);
    CHECK(sd >= 0);
    CHECK(bind(sd, sa(&at), sizeof at) == 0);
    return sd;
}

/* A socket that listens before its name is seen. */
static inline int listening(int kind, unsigned type, unsigned instance) {
    struct sockaddr_tipc at = service(type, instance, TIPC_CLUSTER_SCOPE);
    int sd = socket(AF_TIPC, kind, 0);
    CHECK(sd >= 0 && listen(sd, 10) == 0);
    CHECK(bind(sd, sa(&at), sizeof at) == 0);
    return sd;
}

static inline int topology(void) {
    struct sockaddr_tipc at = service(TIPC_TOP_SRV, TIPC_TOP_SRV, 0);
    int sd = socket(AF_TIPC, SOCK_SEQPACKET, 0);
    CHECK(sd >= 0);
    CHECK(connect(sd, sa(&at), sizeof at) == 0);
    return sd;
}

static inline void subscribe(int sd, unsigned type, unsigned low, unsigned high, unsigned timeout,
                             unsigned filter) {
    struct tipc_subscr s;
    memset(&s, 0, sizeof s);
    s.seq.type = type;
    s.seq.lower = low;
    s.seq.upper = high;
    s.timeout = timeout;
    s.filter = filter;
    memcpy(s.usr_handle, "handle!", 8);
    CHECK(send(sd, &s, sizeof s, 0) == sizeof s);
}

/* Waits until so many sockets have a name. */
static inline void wait_for(unsigned type, unsigned low, unsigned high, int count) {
    int sd = topology();
    subscribe(sd, type, low, high, TIPC_WAIT_FOREVER, TIPC_SUB_PORTS);
    while (count > 0) {
        struct tipc_event event;
        CHECK(recv(sd, &event, sizeof event, 0) == sizeof event);
        count += event.event == TIPC_PUBLISHED ? -1 : 1;
    }
    close(sd);
}

/* True if there is something to read now. */
static inline int is_readable(int sd) {
    struct pollfd one = {sd, POLLIN, 0};
    return poll(&one, 1, 0) == 1;
}

static inline int own_node(void) {
    struct sockaddr_tipc at;
    socklen_t len = sizeof at;
    int sd = socket(AF_TIPC, SOCK_RDM, 0);
    CHECK(getsockname(sd, sa(&at), &len) == 0);
    close(sd);
    return (int)at.addr.id.node;
}

/* A message with what comes beside it. */
struct beside {
    struct msghdr m;
    struct cmsghdr *first;
    char text[16], control[2048];
};

/* Takes the next message, which has so many bytes, and first this beside it. */
static inline void take_beside(int sd, struct beside *b, ssize_t bytes, int type) {
    struct iovec part = {b->text, sizeof b->text};
    memset(&b->m, 0, sizeof b->m);
    b->m.msg_iov = &part, b->m.msg_iovlen = 1;
    b->m.msg_control = b->control, b->m.msg_controllen = sizeof b->control;
    CHECK(recvmsg(sd, &b->m, 0) == bytes);
    b->first = CMSG_FIRSTHDR(&b->m);
    CHECK(b->first && b->first->cmsg_level == SOL_TIPC && b->first->cmsg_type == type);
}

/* The reason of the next message, which says that a connection has ended. */
static inline unsigned reason_of_end(int sd) {
    struct beside b;
    unsigned reason[2];
    take_beside(sd, &b, 0, TIPC_ERRINFO);
    memcpy(reason, CMSG_DATA(b.first), sizeof reason);
    return reason[0];
}

/* The program has come so far; its test goes on. */
static inline void ready(void) {
    puts("ready");
    fflush(stdout);
}

#endif
