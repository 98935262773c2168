/* The client ends, or falls silent, in one of several ways; the server learns of it. */
#define _GNU_SOURCE
#include "common.h"
#include <signal.h>

static const char *way;

static int is(const char *name)
{
    return strcmp(way, name) == 0;
}

/* The client's end. */
static void ends(void)
{
    if (is("exit"))
        exit(0);
    raise(is("stop") ? SIGSTOP : SIGKILL);
    exit(0);
}

/* The server has a connection, and receives that are posted. */
static void connected(void)
{
    VIP_VI_HANDLE vi = create(VIP_SERVICE_RELIABLE_RECEPTION);
    for (int i = 0; i < 2; i++)
        post_recv(vi, i, memory->in, 8);
    join(vi, "death");
    VIP_UINT64 there = meet((VIP_UINT64)(uintptr_t)memory->in);
    VIP_MEM_HANDLE of = (VIP_MEM_HANDLE)meet(handle);
    if (!serves)
        ends();
    RECEIVED(vi, 0, VIP_STATUS_OP_RECEIVE | VIP_STATUS_DESC_FLUSHED_ERROR);
    RECEIVED(vi, 1, VIP_STATUS_OP_RECEIVE | VIP_STATUS_DESC_FLUSHED_ERROR);
    await_error(vi, VIP_ERROR_CONN_LOST);
    await_error(meeting, VIP_ERROR_CONN_LOST);
    MUST(state_of(vi) == VIP_STATE_ERROR);
    VIP_DESCRIPTOR *d = prepare_remote(0, VIP_CONTROL_OP_RDMAWRITE, memory->out, 8, there, of);
    CHECK(VipPostSend(vi, d, handle));
    SENT(vi, 0, VIP_STATUS_OP_RDMA_WRITE | VIP_STATUS_DESC_FLUSHED_ERROR);
    end(vi);
}

/* The server sends, and the receipt never comes. */
static void sending(void)
{
    VIP_VI_HANDLE vi = create(VIP_SERVICE_RELIABLE_RECEPTION);
    join(vi, "death");
    meet(0);
    if (!serves)
        ends();
    post_send(vi, 0, memory->out, 40000);
    post_send(vi, 1, memory->out, 8);
    VIP_DESCRIPTOR *d;
    EXPECT(VIP_DESCRIPTOR_ERROR, VipSendWait(vi, LIMIT_MS, &d));
    MUST(d == &memory->places[0].d);
    VIP_UINT32 errors_of = d->CS.Status & VIP_STATUS_ERROR_MASK;
    MUST(errors_of == VIP_STATUS_TRANSPORT_ERROR || errors_of == VIP_STATUS_REMOTE_DESC_ERROR
         || errors_of == VIP_STATUS_DESC_FLUSHED_ERROR);
    EXPECT(VIP_DESCRIPTOR_ERROR, VipSendWait(vi, LIMIT_MS, &d));
    MUST(state_of(vi) == VIP_STATE_ERROR);
    end(vi);
}

/* The server requests a connection, and the client ends before it answers. */
static void requesting(void)
{
    VIP_VI_HANDLE vi = create(VIP_SERVICE_RELIABLE_DELIVERY);
    if (!serves) {
        wait_for("death");
        ends();
    }
    VIP_RETURN code = request(vi, "death", VIP_INFINITE);
    /* One that closes its interface rejects what waits there. */
    MUST(code == (is("exit") ? VIP_REJECT : VIP_NOT_REACHABLE));
    MUST(state_of(vi) == VIP_STATE_IDLE);
    end(vi);
}

/* The client requests a connection, and ends before the server accepts. */
static void *request_of(void *vi)
{
    request(vi, "death", VIP_INFINITE);
    return NULL;
}

static void accepting(void)
{
    VIP_VI_HANDLE vi = create(VIP_SERVICE_RELIABLE_DELIVERY);
    pthread_t thread;
    if (!serves) {
        pthread_create(&thread, NULL, request_of, vi);
        meet(0);
        ends();
    }
    VIP_CONN_HANDLE conn = wait_for("death");
    meet(0);
    await_error(meeting, VIP_ERROR_CONN_LOST);
    EXPECT(VIP_TIMEOUT, VipConnectAccept(conn, vi));
    MUST(state_of(vi) == VIP_STATE_IDLE);
    end(vi);
}

int main(int count, char **words)
{
    MUST(count == 4);
    alarm(LIMIT_MS / 1000 + 20);
    serves = strcmp(words[1], "server") == 0;
    way = words[3];
    open_all();
    begin_meetings();
    meet(0);
    if (strcmp(words[2], "connected") == 0)
        connected();
    else if (strcmp(words[2], "sending") == 0)
        sending();
    else if (strcmp(words[2], "requesting") == 0)
        requesting();
    else
        accepting();
    end(meeting);
    close_all();
    printf("the server goes on\n");
    return 0;
}
