/* Everything that one process can do with sockets of its own. */
#define _GNU_SOURCE
#include "tipc_common.h"
#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define TYPE 4711

static struct sockaddr_tipc address_of(int sd) {
    struct sockaddr_tipc at;
    socklen_t len = sizeof at;
    CHECK(getsockname(sd, sa(&at), &len) == 0);
    CHECK(len == sizeof at && at.family == AF_TIPC && at.addrtype == TIPC_SOCKET_ADDR);
    return at;
}

static void names(void) {
    struct sockaddr_tipc at = service(TYPE, 1, TIPC_CLUSTER_SCOPE), low = service(10, 1, 2);
    struct sockaddr_tipc wrong = range(TYPE, 9, 8, TIPC_CLUSTER_SCOPE), to = service(TYPE, 1, 0);
    int one = socket(AF_TIPC, SOCK_RDM, 0), two = socket(AF_TIPC, SOCK_RDM, 0);
    char twice;
    CHECK(address_of(one).addr.id.node == address_of(two).addr.id.node);
    CHECK(address_of(one).addr.id.ref != address_of(two).addr.id.ref);
    FAILS(sendto(one, "x", 1, 0, sa(&to), sizeof to), EHOSTUNREACH);
    FAILS(bind(one, sa(&low), sizeof low), EACCES);
    FAILS(bind(one, sa(&wrong), sizeof wrong), EINVAL);
    FAILS(bind(one, sa(&at), 4), EINVAL);
    FAILS(bind(one, NULL, sizeof at), EFAULT);
    CHECK(bind(one, sa(&at), sizeof at) == 0);
    /* A socket may have a name twice; each is withdrawn by itself. */
    CHECK(bind(one, sa(&at), sizeof at) == 0);
    at.scope = -TIPC_CLUSTER_SCOPE;
    CHECK(bind(one, sa(&at), sizeof at) == 0);
    at.scope = TIPC_CLUSTER_SCOPE;
    CHECK(sendto(two, "x", 1, 0, sa(&to), sizeof to) == 1);
    CHECK(recv(one, &twice, 1, 0) == 1);
    /* Several sockets share a name, and take turns. */
    CHECK(bind(two, sa(&at), sizeof at) == 0);
    int three = socket(AF_TIPC, SOCK_RDM, 0);
    for (int i = 0; i < 4; i++) CHECK(sendto(three, "x", 1, 0, sa(&to), sizeof to) == 1);
    for (int i = 0; i < 2; i++) {
        char c;
        CHECK(recv(one, &c, 1, 0) == 1 && recv(two, &c, 1, 0) == 1);
    }
    CHECK(!is_readable(one) && !is_readable(two));
    /* A negative scope withdraws one name, an empty address all. */
    at.scope = -TIPC_NODE_SCOPE;
    FAILS(bind(one, sa(&at), sizeof at), EINVAL);
    at.scope = -TIPC_CLUSTER_SCOPE;
    CHECK(bind(one, sa(&at), sizeof at) == 0);
    CHECK(bind(two, NULL, 0) == 0);
    FAILS(sendto(three, "x", 1, 0, sa(&to), sizeof to), EHOSTUNREACH);
    close(one), close(two), close(three);
}

