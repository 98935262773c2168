/* Three members of a group: events, and the four ways to send. */
#define _GNU_SOURCE
#include "tipc_common.h"

#define GROUP 7000

static char text[66000];
static struct sockaddr_tipc from[2];
/* The others may leave at any time. */
static int ignores_leaving;

/* Receives; returns the flags. */
static int next(int sd) {
    struct iovec part = {text, sizeof text - 1};
    struct msghdr m;
    memset(&m, 0, sizeof m);
    m.msg_name = from, m.msg_namelen = sizeof from;
    m.msg_iov = &part, m.msg_iovlen = 1;
    ssize_t got = recvmsg(sd, &m, 0);
    CHECK(got >= 0 && m.msg_namelen == sizeof from);
    CHECK(from[0].addrtype == TIPC_SOCKET_ADDR && from[1].addrtype == TIPC_SERVICE_ADDR);
    CHECK(from[1].addr.name.name.type == GROUP);
    text[got] = 0;
    if (ignores_leaving && m.msg_flags == (MSG_OOB | MSG_EOR)) return next(sd);
    return m.msg_flags;
}

static void expect(int sd, const char *what, unsigned instance) {
    CHECK(next(sd) == 0);
    if (strcmp(text, what) != 0) fprintf(stderr, "%s instead of %s\n", text, what);
    CHECK(strcmp(text, what) == 0 && from[1].addr.name.name.instance == instance);
}

static void leader(int sd, const struct sockaddr_tipc *others, int early) {
    struct sockaddr_tipc any = service(GROUP, 2, 0), each = range(GROUP, 2, 2, 0);
    struct sockaddr_tipc nobody = service(GROUP, 99, 0), two = others[0], three = others[1];
    /* The others know each other before the first message. */
    for (; early < 2; early++) expect(sd, "ready", 2);
    CHECK(send(sd, "to all", 6, 0) == 6);
    /* The leader gets a copy of its own message. */
    expect(sd, "to all", 1);
    CHECK(sendto(sd, "to each", 7, 0, sa(&each), sizeof each) == 7);
    for (int i = 0; i < 2; i++) CHECK(sendto(sd, "to one", 6, 0, sa(&any), sizeof any) == 6);
    CHECK(sendto(sd, "to you", 6, 0, sa(&two), sizeof two) == 6);
    CHECK(sendto(sd, "to you", 6, 0, sa(&three), sizeof three) == 6);
    FAILS(sendto(sd, "x", 1, 0, sa(&nobody), sizeof nobody), EHOSTUNREACH);
    memset(text, 'x', sizeof text);
    CHECK(send(sd, text, sizeof text, 0) == sizeof text);
    CHECK(next(sd) == MSG_TRUNC);
    /* Many more than the members may have unread. */
    for (int i = 0; i < 100; i++) CHECK(send(sd, &i, sizeof i, 0) == sizeof i);
    for (int i = 0; i < 100; i++) CHECK(next(sd) == 0);
    for (int gone = 0, thanks = 0; gone < 2; ) {
        int flags = next(sd);
        CHECK(from[1].addr.name.name.instance == 2);
        if (flags == 0) CHECK(strcmp(text, "thanks") == 0 && ++thanks <= 2);
        else CHECK(flags == (MSG_OOB | MSG_EOR) && text[0] == 0 && ++gone <= thanks);
    }
}

static void follower(int sd, int leaves, const struct sockaddr_tipc *leader) {
    struct sockaddr_tipc to = *leader;
    CHECK(sendto(sd, "ready", 5, 0, sa(&to), sizeof to) == 5);
    expect(sd, "to all", 1);
    expect(sd, "to each", 1);
    expect(sd, "to one", 1);
    expect(sd, "to you", 1);
    CHECK(next(sd) == MSG_TRUNC && strlen(text) == sizeof text - 1);
    for (int i = 0, got; i < 100; i++) {
        CHECK(next(sd) == 0);
        memcpy(&got, text, sizeof got);
        CHECK(got == i);
    }
    CHECK(sendto(sd, "thanks", 6, 0, sa(&to), sizeof to) == 6);
    if (leaves) {
        CHECK(setsockopt(sd, SOL_TIPC, TIPC_GROUP_LEAVE, NULL, 0) == 0);
        FAILS(setsockopt(sd, SOL_TIPC, TIPC_GROUP_LEAVE, NULL, 0), EINVAL);
    }
}

int main(int argc, char **argv) {
    int number = argc > 1 ? atoi(argv[1]) : 1, sd = socket(AF_TIPC, SOCK_RDM, 0);
    struct tipc_group_req wanted = {GROUP, number == 1 ? 1 : 2, TIPC_CLUSTER_SCOPE,
                                    TIPC_GROUP_MEMBER_EVTS};
    struct sockaddr_tipc others[2], leads, at = service(GROUP, 1, TIPC_CLUSTER_SCOPE);
    if (number == 1) wanted.flags |= TIPC_GROUP_LOOPBACK;
    CHECK(setsockopt(sd, SOL_TIPC, TIPC_GROUP_JOIN, &wanted, sizeof wanted) == 0);
    FAILS(setsockopt(sd, SOL_TIPC, TIPC_GROUP_JOIN, &wanted, sizeof wanted), EACCES);
    FAILS(bind(sd, sa(&at), sizeof at), EACCES);
    int early = 0;
    for (int i = 0; i < 2 + early; i++) {
        int flags = next(sd);
        /* Another one may be ready before its coming is told of the third. */
        if (flags == 0) {
            CHECK(number == 1 && strcmp(text, "ready") == 0 && ++early <= 2);
            continue;
        }
        CHECK(flags == MSG_OOB && text[0] == 0);
        if (from[1].addr.name.name.instance == 1) leads = from[0];
        others[i - early] = from[0];
    }
    ignores_leaving = number > 1;
    if (number == 1) leader(sd, others, early);
    else follower(sd, number == 3, &leads);
    printf("%d: all is as it has to be\n", number);
    return 0;
}
