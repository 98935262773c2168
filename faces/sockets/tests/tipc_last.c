/* The messages sent before the end of a socket arrive, and those that were not read go back. */
#define _GNU_SOURCE
#include "tipc_common.h"
#include <signal.h>
#include <sys/wait.h>

#define TYPE 6100
#define MESSAGES 100
#define UNREAD 5
#define ENDS 5

/* The ways in which a sender ends after its last message. */
static const char *const ends[ENDS] = {"shutdown", "close", "exit", "SIGTERM", "unread"};

static int called(int kind) {
    struct sockaddr_tipc at = service(TYPE, (unsigned)kind, 0);
    int sd = socket(AF_TIPC, kind, 0);
    CHECK(connect(sd, sa(&at), sizeof at) == 0);
    return sd;
}

/* Ends as the number says. The process may end. */
static void end(int sd, int way) {
    switch (way) {
    case 0: CHECK(shutdown(sd, SHUT_RDWR) == 0); break;
    case 2: _exit(0);
    case 3: raise(SIGTERM); break;
    }
    close(sd);
    _exit(0);
}

static void sender(int kind, int way) {
    char text[100] = "";
    int sd = called(kind);
    if (way == ENDS - 1) {
        /* Something waits that this program does not read. */
        struct pollfd one = {sd, POLLIN, 0};
        CHECK(send(sd, "come", 4, 0) == 4);
        CHECK(poll(&one, 1, 60000) == 1);
    }
    for (int i = 0; i < MESSAGES; i++) {
        memset(text, i, sizeof text);
        CHECK(send(sd, text, sizeof text, 0) == sizeof text);
    }
    end(sd, way);
}

static void client_of_connections(int kind) {
    int out;
    wait_for(TYPE, (unsigned)kind, (unsigned)kind, 1);
    for (int way = 0; way < ENDS; way++) {
        if (fork() == 0) sender(kind, way);
        CHECK(wait(&out) > 0);
    }
}

static void server_of_connections(int kind) {
    char text[100];
    int listener = listening(kind, TYPE, (unsigned)kind);
    for (int way = 0; way < ENDS; way++) {
        int sd = accept(listener, NULL, NULL);
        CHECK(sd >= 0);
        if (way == ENDS - 1) {
            CHECK(recv(sd, text, 4, MSG_WAITALL) == 4);
            CHECK(send(sd, "unread", 6, 0) == 6);
        }
        for (int i = 0; i < MESSAGES; i++) {
            ssize_t got = recv(sd, text, sizeof text, kind == SOCK_STREAM ? MSG_WAITALL : 0);
            if (got != sizeof text || text[0] != i || text[99] != i) {
                fprintf(stderr, "%s, kind %d: message %d: %zd\n", ends[way], kind, i, got);
                exit(1);
            }
        }
        close(sd);
    }
    close(listener);
}

/* A connection that its first message makes, and that ends before it is taken. */
static void client_of_call(void) {
    struct sockaddr_tipc at = service(TYPE, 50, 0);
    wait_for(TYPE, 50, 50, 1);
    for (int way = 0; way < 2; way++) {
        int sd = socket(AF_TIPC, SOCK_SEQPACKET, 0);
        CHECK(sendto(sd, "first", 5, 0, sa(&at), sizeof at) == 5);
        if (way == 0) CHECK(shutdown(sd, SHUT_RDWR) == 0);
        close(sd);
    }
    /* Both have ended. */
    int sd = socket(AF_TIPC, SOCK_RDM, 0);
    at = service(TYPE, 51, 0);
    CHECK(sendto(sd, "go on", 5, 0, sa(&at), sizeof at) == 5);
    close(sd);
}

static void server_of_call(void) {
    char text[8];
    int go = bound(SOCK_RDM, TYPE, 51, 51, TIPC_CLUSTER_SCOPE);
    int listener = listening(SOCK_SEQPACKET, TYPE, 50);
    CHECK(recv(go, text, sizeof text, 0) == 5);
    for (int way = 0; way < 2; way++) {
        int sd = accept(listener, NULL, NULL);
        CHECK(sd >= 0 && recv(sd, text, sizeof text, 0) == 5);
        CHECK(recv(sd, text, sizeof text, 0) == 0);
        close(sd);
    }
    close(go), close(listener);
}

/* The reason and the first byte of the next message that comes back. */
static unsigned came_back(int sd, char *first) {
    struct beside b;
    unsigned reason[2];
    take_beside(sd, &b, 0, TIPC_ERRINFO);
    memcpy(reason, CMSG_DATA(b.first), sizeof reason);
    struct cmsghdr *c = CMSG_NXTHDR(&b.m, b.first);
    CHECK(c && c->cmsg_type == TIPC_RETDATA);
    *first = *(char *)CMSG_DATA(c);
    return reason[0];
}