static void options(void) {
    int sd = socket(AF_TIPC, SOCK_RDM, 0), stream = socket(AF_TIPC, SOCK_STREAM, 0);
    unsigned value = 2;
    int kind;
    socklen_t len = sizeof value;
    CHECK(setsockopt(sd, SOL_TIPC, TIPC_IMPORTANCE, &value, sizeof value) == 0);
    value = 9;
    CHECK(getsockopt(sd, SOL_TIPC, TIPC_IMPORTANCE, &value, &len) == 0 && value == 2);
    value = 4;
    FAILS(setsockopt(sd, SOL_TIPC, TIPC_IMPORTANCE, &value, sizeof value), EINVAL);
    CHECK(getsockopt(sd, SOL_TIPC, TIPC_DEST_DROPPABLE, &value, &len) == 0 && value == 1);
    CHECK(getsockopt(sd, SOL_TIPC, TIPC_SRC_DROPPABLE, &value, &len) == 0 && value == 0);
    CHECK(getsockopt(stream, SOL_TIPC, TIPC_DEST_DROPPABLE, &value, &len) == 0 && value == 0);
    CHECK(getsockopt(stream, SOL_TIPC, TIPC_CONN_TIMEOUT, &value, &len) == 0 && value == 8000);
    CHECK(getsockopt(sd, SOL_TIPC, TIPC_NODE_RECVQ_DEPTH, &value, &len) == 0);
    CHECK(getsockopt(sd, SOL_TIPC, TIPC_SOCK_RECVQ_DEPTH, &value, &len) == 0 && value == 0);
    CHECK(setsockopt(sd, SOL_TIPC, TIPC_MCAST_REPLICAST, NULL, 0) == 0);
    FAILS(setsockopt(sd, SOL_TIPC, 4, &value, sizeof value), ENOPROTOOPT);
    FAILS(setsockopt(sd, SOL_TIPC, 200, &value, sizeof value), ENOPROTOOPT);
    FAILS(getsockopt(sd, SOL_TIPC, 200, &value, &len), ENOPROTOOPT);
    FAILS(setsockopt(sd, SOL_TIPC, TIPC_IMPORTANCE, &value, 1), EINVAL);
    len = sizeof kind;
    CHECK(getsockopt(sd, SOL_SOCKET, SO_TYPE, &kind, &len) == 0 && kind == SOCK_RDM);
    CHECK(getsockopt(sd, SOL_SOCKET, SO_DOMAIN, &kind, &len) == 0 && kind == AF_TIPC);
    struct tipc_sioc_nodeid_req node;
    memset(&node, 0, sizeof node);
    CHECK(ioctl(sd, SIOCGETNODEID, &node) == 0);
    FAILS(socket(AF_TIPC, SOCK_RAW, 0), EPROTOTYPE);
    FAILS(listen(sd, 1), EOPNOTSUPP);
    FAILS(send(sd, "x", 1, 0), EDESTADDRREQ);
    FAILS(send(stream, "x", 1, 0), ENOTCONN);
    FAILS(recv(stream, &kind, 1, 0), ENOTCONN);
    FAILS(shutdown(stream, SHUT_WR), EINVAL);
    FAILS(accept(stream, NULL, NULL), EINVAL);
    len = 2;
    FAILS(getsockopt(sd, SOL_TIPC, TIPC_IMPORTANCE, &value, &len), EINVAL);
    close(sd), close(stream);
}

/* A message to all of a range comes once to each socket, however many of its names it has. */
static void multicast(void) {
    int all[3], sd = socket(AF_TIPC, SOCK_RDM, 0);
    char text[8], control[128];
    struct sockaddr_tipc from, to = range(TYPE, 100, 199, 0), more;
    for (int i = 0; i < 3; i++) all[i] = bound(SOCK_RDM, TYPE, 100 + 10 * i, 105 + 10 * i, 2);
    more = service(TYPE, 150, TIPC_CLUSTER_SCOPE);
    CHECK(bind(all[0], sa(&more), sizeof more) == 0);
    CHECK(sendto(sd, "to all", 7, 0, sa(&to), sizeof to) == 7);
    for (int i = 0; i < 3; i++) {
        struct iovec part = {text, sizeof text};
        struct msghdr m;
        memset(&m, 0, sizeof m);
        m.msg_name = &from, m.msg_namelen = sizeof from;
        m.msg_iov = &part, m.msg_iovlen = 1;
        m.msg_control = control, m.msg_controllen = sizeof control;
        CHECK(recvmsg(all[i], &m, 0) == 7 && strcmp(text, "to all") == 0);
        CHECK(from.addr.id.ref == address_of(sd).addr.id.ref);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        unsigned name[3];
        CHECK(c && c->cmsg_level == SOL_TIPC && c->cmsg_type == TIPC_DESTNAME);
        memcpy(name, CMSG_DATA(c), sizeof name);
        CHECK(name[0] == TYPE && name[1] == 100 && name[2] == 199);
        CHECK(!is_readable(all[i]));
        close(all[i]);
    }
    close(sd);
}

