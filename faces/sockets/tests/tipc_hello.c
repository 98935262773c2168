/* A server and a client without connection. The client waits for the server's name. */
#define _GNU_SOURCE
#include <linux/tipc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TYPE 18888
#define INSTANCE 17

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void wait_for_server(void) {
    struct sockaddr_tipc at;
    struct tipc_subscr wanted;
    struct tipc_event event;
    int sd = socket(AF_TIPC, SOCK_SEQPACKET, 0);

    memset(&at, 0, sizeof at);
    at.family = AF_TIPC;
    at.addrtype = TIPC_SERVICE_ADDR;
    at.addr.name.name.type = TIPC_TOP_SRV;
    at.addr.name.name.instance = TIPC_TOP_SRV;
    memset(&wanted, 0, sizeof wanted);
    wanted.seq.type = TYPE;
    wanted.seq.lower = wanted.seq.upper = INSTANCE;
    wanted.timeout = 60000;
    wanted.filter = TIPC_SUB_SERVICE;
    if (sd < 0 || connect(sd, (struct sockaddr *)&at, sizeof at) != 0) die("topology server");
    if (send(sd, &wanted, sizeof wanted, 0) != sizeof wanted) die("subscription");
    if (recv(sd, &event, sizeof event, 0) != sizeof event) die("event");
    if (event.event != TIPC_PUBLISHED) {
        fprintf(stderr, "no server within a minute\n");
        exit(1);
    }
    close(sd);
}

static int server(void) {
    struct sockaddr_tipc at, from;
    socklen_t len = sizeof from;
    char text[64];
    int sd = socket(AF_TIPC, SOCK_RDM, 0);

    memset(&at, 0, sizeof at);
    at.family = AF_TIPC;
    at.addrtype = TIPC_SERVICE_ADDR;
    at.scope = TIPC_CLUSTER_SCOPE;
    at.addr.name.name.type = TYPE;
    at.addr.name.name.instance = INSTANCE;
    if (sd < 0 || bind(sd, (struct sockaddr *)&at, sizeof at) != 0) die("bind");
    if (recvfrom(sd, text, sizeof text, 0, (struct sockaddr *)&from, &len) <= 0) die("recvfrom");
    printf("server got: %s\n", text);
    if (from.addrtype != TIPC_SOCKET_ADDR || len != sizeof from) die("address");
    if (sendto(sd, "Uh ?", 5, 0, (struct sockaddr *)&from, sizeof from) != 5) die("sendto");
    return 0;
}

static int client(void) {
    struct sockaddr_tipc at;
    char text[64];
    int sd = socket(AF_TIPC, SOCK_RDM, 0);

    wait_for_server();
    memset(&at, 0, sizeof at);
    at.family = AF_TIPC;
    at.addrtype = TIPC_SERVICE_ADDR;
    at.addr.name.name.type = TYPE;
    at.addr.name.name.instance = INSTANCE;
    if (sendto(sd, "Hello World", 12, 0, (struct sockaddr *)&at, sizeof at) != 12) die("sendto");
    if (recv(sd, text, sizeof text, 0) <= 0) die("recv");
    printf("client got: %s\n", text);
    return 0;
}

int main(int argc, char **argv) {
    return argc > 1 && strcmp(argv[1], "server") == 0 ? server() : client();
}
