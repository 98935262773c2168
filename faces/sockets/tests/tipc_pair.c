/* Two processes, of one host or of two: multicast, connections, their ends, and streams. */
#define _GNU_SOURCE
#include "tipc_common.h"
#include <sched.h>
#include <sys/wait.h>

#define TYPE 6000
#define DATAGRAMS 1
#define PACKETS 2
#define STREAM 3
#define MEGABYTES 4

static char big[66000];

static void fill(unsigned from, char *to, size_t len) {
    for (size_t i = 0; i < len; i++) to[i] = (char)((from + i) ^ (from + i) >> 8);
}

static int called(int kind, int instance) {
    struct sockaddr_tipc at = service(TYPE, (unsigned)instance, 0);
    int sd = socket(AF_TIPC, kind, 0);
    CHECK(connect(sd, sa(&at), sizeof at) == 0);
    return sd;
}

static void datagrams_of_server(void) {
    int one = bound(SOCK_RDM, TYPE, DATAGRAMS, DATAGRAMS, TIPC_CLUSTER_SCOPE);
    int two = bound(SOCK_RDM, TYPE, DATAGRAMS, DATAGRAMS, TIPC_CLUSTER_SCOPE);
    struct sockaddr_tipc from;
    socklen_t len = sizeof from;
    char want[66000];
    for (int i = 0; i < 2; i++) {
        int sd = i == 0 ? one : two;
        CHECK(recvfrom(sd, big, sizeof big, 0, sa(&from), &len) == sizeof big);
        fill(0, want, sizeof want);
        CHECK(memcmp(big, want, sizeof want) == 0);
    }
    /* Messages of one socket to another one come in order. */
    unsigned last[2] = {0, 0};
    for (int i = 0; i < 50; i++) {
        struct pollfd both[2] = {{one, POLLIN, 0}, {two, POLLIN, 0}};
        CHECK(poll(both, 2, 60000) > 0);
        int at = both[0].revents ? 0 : 1;
        unsigned got;
        CHECK(recv(both[at].fd, &got, sizeof got, 0) == sizeof got && got > last[at]);
        last[at] = got;
    }
    CHECK(sendto(one, "done", 4, 0, sa(&from), sizeof from) == 4);
    close(one), close(two);
}

static void datagrams_of_client(void) {
    int sd = socket(AF_TIPC, SOCK_RDM, 0);
    struct sockaddr_tipc all = range(TYPE, DATAGRAMS, DATAGRAMS, 0);
    struct sockaddr_tipc one = service(TYPE, DATAGRAMS, 0);
    wait_for(TYPE, DATAGRAMS, DATAGRAMS, 2);
    fill(0, big, sizeof big);
    CHECK(sendto(sd, big, sizeof big, 0, sa(&all), sizeof all) == sizeof big);
    for (unsigned i = 1; i <= 50; i++) {
        CHECK(sendto(sd, &i, sizeof i, 0, sa(&one), sizeof one) == sizeof i);
    }
    CHECK(recv(sd, big, sizeof big, 0) == 4);
    close(sd);
}

static int taken(int listener, int stays) {
    struct sockaddr_tipc from;
    socklen_t len = sizeof from;
    int sd = accept4(listener, sa(&from), &len, SOCK_CLOEXEC);
    CHECK(sd >= 0 && len == sizeof from && from.addrtype == TIPC_SOCKET_ADDR);
    struct sockaddr_tipc peer;
    if (stays) CHECK(getpeername(sd, sa(&peer), &len) == 0 && peer.addr.id.ref == from.addr.id.ref);
    return sd;
}

static void packets_of_server(void) {
    int listener = listening(SOCK_SEQPACKET, TYPE, PACKETS);
    char text[16];
    /* Records keep their borders. */
    int sd = taken(listener, 1);
    CHECK(recv(sd, text, sizeof text, 0) == 3 && recv(sd, text, sizeof text, 0) == 0);
    CHECK(recv(sd, big, sizeof big, 0) == sizeof big);
    CHECK(send(sd, "ok", 2, 0) == 2);
    /* The other end hangs up. */
    CHECK(reason_of_end(sd) == TIPC_CONN_SHUTDOWN);
    FAILS(recv(sd, text, 1, 0), ENOTCONN);
    FAILS(send(sd, text, 1, 0), EPIPE);
    close(sd);
    /* The next socket is connected by its first message. */
    sd = taken(listener, 1);
    struct beside b;
    unsigned name[3];
    take_beside(sd, &b, 5, TIPC_DESTNAME);
    memcpy(name, CMSG_DATA(b.first), sizeof name);
    CHECK(name[0] == TYPE && name[1] == PACKETS);
    CHECK(send(sd, "hello", 5, 0) == 5);
    CHECK(recv(sd, text, sizeof text, 0) == 4);
    close(sd);
    /* The other end's process is killed. */
    sd = taken(listener, 0);
    CHECK(recv(sd, text, sizeof text, 0) == 0);
    close(sd), close(listener);
}