/* A message that is not delivered comes back, if the sender wants it back. */
static void rejected(void) {
    int one = socket(AF_TIPC, SOCK_RDM, 0), two = socket(AF_TIPC, SOCK_RDM, 0);
    struct sockaddr_tipc gone = address_of(two), from;
    char text[8] = "before", control[2048];
    struct iovec part = {text, sizeof text};
    struct msghdr m;
    unsigned error[2], no = 0;
    close(two);
    CHECK(sendto(one, "lost", 5, 0, sa(&gone), sizeof gone) == 5);
    CHECK(!is_readable(one));
    CHECK(setsockopt(one, SOL_TIPC, TIPC_DEST_DROPPABLE, &no, sizeof no) == 0);
    CHECK(sendto(one, "come back", 10, 0, sa(&gone), sizeof gone) == 10);
    memset(&m, 0, sizeof m);
    m.msg_name = &from, m.msg_namelen = sizeof from;
    m.msg_iov = &part, m.msg_iovlen = 1;
    m.msg_control = control, m.msg_controllen = sizeof control;
    CHECK(recvmsg(one, &m, 0) == 0);
    CHECK(from.addr.id.ref == gone.addr.id.ref);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    CHECK(c && c->cmsg_type == TIPC_ERRINFO);
    memcpy(error, CMSG_DATA(c), sizeof error);
    CHECK(error[0] == TIPC_ERR_NO_PORT && error[1] == 10);
    c = CMSG_NXTHDR(&m, c);
    CHECK(c && c->cmsg_type == TIPC_RETDATA && c->cmsg_len == CMSG_LEN(10));
    CHECK(memcmp(CMSG_DATA(c), "come back", 10) == 0);
    CHECK(CMSG_NXTHDR(&m, c) == NULL);
    CHECK(sendto(one, "again", 6, 0, sa(&gone), sizeof gone) == 6);
    CHECK(recv(one, text, sizeof text, 0) == 0);
    close(one);
}

/* A receiver that does not read is overloaded by messages of low importance, later by others. */
static void overload(void) {
    static char big[66000];
    int one = socket(AF_TIPC, SOCK_RDM, 0), two = socket(AF_TIPC, SOCK_RDM, 0);
    struct sockaddr_tipc to = address_of(two);
    unsigned no = 0, high = TIPC_CRITICAL_IMPORTANCE;
    int sent = 0, got = 0;
    FAILS(sendto(one, big, 66001, 0, sa(&to), sizeof to), EMSGSIZE);
    CHECK(setsockopt(one, SOL_TIPC, TIPC_DEST_DROPPABLE, &no, sizeof no) == 0);
    while (!is_readable(one)) {
        big[0] = (char)sent;
        CHECK(sendto(one, big, sizeof big, 0, sa(&to), sizeof to) == sizeof big && ++sent < 100);
    }
    CHECK(sent > 10);
    char control[256];
    struct iovec part = {big, sizeof big};
    struct msghdr m;
    unsigned error;
    memset(&m, 0, sizeof m);
    m.msg_iov = &part, m.msg_iovlen = 1, m.msg_control = control, m.msg_controllen = sizeof control;
    CHECK(recvmsg(one, &m, 0) == 0 && m.msg_flags & MSG_CTRUNC);
    memcpy(&error, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof error);
    CHECK(error == TIPC_ERR_OVERLOAD);
    CHECK(setsockopt(one, SOL_TIPC, TIPC_IMPORTANCE, &high, sizeof high) == 0);
    CHECK(sendto(one, "more", 4, 0, sa(&to), sizeof to) == 4 && !is_readable(one));
    for (; got < sent - 1; got++) {
        CHECK(recv(two, big, sizeof big, 0) == sizeof big && big[0] == (char)got);
    }
    CHECK(recv(two, big, sizeof big, 0) == 4 && !is_readable(two));
    close(one), close(two);
}