/* Messages that their receiver does not read come back, and no others. */
static void client_of_unread(void) {
    struct sockaddr_tipc at;
    unsigned no = 0;
    char text[8], first;
    int sd = socket(AF_TIPC, SOCK_RDM, 0);
    CHECK(setsockopt(sd, SOL_TIPC, TIPC_DEST_DROPPABLE, &no, sizeof no) == 0);
    for (unsigned way = 0; way < 2; way++) {
        at = service(TYPE, 63 + way, 0);
        wait_for(TYPE, 63 + way, 63 + way, 1);
        for (char i = 0; i < 2 + UNREAD; i++) {
            CHECK(sendto(sd, &i, 1, 0, sa(&at), sizeof at) == 1);
        }
        for (char i = 2; i < 2 + UNREAD; i++) {
            CHECK(came_back(sd, &first) == TIPC_ERR_NO_PORT && first == i);
        }
        CHECK(!is_readable(sd));
    }
    close(sd);
    /* A connection ends with one. */
    wait_for(TYPE, SOCK_SEQPACKET, SOCK_SEQPACKET, 1);
    sd = called(SOCK_SEQPACKET);
    CHECK(send(sd, "one", 3, 0) == 3 && send(sd, "two", 3, 0) == 3);
    CHECK(recv(sd, text, sizeof text, 0) == 2);
    CHECK(send(sd, "unread", 6, 0) == 6);
    CHECK(came_back(sd, &first) == TIPC_ERR_NO_PORT && first == 'u');
    close(sd);
    /* A call that nobody takes is refused, with its data. */
    at = service(TYPE, 61, 0);
    sd = socket(AF_TIPC, SOCK_SEQPACKET, 0);
    wait_for(TYPE, 61, 61, 1);
    CHECK(sendto(sd, "call", 4, 0, sa(&at), sizeof at) == 4);
    CHECK(came_back(sd, &first) == TIPC_ERR_NO_PORT && first == 'c');
    close(sd);
    sd = socket(AF_TIPC, SOCK_SEQPACKET, 0);
    at = service(TYPE, 62, 0);
    wait_for(TYPE, 62, 62, 1);
    FAILS(connect(sd, sa(&at), sizeof at), ECONNREFUSED);
    close(sd);
}

static void server_of_unread(void) {
    char text[8];
    int out;
    for (unsigned way = 0; way < 2; way++) {
        int sd = bound(SOCK_RDM, TYPE, 63 + way, 63 + way, TIPC_CLUSTER_SCOPE);
        for (char i = 0; i < 2; i++) CHECK(recv(sd, text, 1, 0) == 1 && text[0] == i);
        /* All have come once the third is there, and one waits at a time. */
        CHECK(recv(sd, text, 1, MSG_PEEK) == 1 && text[0] == 2);
        unsigned depth = 0;
        socklen_t len = sizeof depth;
        while (depth < UNREAD - 1) {
            CHECK(getsockopt(sd, SOL_TIPC, TIPC_SOCK_RECVQ_DEPTH, &depth, &len) == 0);
        }
        if (way == 1 && fork() == 0) raise(SIGKILL);
        close(sd);
        if (way == 1) CHECK(wait(&out) > 0);
    }
    int listener = listening(SOCK_SEQPACKET, TYPE, SOCK_SEQPACKET);
    int sd = accept(listener, NULL, NULL);
    struct pollfd one = {sd, POLLIN, 0};
    CHECK(recv(sd, text, sizeof text, 0) == 3 && recv(sd, text, sizeof text, 0) == 3);
    CHECK(send(sd, "go", 2, 0) == 2);
    CHECK(poll(&one, 1, 60000) == 1);
    close(sd), close(listener);
    for (unsigned instance = 61; instance < 63; instance++) {
        listener = listening(SOCK_SEQPACKET, TYPE, instance);
        one.fd = listener;
        CHECK(poll(&one, 1, 60000) == 1);
        close(listener);
    }
}

int main(int argc, char **argv) {
    int is_server = argc > 1 && strcmp(argv[1], "server") == 0;
    int kinds[2] = {SOCK_SEQPACKET, SOCK_STREAM};
    for (int i = 0; i < 2; i++) {
        if (is_server) server_of_connections(kinds[i]);
        else client_of_connections(kinds[i]);
    }
    if (is_server) server_of_call(), server_of_unread();
    else client_of_call(), client_of_unread();
    printf("%s: all is as it has to be\n", argv[1]);
    return 0;
}