static void packets_of_client(void) {
    struct sockaddr_tipc at = service(TYPE, PACKETS, 0);
    char text[16];
    int out;
    wait_for(TYPE, PACKETS, PACKETS, 1);
    int sd = called(SOCK_SEQPACKET, PACKETS);
    CHECK(send(sd, "abc", 3, 0) == 3 && send(sd, "", 0, 0) == 0);
    CHECK(send(sd, big, sizeof big, 0) == sizeof big);
    CHECK(recv(sd, text, sizeof text, 0) == 2);
    FAILS(connect(sd, sa(&at), sizeof at), EISCONN);
    CHECK(shutdown(sd, SHUT_RDWR) == 0);
    close(sd);
    sd = socket(AF_TIPC, SOCK_SEQPACKET, 0);
    CHECK(sendto(sd, "first", 5, 0, sa(&at), sizeof at) == 5);
    CHECK(recv(sd, text, sizeof text, 0) == 5);
    CHECK(send(sd, "last", 4, 0) == 4);
    close(sd);
    if (fork() == 0) {
        sd = called(SOCK_SEQPACKET, PACKETS);
        abort();
    }
    CHECK(wait(&out) > 0);
    /* Nobody has the name, or nobody listens. */
    sd = socket(AF_TIPC, SOCK_SEQPACKET, 0);
    at = service(TYPE, 77, 0);
    FAILS(connect(sd, sa(&at), sizeof at), EHOSTUNREACH);
    int deaf = bound(SOCK_SEQPACKET, TYPE, 77, 77, TIPC_NODE_SCOPE);
    FAILS(connect(sd, sa(&at), sizeof at), ECONNREFUSED);
    /* Nobody takes the call in time. */
    unsigned ms = 50;
    CHECK(listen(deaf, 1) == 0);
    CHECK(setsockopt(sd, SOL_TIPC, TIPC_CONN_TIMEOUT, &ms, sizeof ms) == 0);
    FAILS(connect(sd, sa(&at), sizeof at), ETIMEDOUT);
    close(sd), close(deaf);
}

static void stream_of_server(void) {
    int listener = listening(SOCK_STREAM, TYPE, STREAM);
    static char want[1 << 16];
    int sd = taken(listener, 1);
    unsigned at = 0, end = MEGABYTES << 20;
    while (at < end) {
        ssize_t got = read(sd, big, 1 + at % sizeof big);
        CHECK(got > 0);
        fill(at, want, sizeof want > (size_t)got ? (size_t)got : sizeof want);
        CHECK(memcmp(big, want, sizeof want > (size_t)got ? (size_t)got : sizeof want) == 0);
        at += (unsigned)got;
        /* The sender has to wait. */
        if (at < 200000) sched_yield();
    }
    CHECK(write(sd, "thanks", 6) == 6);
    CHECK(read(sd, big, 1) == 0);
    close(sd), close(listener);
}

static void stream_of_client(void) {
    static char out[100000];
    unsigned at = 0, end = MEGABYTES << 20;
    wait_for(TYPE, STREAM, STREAM, 1);
    int sd = called(SOCK_STREAM, STREAM);
    while (at < end) {
        size_t len = end - at < sizeof out ? end - at : sizeof out;
        fill(at, out, len);
        ssize_t sent = send(sd, out, len, 0);
        CHECK(sent > 0);
        at += (unsigned)sent;
    }
    CHECK(recv(sd, big, sizeof big, 0) == 6 && memcmp(big, "thanks", 6) == 0);
    close(sd);
}

int main(int argc, char **argv) {
    int is_server = argc > 1 && strcmp(argv[1], "server") == 0;
    if (is_server) {
        datagrams_of_server();
        packets_of_server();
        stream_of_server();
    } else {
        datagrams_of_client();
        packets_of_client();
        stream_of_client();
    }
    printf("%s: all is as it has to be\n", argv[1]);
    return 0;
}
