/*
 * A server and a client: the client sends a line, the server answers it.
 *
 *     ./hello server            in one shell
 *     ./hello client HOST       in another, here or on another host
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <time.h>

enum { ROOM = 256, SECONDS = 60 };

/* One registered piece: two descriptors, and a place for a message each. */
struct memory {
    VIP_DESCRIPTOR send, recv;
    char out[ROOM], in[ROOM];
};

int main(int count, char **words)
{
    int serves = count == 2 && strcmp(words[1], "server") == 0;
    if (!serves && count != 3) {
        fprintf(stderr, "usage: hello server | hello client HOST\n");
        return 2;
    }

    /* The network interface, a protection tag, and memory. */
    VIP_NIC_HANDLE nic;
    VIP_NIC_ATTRIBUTES about;
    VIP_PROTECTION_HANDLE tag;
    CHECK(VipOpenNic("VINIC0", &nic));
    CHECK(VipQueryNic(nic, &about));
    CHECK(VipCreatePtag(nic, &tag));
    struct memory *memory = aligned(sizeof *memory);
    VIP_MEM_ATTRIBUTES of_memory = {tag, VIP_FALSE, VIP_FALSE};
    VIP_MEM_HANDLE handle;
    CHECK(VipRegisterMem(nic, memory, sizeof *memory, &of_memory, &handle));

    /* A virtual interface, and a receive that is posted before the connection. */
    VIP_VI_ATTRIBUTES of_vi = {VIP_SERVICE_RELIABLE_DELIVERY, ROOM, NULL, tag, VIP_FALSE,
                               VIP_FALSE};
    VIP_VI_HANDLE vi;
    CHECK(VipCreateVi(nic, &of_vi, NULL, NULL, &vi));
    memory->recv.CS.SegCount = 1;
    memory->recv.DS[0].Local.Data.Address = memory->in;
    memory->recv.DS[0].Local.Handle = handle;
    memory->recv.DS[0].Local.Length = ROOM;
    CHECK(VipPostRecv(vi, &memory->recv, handle));

    /* The connection. */
    net_address own = address_of(about.LocalNicAddress, about.NicAddressLen, "hello");
    if (serves) {
        VIP_CONN_HANDLE request;
        CHECK(VipConnectWait(nic, &own.of, SECONDS * 1000, NULL, NULL, &request));
        CHECK(VipConnectAccept(request, vi));
    } else {
        net_address server, client;
        CHECK(VipNSInit(nic, NULL));
        CHECK(VipNSGetHostByName(nic, words[2], &server.of, 0));
        server = address_of(server.of.HostAddress, server.of.HostAddressLen, "hello");
        client = address_of(about.LocalNicAddress, about.NicAddressLen, "");
        VIP_RETURN code;
        for (int tries = 0; tries < SECONDS * 100; tries++) {
            code = VipConnectRequest(vi, &client.of, &server.of, SECONDS * 1000, NULL);
            if (code != VIP_NO_MATCH)
                break;
            /* The server does not wait yet. */
            nanosleep(&(struct timespec){0, 10 * 1000 * 1000}, NULL);
        }
        EXPECT(VIP_SUCCESS, code);
    }

    /* The client sends first, the server when it has received. */
    VIP_DESCRIPTOR *done;
    for (int turn = 0; turn < 2; turn++) {
        if (turn == serves) {
            int len = snprintf(memory->out, ROOM, serves ? "hello, %s" : "%s",
                               serves ? memory->in : "client");
            memory->send.CS.Control = VIP_CONTROL_OP_SENDRECV;
            memory->send.CS.SegCount = 1;
            memory->send.CS.Length = (VIP_UINT32)len + 1;
            memory->send.DS[0].Local.Data.Address = memory->out;
            memory->send.DS[0].Local.Handle = handle;
            memory->send.DS[0].Local.Length = (VIP_UINT32)len + 1;
            CHECK(VipPostSend(vi, &memory->send, handle));
            CHECK(VipSendWait(vi, VIP_INFINITE, &done));
        } else {
            CHECK(VipRecvWait(vi, VIP_INFINITE, &done));
            printf("%s received: %s\n", serves ? "server" : "client", memory->in);
        }
    }

    CHECK(VipDisconnect(vi));
    CHECK(VipDestroyVi(vi));
    CHECK(VipDeregisterMem(nic, memory, handle));
    CHECK(VipDestroyPtag(nic, tag));
    CHECK(VipCloseNic(nic));
    free(memory);
    return 0;
}