/* Flags, and parts that are shorter than the message. */
static void receiving(void) {
    int one = socket(AF_TIPC, SOCK_RDM, 0), two = socket(AF_TIPC, SOCK_RDM | SOCK_NONBLOCK, 0);
    struct sockaddr_tipc to = address_of(two);
    char a[4], b[4];
    struct iovec parts[2] = {{a, 3}, {b, 3}}, out[2] = {{"ab", 2}, {"cdefgh", 6}};
    struct msghdr m;
    FAILS(recv(two, a, 1, 0), EAGAIN);
    memset(&m, 0, sizeof m);
    m.msg_name = &to, m.msg_namelen = sizeof to, m.msg_iov = out, m.msg_iovlen = 2;
    CHECK(sendmsg(one, &m, 0) == 8);
    CHECK(recv(two, a, 3, MSG_PEEK) == 3 && memcmp(a, "abc", 3) == 0);
    CHECK(recv(two, a, 3, MSG_PEEK | MSG_TRUNC) == 8);
    memset(&m, 0, sizeof m);
    m.msg_iov = parts, m.msg_iovlen = 2;
    CHECK(recvmsg(two, &m, 0) == 6 && m.msg_flags == MSG_TRUNC && memcmp(b, "def", 3) == 0);
    CHECK(connect(one, sa(&to), sizeof to) == 0);
    CHECK(write(one, "by write", 8) == 8 && writev(one, out, 2) == 8 && send(one, "", 0, 0) == 0);
    CHECK(read(two, a, 4) == 4 && readv(two, parts, 2) == 6 && recv(two, a, 4, 0) == 0);
    FAILS(recv(two, a, 1, 0), EAGAIN);
    struct mmsghdr many[2];
    memset(many, 0, sizeof many);
    many[0].msg_hdr.msg_iov = out, many[0].msg_hdr.msg_iovlen = 1;
    many[1].msg_hdr.msg_iov = out + 1, many[1].msg_hdr.msg_iovlen = 1;
    CHECK(sendmmsg(one, many, 2, 0) == 2 && many[1].msg_len == 6);
    many[0].msg_hdr.msg_iov = parts, many[1].msg_hdr.msg_iov = parts;
    CHECK(recvmmsg(two, many, 2, 0, NULL) == 2 && many[0].msg_len == 2 && many[1].msg_len == 3);
    close(one), close(two);
}

/* Descriptors are the kernel's. */
static void descriptors(void) {
    int sd = bound(SOCK_RDM, TYPE, 7, 7, TIPC_NODE_SCOPE), set = epoll_create1(0), out;
    struct sockaddr_tipc to = service(TYPE, 7, 0);
    struct epoll_event event = {EPOLLIN, {0}};
    char c;
    int copy = dup(sd), high = fcntl(sd, F_DUPFD, 300);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, sd, &event) == 0);
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
    close(sd);
    if (fork() == 0) {
        int mine = socket(AF_TIPC, SOCK_DGRAM, 0);
        CHECK(sendto(mine, "1", 1, 0, sa(&to), sizeof to) == 1);
        CHECK(recv(high, &c, 1, 0) == 1 && c == '1');
        CHECK(sendto(high, "2", 1, 0, sa(&to), sizeof to) == 1);
        exit(0);
    }
    CHECK(wait(&out) > 0 && out == 0);
    CHECK(epoll_wait(set, &event, 1, 60000) == 1);
    CHECK(recv(copy, &c, 1, 0) == 1 && c == '2');
    close(copy), close(high), close(set);
    /* With the last descriptor the name is gone. */
    sd = socket(AF_TIPC, SOCK_RDM, 0);
    while (sendto(sd, "3", 1, 0, sa(&to), sizeof to) == 1) continue;
    CHECK(errno == EHOSTUNREACH);
    /* A program that is started has the socket, too. */
    close(sd);
    sd = bound(SOCK_RDM, TYPE, 8, 8, 2);
    to = service(TYPE, 8, 0);
    if (fork() == 0) {
        dup2(sd, 5);
        execl("/proc/self/exe", "tipc_alone", "started", (char *)NULL);
        exit(1);
    }
    CHECK(wait(&out) > 0 && out == 0);
    CHECK(recv(sd, &c, 1, 0) == 1 && c == '4');
    close(sd);
}

static int started(void) {
    struct sockaddr_tipc to = service(TYPE, 8, 0);
    CHECK(address_of(5).addr.id.ref != 0);
    CHECK(sendto(5, "4", 1, 0, sa(&to), sizeof to) == 1);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "started") == 0) return started();
    names();
    options();
    multicast();
    rejected();
    overload();
    receiving();
    descriptors();
    puts("alone: all is as it has to be");
    return 0;
}
