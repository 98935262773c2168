/* Two processes do all that takes two. */
#define _GNU_SOURCE
#include "common.h"

static const VIP_RELIABILITY_LEVEL LEVELS[] = {
    VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY, VIP_SERVICE_RELIABLE_RECEPTION};
enum { OF_SEND = VIP_STATUS_OP_SEND, OF_RECV = VIP_STATUS_OP_RECEIVE };
enum { OF_WRITE = VIP_STATUS_OP_RDMA_WRITE, OF_READ = VIP_STATUS_OP_RDMA_READ };

/* Messages of all lengths, there and back, in order. */
static void messages(VIP_RELIABILITY_LEVEL level)
{
    static const size_t LENS[] = {0, 1, 4, 63, 1000, 8192, 8193, 40000, MOST};
    VIP_VI_HANDLE vi = create(level);
    join(vi, "messages");
    MUST(state_of(vi) == VIP_STATE_CONNECTED);
    for (unsigned i = 0; i < sizeof LENS / sizeof *LENS; i++) {
        size_t len = LENS[i];
        post_recv(vi, 0, memory->in, MOST);
        fill(memory->out, len, i);
        meet(i);
        for (int turn = 0; turn < 2; turn++)
            if (turn == serves) {
                post_send(vi, 1, memory->out, len);
                MUST(SENT(vi, 1, OF_SEND)->CS.Length == len);
            } else {
                MUST(RECEIVED(vi, 0, OF_RECV)->CS.Length == len);
                same(memory->in, len, i);
            }
    }
    meet(9);
    end(vi);
}

/* Many messages at a time: they come in their order, each into the next descriptor. */
static void bursts(VIP_RELIABILITY_LEVEL level)
{
    enum { EACH = 200, ROUNDS = 5 };
    VIP_VI_HANDLE vi = create(level);
    join(vi, "bursts");
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < EACH; i++)
            post_recv(vi, i, memory->in + 512 * i, 512);
        meet(round);
        for (int i = 0; i < EACH; i++) {
            memset(memory->out + 512 * i, i + round, 512);
            post_send(vi, EACH + i, memory->out + 512 * i, i + 1);
        }
        for (int i = 0; i < EACH; i++)
            SENT(vi, EACH + i, OF_SEND);
        for (int i = 0; i < EACH; i++) {
            MUST(RECEIVED(vi, i, OF_RECV)->CS.Length == (VIP_UINT32)i + 1);
            MUST(memory->in[512 * i] == (unsigned char)(i + round));
        }
    }
    meet(9);
    end(vi);
}

/* Pieces at both sides, and immediate data. */
static void segments(size_t each)
{
    VIP_VI_HANDLE vi = create(VIP_SERVICE_RELIABLE_DELIVERY);
    place *p = &memory->places[0];
    prepare(0, VIP_CONTROL_OP_SENDRECV, NULL, 0);
    p->long_one.CS.SegCount = 4;
    size_t lens[] = {each, 0, each / 2 + 1, each * 2}, at = 0;
    for (int i = 0; i < 4; i++) {
        p->long_one.DS[i].Local.Data.Address = memory->in + at + 100 * i;
        p->long_one.DS[i].Local.Handle = lens[i] == 0 ? 0 : handle;
        p->long_one.DS[i].Local.Length = (VIP_UINT32)lens[i];
        at += lens[i];
    }
    memset(memory->in, 0xee, MOST + 400);
    CHECK(VipPostRecv(vi, &p->d, handle));
    join(vi, "segments");
    meet(0);
    fill(memory->out, 3 * each, 5);
    place *q = &memory->places[1];
    prepare(1, VIP_CONTROL_OP_SENDRECV | VIP_CONTROL_IMMEDIATE, NULL, 0);
    q->long_one.CS.SegCount = 3;
    q->long_one.CS.ImmediateData = 0xabcd0000u + (VIP_UINT32)serves;
    q->long_one.CS.Length = (VIP_UINT32)(3 * each);
    for (int i = 0; i < 3; i++) {
        q->long_one.DS[i].Local.Data.Address = memory->out + each * i;
        q->long_one.DS[i].Local.Handle = handle;
        q->long_one.DS[i].Local.Length = (VIP_UINT32)each;
    }
    CHECK(VipPostSend(vi, &q->d, handle));
    SENT(vi, 1, OF_SEND);
    VIP_DESCRIPTOR *d = RECEIVED(vi, 0, OF_RECV | VIP_STATUS_IMMEDIATE);
    MUST(d->CS.ImmediateData == 0xabcd0000u + (VIP_UINT32)!serves);
    MUST(d->CS.Length == 3 * each);
    unsigned char *together = malloc(3 * each);
    size_t have = 0;
    for (int i = 0, start = 0; i < 4; start += (int)lens[i], i++) {
        size_t part = lens[i] < 3 * each - have ? lens[i] : 3 * each - have;
        memcpy(together + have, memory->in + start + 100 * i, part);
        have += part;
        MUST(memory->in[start + 100 * i + part] == 0xee);
    }
    same(together, 3 * each, 5);
    free(together);
    meet(9);
    end(vi);
}

/* Attributes that differ: nothing is sent, and the request can be accepted otherwise. */
static void differences(void)
{
    VIP_VI_ATTRIBUTES of = attributes(VIP_SERVICE_RELIABLE_DELIVERY), seen;
    if (serves) {
        net_address own = own_address("differences"), from;
        VIP_CONN_HANDLE conn;
        VIP_VI_HANDLE other = create(VIP_SERVICE_UNRELIABLE), vi = create_of(of, NULL, NULL);
        of.MaxTransferSize = 100;
        VIP_VI_HANDLE shorter = create_of(of, NULL, NULL);
        CHECK(VipConnectWait(nic, &own.of, LIMIT_MS, &from.of, &seen, &conn));
        MUST(from.of.HostAddressLen == about.NicAddressLen && from.of.DiscriminatorLen == 6);
        MUST(memcmp(from.of.HostAddress + about.NicAddressLen, "client", 6) == 0);
        MUST(seen.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY);
        MUST(seen.MaxTransferSize == MOST && seen.EnableRdmaWrite && seen.EnableRdmaRead);
        EXPECT(VIP_INVALID_RELIABILITY_LEVEL, VipConnectAccept(conn, other));
        EXPECT(VIP_INVALID_MTU, VipConnectAccept(conn, shorter));
        EXPECT(VIP_INVALID_PARAMETER, VipConnectAccept(conn, NULL));
        CHECK(VipConnectAccept(conn, vi));
        EXPECT(VIP_INVALID_PARAMETER, VipConnectAccept(conn, other));
        EXPECT(VIP_INVALID_PARAMETER, VipConnectReject(conn));
        conn = wait_for("differences");
        EXPECT(VIP_INVALID_STATE, VipConnectAccept(conn, vi));
        CHECK(VipConnectReject(conn));
        EXPECT(VIP_INVALID_PARAMETER, VipConnectReject(conn));
        EXPECT(VIP_INVALID_STATE, VipSetViAttributes(vi, &of));
        EXPECT(VIP_INVALID_STATE, VipDestroyVi(vi));
        end(other), end(shorter);
        meet(0);
        end(vi);
    } else {
        net_address from = own_address("client"), to = other_address("differences");
        VIP_VI_HANDLE vi = create_of(of, NULL, NULL), again = create_of(of, NULL, NULL);
        VIP_RETURN code;
        do
            code = VipConnectRequest(vi, &from.of, &to.of, LIMIT_MS, &seen);
        while (code == VIP_NO_MATCH);
        EXPECT(VIP_SUCCESS, code);
        MUST(seen.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY);
        MUST(seen.MaxTransferSize == MOST && seen.Ptag == NULL && seen.QoS == NULL);
        EXPECT(VIP_INVALID_STATE, VipConnectRequest(vi, &from.of, &to.of, LIMIT_MS, &seen));
        EXPECT(VIP_REJECT, request(again, "differences", LIMIT_MS));
        MUST(state_of(again) == VIP_STATE_IDLE);
        meet(0);
        end(vi), end(again);
    }
}

/* A request whose time is over is no connection of either side. */
static void late(void)
{
    VIP_VI_HANDLE vi = create(VIP_SERVICE_RELIABLE_DELIVERY);
    net_address own = own_address("late");
    VIP_CONN_HANDLE conn;
    if (serves) {
        own = own_address("nobody");
        EXPECT(VIP_TIMEOUT, VipConnectWait(nic, &own.of, 10, NULL, NULL, &conn));
        conn = wait_for("late");
        meet(0);
        EXPECT(VIP_TIMEOUT, VipConnectAccept(conn, vi));
        EXPECT(VIP_INVALID_PARAMETER, VipConnectReject(conn));
    } else {
        EXPECT(VIP_TIMEOUT, request(vi, "late", 200));
        MUST(state_of(vi) == VIP_STATE_IDLE);
        EXPECT(VIP_NO_MATCH, VipConnectRequest(vi, &own.of, &own.of, LIMIT_MS, NULL));
        meet(0);
    }
    MUST(state_of(vi) == VIP_STATE_IDLE);
    end(vi);
}

/* A message finds no descriptor. */
static void none_posted(VIP_RELIABILITY_LEVEL level)
{
    VIP_VI_HANDLE vi = create(level);
    int reliable = level != VIP_SERVICE_UNRELIABLE;
    int told = level == VIP_SERVICE_RELIABLE_RECEPTION;
    join(vi, "none");
    meet(0);
    if (serves) {
        if (reliable) {
            await_error(vi, VIP_ERROR_RECVQ_EMPTY);
            MUST(state_of(vi) == VIP_STATE_ERROR);
        }
        meet(1);
        post_recv(vi, 0, memory->in, 8);
        meet(2);
        if (reliable)
            RECEIVED(vi, 0, OF_RECV | VIP_STATUS_DESC_FLUSHED_ERROR);
        else {
            /* The first message is lost, not kept. */
            RECEIVED(vi, 0, OF_RECV);
            MUST(memory->in[0] == 2);
        }
    } else {
        memory->out[0] = 1;
        post_send(vi, 0, memory->out, 1);
        SENT(vi, 0, told ? OF_SEND | VIP_STATUS_REMOTE_DESC_ERROR : OF_SEND);
        if (level == VIP_SERVICE_RELIABLE_DELIVERY)
            await_error(vi, VIP_ERROR_CONN_LOST);
        MUST((state_of(vi) == VIP_STATE_ERROR) == reliable);
        meet(1);
        meet(2);
        memory->out[0] = 2;
        post_send(vi, 0, memory->out, 1);
        SENT(vi, 0, reliable ? OF_SEND | VIP_STATUS_DESC_FLUSHED_ERROR : OF_SEND);
    }
    meet(3);
    end(vi);
}

/* A message is longer than the descriptor that it finds. */
static void too_long(VIP_RELIABILITY_LEVEL level)
{
    VIP_VI_HANDLE vi = create(level);
    int reliable = level != VIP_SERVICE_UNRELIABLE;
    if (serves) {
        memset(memory->in, 9, 64);
        post_recv(vi, 0, memory->in, 15);
        post_recv(vi, 1, memory->in + 32, 16);
    }
    join(vi, "too long");
    if (serves) {
        RECEIVED(vi, 0, OF_RECV | VIP_STATUS_LENGTH_ERROR);
        MUST(memory->in[0] == 9);
        meet(1);
        RECEIVED(vi, 1, reliable ? OF_RECV | VIP_STATUS_DESC_FLUSHED_ERROR : OF_RECV);
    } else {
        VIP_UINT32 status = OF_SEND;
        if (level == VIP_SERVICE_RELIABLE_RECEPTION)
            status |= VIP_STATUS_REMOTE_DESC_ERROR;
        post_send(vi, 0, memory->out, 16);
        SENT(vi, 0, status);
        meet(1);
        if (!reliable) {
            post_send(vi, 1, memory->out, 16);
            SENT(vi, 1, OF_SEND);
        }
    }
    meet(2);
    MUST(state_of(vi) == (reliable ? VIP_STATE_ERROR : VIP_STATE_CONNECTED));
    meet(3);
    end(vi);
}

/* Descriptors that are wrong at the sender: each ends in its own way. */
static void wrong_sends(void)
{
    VIP_VI_ATTRIBUTES of = attributes(VIP_SERVICE_UNRELIABLE);
    VIP_PROTECTION_HANDLE other;
    VIP_MEM_ATTRIBUTES of_memory = {NULL, VIP_FALSE, VIP_FALSE};
    VIP_MEM_HANDLE foreign;
    VIP_DESCRIPTOR *d;
    unsigned char *apart = aligned(256);
    CHECK(VipCreatePtag(nic, &other));
    of_memory.Ptag = other;
    CHECK(VipRegisterMem(nic, apart, 256, &of_memory, &foreign));
    of.MaxTransferSize = 1000;
    VIP_VI_HANDLE vi = create_of(of, NULL, NULL);
    join(vi, "wrong");
    meet(0);
    /* Unknown operation, reserved bits, too many segments, another length. */
    static const struct {
        VIP_UINT16 control, count;
        VIP_UINT32 len, status;
    } FORMATS[] = {{3, 1, 8, 0},
                   {0x100, 1, 8, 0},
                   {0, 253, 8, 0},
                   {0, 1, 9, 0},
                   {VIP_CONTROL_OP_RDMAWRITE, 0, 0, OF_WRITE},
                   {VIP_CONTROL_OP_RDMAREAD | VIP_CONTROL_IMMEDIATE, 2, 8, OF_READ}};
    for (unsigned i = 0; i < sizeof FORMATS / sizeof *FORMATS; i++) {
        d = prepare(0, FORMATS[i].control, memory->out, 8);
        d->CS.SegCount = FORMATS[i].count;
        d->CS.Length = FORMATS[i].len;
        CHECK(VipPostSend(vi, d, handle));
        SENT(vi, 0, FORMATS[i].status | VIP_STATUS_FORMAT_ERROR);
    }
    /* A read on an unreliable connection. */
    d = prepare_remote(0, VIP_CONTROL_OP_RDMAREAD, memory->in, 8, 0, 0);
    CHECK(VipPostSend(vi, d, handle));
    SENT(vi, 0, OF_READ | VIP_STATUS_FORMAT_ERROR);
    /* Longer than the maximum transfer size. */
    post_send(vi, 0, memory->out, 1001);
    SENT(vi, 0, OF_SEND | VIP_STATUS_LENGTH_ERROR);
    /* No such memory, beyond its end, of another tag. */
    static const struct {
        int handle, offset;
    } PLACES_OF[] = {{1, 0}, {0, (int)sizeof(struct memory) - 7}, {0, -8}, {2, 0}, {3, 0}};
    for (unsigned i = 0; i < sizeof PLACES_OF / sizeof *PLACES_OF; i++) {
        int kind = PLACES_OF[i].handle;
        d = prepare(0, VIP_CONTROL_OP_SENDRECV, (char *)memory + PLACES_OF[i].offset, 8);
        if (kind == 1)
            d->DS[0].Local.Handle = handle + 1;
        else if (kind == 2) {
            d->DS[0].Local.Handle = foreign;
            d->DS[0].Local.Data.Address = apart + 64;
        } else if (kind == 3)
            d->DS[0].Local.Data.AddressBits = ~(VIP_UINT64)3;
        CHECK(VipPostSend(vi, d, handle));
        SENT(vi, 0, OF_SEND | VIP_STATUS_PROTECTION_ERROR);
    }
    /* A descriptor in memory of another tag, and one whose segments end outside of it. */
    for (int kind = 0; kind < 2; kind++) {
        d = (VIP_DESCRIPTOR *)(apart + (kind == 0 ? 0 : 192));
        memset(d, 0, sizeof *d);
        d->CS.SegCount = kind == 0 ? 0 : 3;
        if (kind == 1) {
            of_memory.Ptag = tag;
            CHECK(VipSetMemAttributes(nic, apart, foreign, &of_memory));
        }
        CHECK(VipPostSend(vi, d, foreign));
        VIP_DESCRIPTOR *back;
        EXPECT(VIP_DESCRIPTOR_ERROR, VipSendWait(vi, LIMIT_MS, &back));
        MUST(back == d && d->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_PROTECTION_ERROR));
    }
    /* Refused at once: no descriptor at all. */
    d = prepare(0, VIP_CONTROL_OP_SENDRECV, memory->out, 8);
    EXPECT(VIP_INVALID_PARAMETER, VipPostSend(vi, NULL, handle));
    EXPECT(VIP_INVALID_PARAMETER, VipPostSend(vi, d, handle + 1));
    EXPECT(VIP_INVALID_PARAMETER, VipPostSend(vi, d, foreign));
    EXPECT(VIP_INVALID_PARAMETER, VipPostSend(vi, (void *)((char *)d + 32), handle));
    EXPECT(VIP_INVALID_PARAMETER, VipPostSend(vi, (void *)((char *)memory - 64), handle));
    EXPECT(VIP_INVALID_PARAMETER, VipPostRecv(vi, (void *)((char *)d + 1), handle));
    EXPECT(VIP_INVALID_PARAMETER, VipPostRecv(vi, NULL, handle));
    /* Nothing of that ended the connection. */
    MUST(state_of(vi) == VIP_STATE_CONNECTED);
    meet(1);
    end(vi);
    CHECK(VipDeregisterMem(nic, apart, foreign));
    CHECK(VipDestroyPtag(nic, other));
    free(apart);
}

/* On a reliable connection a wrong descriptor is the end. */
static void wrong_send_breaks(VIP_RELIABILITY_LEVEL level)
{
    VIP_VI_HANDLE vi = create(level);
    for (int i = 0; i < 3; i++)
        post_recv(vi, i, memory->in, 8);
    join(vi, "breaks");
    meet(0);
    if (serves) {
        VIP_DESCRIPTOR *d = prepare(4, VIP_CONTROL_OP_SENDRECV, memory->out, 8);
        d->DS[0].Local.Handle = handle + 1;
        CHECK(VipPostSend(vi, d, handle));
        post_send(vi, 5, memory->out, 8);
        SENT(vi, 4, OF_SEND | VIP_STATUS_PROTECTION_ERROR);
        SENT(vi, 5, OF_SEND | VIP_STATUS_DESC_FLUSHED_ERROR);
    } else
        await_error(vi, VIP_ERROR_CONN_LOST);
    MUST(state_of(vi) == VIP_STATE_ERROR);
    for (int i = 0; i < 3; i++)
        RECEIVED(vi, i, OF_RECV | VIP_STATUS_DESC_FLUSHED_ERROR);
    VIP_DESCRIPTOR *none;
    EXPECT(VIP_DESCRIPTOR_ERROR, VipRecvDone(vi, &none));
    MUST(none == NULL);
    post_recv(vi, 0, memory->in, 8);
    RECEIVED(vi, 0, OF_RECV | VIP_STATUS_DESC_FLUSHED_ERROR);
    meet(1);
    /* The virtual interface can be connected again. */
    CHECK(VipDisconnect(vi));
    post_recv(vi, 0, memory->in, 8);
    join(vi, "again");
    post_send(vi, 1, memory->out, 8);
    SENT(vi, 1, OF_SEND);
    RECEIVED(vi, 0, OF_RECV);
    meet(2);
    end(vi);
}

/* Descriptors that are wrong at the receiver. */
static void wrong_receives(void)
{
    VIP_VI_HANDLE vi = create(VIP_SERVICE_UNRELIABLE);
    if (serves) {
        VIP_DESCRIPTOR *d;
        post_recv(vi, 0, memory->in, 8);
        memory->places[0].d.CS.Control = VIP_CONTROL_OP_RDMAWRITE;
        post_recv(vi, 1, memory->in, 8);
        memory->places[1].d.CS.SegCount = 253;
        post_recv(vi, 2, memory->in, 8);
        memory->places[2].d.DS[0].Local.Handle = handle + 1;
        post_recv(vi, 3, (char *)(memory + 1) - 4, 8);
        d = prepare(4, VIP_CONTROL_OP_SENDRECV, memory->in, 8);
        CHECK(VipPostRecv(vi, d, handle));
    }
    join(vi, "wrong too");
    for (int i = 0; i < 5; i++)
        if (!serves) {
            post_send(vi, i, memory->out, 8);
            SENT(vi, i, OF_SEND);
        } else if (i < 4)
            RECEIVED(vi, i,
                     OF_RECV | (i < 2 ? VIP_STATUS_FORMAT_ERROR : VIP_STATUS_PROTECTION_ERROR));
        else
            RECEIVED(vi, i, OF_RECV);
    meet(1);
    end(vi);
}

/* Memory that is deregistered while its descriptors are posted. */
static void gone(void)
{
    VIP_VI_HANDLE vi = create(VIP_SERVICE_RELIABLE_DELIVERY);
    place *apart = aligned(sizeof *apart);
    VIP_MEM_ATTRIBUTES of = {tag, VIP_FALSE, VIP_FALSE};
    VIP_MEM_HANDLE soon;
    VIP_DESCRIPTOR *d;
    if (serves) {
        CHECK(VipRegisterMem(nic, apart, sizeof *apart, &of, &soon));
        CHECK(VipPostRecv(vi, &apart->d, soon));
        post_recv(vi, 0, memory->in, 8);
        CHECK(VipDeregisterMem(nic, apart, soon));
        EXPECT(VIP_INVALID_PARAMETER, VipDeregisterMem(nic, apart, soon));
        EXPECT(VIP_INVALID_PARAMETER, VipQueryMem(nic, apart, soon, &of));
    }
    join(vi, "gone");
    if (serves) {
        VIP_ERROR_DESCRIPTOR error = await_error(vi, VIP_ERROR_POST_DESC);
        MUST(error.DescriptorPtr == &apart->d && error.ResourceCode == VIP_RESOURCE_DESCRIPTOR);
        EXPECT(VIP_DESCRIPTOR_ERROR, VipRecvWait(vi, LIMIT_MS, &d));
        MUST(d == &apart->d && d->CS.Status == 0);
        RECEIVED(vi, 0, OF_RECV | VIP_STATUS_DESC_FLUSHED_ERROR);
    } else {
        post_send(vi, 0, memory->out, 8);
        SENT(vi, 0, OF_SEND);
        await_error(vi, VIP_ERROR_CONN_LOST);
    }
    meet(1);
    CHECK(VipDisconnect(vi));
    /* Flushed, and its memory is gone: it is reported, and nothing is written there. */
    CHECK(VipRegisterMem(nic, apart, sizeof *apart, &of, &soon));
    memset(apart, 0, sizeof *apart);
    CHECK(VipPostRecv(vi, &apart->d, soon));
    CHECK(VipDeregisterMem(nic, apart, soon));
    CHECK(VipDisconnect(vi));
    MUST(await_error(vi, VIP_ERROR_COMP_PROT).DescriptorPtr == &apart->d);
    EXPECT(VIP_DESCRIPTOR_ERROR, VipRecvDone(vi, &d));
    MUST(d == &apart->d && d->CS.Status == 0);
    end(vi);
    free(apart);
}

/* Writes to, and reads of, the other side's memory. */
static void remote(VIP_RELIABILITY_LEVEL level)
{
    static const size_t LENS[] = {0, 1, 8, 1000, 8192, 50000, MOST};
    VIP_VI_HANDLE vi = create(level);
    VIP_UINT64 there = meet((VIP_UINT64)(uintptr_t)memory->in);
    VIP_MEM_HANDLE of = (VIP_MEM_HANDLE)meet(handle);
    VIP_UINT64 source = meet((VIP_UINT64)(uintptr_t)memory->out);
    join(vi, "remote");
    for (unsigned i = 0; i < sizeof LENS / sizeof *LENS; i++) {
        size_t len = LENS[i];
        memset(memory->in, 0, MOST);
        fill(memory->out, len, i + 100 * (unsigned)serves);
        post_recv(vi, 0, memory->in + MOST, 8);
        meet(0);
        /* A message behind a write comes when the bytes are there. */
        VIP_DESCRIPTOR *d =
            prepare_remote(1, VIP_CONTROL_OP_RDMAWRITE, memory->out, len, there, of);
        CHECK(VipPostSend(vi, d, handle));
        post_send(vi, 2, memory->out, 8);
        MUST(SENT(vi, 1, OF_WRITE)->CS.Length == len);
        SENT(vi, 2, OF_SEND);
        RECEIVED(vi, 0, OF_RECV);
        same(memory->in, len, i + 100 * (unsigned)!serves);
        if (level == VIP_SERVICE_UNRELIABLE)
            continue;
        meet(1);
        memset(memory->in, 0, MOST);
        meet(2);
        d = prepare_remote(3, VIP_CONTROL_OP_RDMAREAD, memory->in, len, source, of);
        CHECK(VipPostSend(vi, d, handle));
        MUST(SENT(vi, 3, OF_READ)->CS.Length == len);
        same(memory->in, len, i + 100 * (unsigned)!serves);
        meet(3);
    }
    meet(4);
    end(vi);
}

/* Writes and reads in pieces, with immediate data, and behind a fence. */
static void remote_pieces(VIP_RELIABILITY_LEVEL level)
{
    enum { EACH = 5000 };
    VIP_VI_HANDLE vi = create(level);
    VIP_UINT64 there = meet((VIP_UINT64)(uintptr_t)memory->in);
    VIP_MEM_HANDLE of = (VIP_MEM_HANDLE)meet(handle);
    join(vi, "pieces");
    memset(memory->in, 0, MOST);
    post_recv(vi, 0, memory->in + MOST, 8);
    fill(memory->out, 3 * EACH, 3);
    meet(0);
    place *p = &memory->places[1];
    for (int pass = 0; pass < 2; pass++) {
        prepare_remote(1, VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_IMMEDIATE, NULL, 0, there, of);
        if (pass == 1)
            p->d.CS.Control = VIP_CONTROL_OP_RDMAREAD;
        p->long_one.CS.SegCount = 4;
        p->long_one.CS.Length = 3 * EACH;
        p->long_one.CS.ImmediateData = 77;
        for (int i = 0; i < 3; i++) {
            unsigned char *at = pass == 0 ? memory->out : memory->in + 3 * EACH;
            p->long_one.DS[i + 1].Local.Data.Address = at + EACH * (pass == 0 ? i : 2 - i);
            p->long_one.DS[i + 1].Local.Handle = handle;
            p->long_one.DS[i + 1].Local.Length = EACH;
        }
        CHECK(VipPostSend(vi, &p->d, handle));
        if (pass == 1) {
            VIP_DESCRIPTOR *d = prepare(2, VIP_CONTROL_QFENCE, memory->out, 8);
            CHECK(VipPostSend(vi, d, handle));
        }
        SENT(vi, 1, pass == 0 ? OF_WRITE : OF_READ);
        if (pass == 0) {
            VIP_DESCRIPTOR *d = RECEIVED(
                vi, 0, VIP_STATUS_OP_REMOTE_RDMA_WRITE | VIP_STATUS_IMMEDIATE);
            MUST(d->CS.ImmediateData == 77 && d->CS.Length == 3 * EACH);
            same(memory->in, 3 * EACH, 3);
            if (level == VIP_SERVICE_UNRELIABLE)
                break;
            post_recv(vi, 0, memory->in + MOST, 8);
            meet(1);
        } else {
            SENT(vi, 2, OF_SEND);
            RECEIVED(vi, 0, OF_RECV);
            for (int i = 0; i < 3; i++)
                MUST(memcmp(memory->in + (5 - i) * EACH, memory->in + i * EACH, EACH) == 0);
        }
    }
    meet(2);
    end(vi);
}

/* Writes and reads that the other side refuses. */
static void refused(VIP_RELIABILITY_LEVEL level, int case_of)
{
    enum { HANDLE, BOUNDS, RIGHTS, TAG, OF_VI, CASES };
    int reliable = level != VIP_SERVICE_UNRELIABLE;
    MUST(case_of < CASES);
    VIP_VI_ATTRIBUTES of_vi = attributes(level);
    if (case_of == OF_VI)
        of_vi.EnableRdmaWrite = of_vi.EnableRdmaRead = VIP_FALSE;
    VIP_VI_HANDLE vi = create_of(of_vi, NULL, NULL);
    VIP_PROTECTION_HANDLE other;
    unsigned char *apart = aligned(4096);
    VIP_MEM_ATTRIBUTES of = {tag, VIP_TRUE, VIP_TRUE};
    VIP_MEM_HANDLE closed;
    CHECK(VipCreatePtag(nic, &other));
    if (case_of == RIGHTS)
        of.EnableRdmaWrite = of.EnableRdmaRead = VIP_FALSE;
    if (case_of == TAG)
        of.Ptag = other;
    CHECK(VipRegisterMem(nic, apart, 4096, &of, &closed));
    VIP_UINT64 there = meet((VIP_UINT64)(uintptr_t)apart);
    VIP_MEM_HANDLE theirs = (VIP_MEM_HANDLE)meet(closed);
    if (case_of == HANDLE)
        theirs += 7;
    if (case_of == BOUNDS)
        there += 4093;
    for (int reads = 0; reads < 1 + reliable; reads++) {
        VIP_UINT16 op = reads ? VIP_CONTROL_OP_RDMAREAD : VIP_CONTROL_OP_RDMAWRITE;
        join(vi, "refused");
        meet(0);
        if (!serves) {
            VIP_UINT32 status = (reads ? OF_READ : OF_WRITE) | VIP_STATUS_RDMA_PROT_ERROR;
            /* Nobody learns of a write that an unreliable connection loses. */
            if (!reliable && case_of != OF_VI)
                status = OF_WRITE;
            CHECK(VipPostSend(vi, prepare_remote(0, op, memory->out, 8, there, theirs), handle));
            SENT(vi, 0, status);
        } else if (case_of != OF_VI || reliable) {
            VIP_ERROR_CODE code = reads ? VIP_ERROR_RDMAR_PROT : VIP_ERROR_RDMAW_PROT;
            await_error(vi, code);
        }
        meet(1);
        MUST(state_of(vi) == (reliable ? VIP_STATE_ERROR : VIP_STATE_CONNECTED));
        for (int i = 0; i < 4096; i++)
            MUST(apart[i] == 0);
        meet(2);
        CHECK(VipDisconnect(vi));
        meet(3);
    }
    end(vi);
    CHECK(VipDeregisterMem(nic, apart, closed));
    CHECK(VipDestroyPtag(nic, other));
    free(apart);
}

/* Two virtual interfaces and one completion queue. */
static void queues(void)
{
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE vi[2], which;
    VIP_BOOLEAN received;
    VIP_DESCRIPTOR *d;
    CHECK(VipCreateCQ(nic, 8, &cq));
    for (int i = 0; i < 2; i++) {
        vi[i] = create_of(attributes(VIP_SERVICE_RELIABLE_DELIVERY), cq, cq);
        post_recv(vi[i], i, memory->in, 8);
        join(vi[i], i == 0 ? "queue 0" : "queue 1");
    }
    EXPECT(VIP_NOT_DONE, VipCQDone(cq, &which, &received));
    EXPECT(VIP_TIMEOUT, VipCQWait(cq, 1, &which, &received));
    EXPECT(VIP_INVALID_PARAMETER, VipRecvWait(vi[0], 1, &d));
    EXPECT(VIP_INVALID_PARAMETER, VipSendWait(vi[0], 1, &d));
    EXPECT(VIP_ERROR_RESOURCE, VipDestroyCQ(cq));
    EXPECT(VIP_INVALID_PARAMETER, VipResizeCQ(cq, 0));
    meet(0);
    post_send(vi[1], 3, memory->out, 8);
    post_send(vi[0], 2, memory->out, 8);
    int seen[4] = {0};
    for (int i = 0; i < 4; i++) {
        CHECK(VipCQWait(cq, LIMIT_MS, &which, &received));
        int of = which == vi[1];
        MUST(of || which == vi[0]);
        CHECK(received ? VipRecvDone(which, &d) : VipSendDone(which, &d));
        int number = (int)((place *)d - memory->places);
        MUST(number == of + (received ? 0 : 2));
        seen[number]++;
    }
    MUST(seen[0] == 1 && seen[1] == 1 && seen[2] == 1 && seen[3] == 1);
    meet(1);
    /* A queue without room. */
    CHECK(VipResizeCQ(cq, 1));
    post_send(vi[0], 2, memory->out, 0);
    post_send(vi[0], 3, memory->out, 0);
    VIP_ERROR_DESCRIPTOR error = await_error(NULL, VIP_ERROR_VI_OVERRUN);
    MUST(error.CQHandle == cq && error.ResourceCode == VIP_RESOURCE_CQ);
    meet(2);
    end(vi[0]), end(vi[1]);
    CHECK(VipDestroyCQ(cq));
    EXPECT(VIP_INVALID_PARAMETER, VipCQDone(cq, &which, &received));
}

/* Handlers. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t came;
    int calls, order[64];
} heard = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, {0}};

static void hear(int what)
{
    pthread_mutex_lock(&heard.lock);
    heard.order[heard.calls++ % 64] = what;
    pthread_cond_broadcast(&heard.came);
    pthread_mutex_unlock(&heard.lock);
}

static void await_calls(int calls)
{
    pthread_mutex_lock(&heard.lock);
    while (heard.calls < calls)
        pthread_cond_wait(&heard.came, &heard.lock);
    pthread_mutex_unlock(&heard.lock);
}

static VIP_VI_HANDLE expected;

static void on_descriptor(VIP_PVOID context, VIP_NIC_HANDLE of, VIP_VI_HANDLE vi,
                          VIP_DESCRIPTOR *d)
{
    MUST(of == nic && vi == expected);
    int number = (int)((place *)d - memory->places);
    if (context == &heard) /* Again for the next one. */
        CHECK(VipRecvNotify(vi, context, on_descriptor));
    hear(number);
}

static void on_entry(VIP_PVOID context, VIP_NIC_HANDLE of, VIP_VI_HANDLE vi, VIP_BOOLEAN received)
{
    VIP_DESCRIPTOR *d;
    MUST(context == NULL && of == nic && vi == expected);
    CHECK(received ? VipRecvDone(vi, &d) : VipSendDone(vi, &d));
    hear((int)((place *)d - memory->places));
}

static void handlers(void)
{
    enum { EACH = 20 };
    heard.calls = 0;
    VIP_VI_HANDLE vi = expected = create(VIP_SERVICE_RELIABLE_DELIVERY);
    for (int i = 0; i < EACH; i++)
        post_recv(vi, i, memory->in, 8);
    EXPECT(VIP_INVALID_PARAMETER, VipRecvNotify(vi, NULL, NULL));
    CHECK(VipRecvNotify(vi, &heard, on_descriptor));
    join(vi, "handlers");
    meet(0);
    for (int i = 0; i < EACH; i++) {
        post_send(vi, EACH, memory->out, 8);
        SENT(vi, EACH, OF_SEND);
    }
    await_calls(EACH);
    for (int i = 0; i < EACH; i++)
        MUST(heard.order[i] == i);
    /* One that is complete already; and it is called once. */
    post_send(vi, EACH, memory->out, 0);
    VIP_BOOLEAN empty = VIP_TRUE;
    CHECK(VipQueryVi(vi, NULL, NULL, &empty, NULL));
    MUST(!empty);
    CHECK(VipSendNotify(vi, NULL, on_descriptor));
    await_calls(EACH + 1);
    MUST(heard.order[EACH] == EACH);
    meet(1);
    end(vi);
    /* A completion queue's. */
    VIP_CQ_HANDLE cq;
    CHECK(VipCreateCQ(nic, 8, &cq));
    vi = expected = create_of(attributes(VIP_SERVICE_RELIABLE_RECEPTION), NULL, cq);
    post_recv(vi, 7, memory->in, 8);
    EXPECT(VIP_INVALID_PARAMETER, VipCQNotify(cq, NULL, NULL));
    EXPECT(VIP_INVALID_PARAMETER, VipRecvNotify(vi, NULL, on_descriptor));
    CHECK(VipCQNotify(cq, NULL, on_entry));
    join(vi, "handlers");
    post_send(vi, 8, memory->out, 8);
    SENT(vi, 8, OF_SEND);
    await_calls(EACH + 2);
    MUST(heard.order[EACH + 1] == 7);
    meet(2);
    end(vi);
    CHECK(VipDestroyCQ(cq));
}

/* Handlers that end what calls them. */
static VIP_NIC_HANDLE second;

static void on_last(VIP_PVOID context, VIP_NIC_HANDLE of, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *d)
{
    if (context == NULL) {
        MUST(of == nic);
        CHECK(VipDisconnect(vi));
        do
            VipSendDone(vi, &d);
        while (d != NULL);
        CHECK(VipDestroyVi(vi));
        EXPECT(VIP_INVALID_PARAMETER, VipDestroyVi(vi));
    } else {
        MUST(of == second);
        CHECK(VipCloseNic(of));
        EXPECT(VIP_INVALID_PARAMETER, VipCloseNic(of));
        EXPECT(VIP_INVALID_PARAMETER, VipDisconnect(vi));
    }
    hear(0);
}

static void handlers_that_close(void)
{
    heard.calls = 0;
    VIP_VI_HANDLE vi = create(VIP_SERVICE_RELIABLE_DELIVERY);
    post_recv(vi, 0, memory->in, 8);
    CHECK(VipRecvNotify(vi, NULL, on_last));
    join(vi, "close");
    if (serves)
        await_calls(1);
    else {
        post_send(vi, 1, memory->out, 8);
        await_calls(1); /* flushed, when the other side disconnects */
    }
    EXPECT(VIP_INVALID_PARAMETER, VipDisconnect(vi));
    /* A network interface of its own, closed by its handler. */
    VIP_PROTECTION_HANDLE of_second;
    VIP_VI_ATTRIBUTES of = attributes(VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_MEM_ATTRIBUTES of_memory = {NULL, VIP_FALSE, VIP_FALSE};
    VIP_MEM_HANDLE memory_of;
    CHECK(VipOpenNic("VINIC0", &second));
    MUST(second != nic);
    CHECK(VipCreatePtag(second, &of_second));
    of.Ptag = of_memory.Ptag = of_second;
    CHECK(VipRegisterMem(second, memory, sizeof *memory, &of_memory, &memory_of));
    CHECK(VipCreateVi(second, &of, NULL, NULL, &vi));
    EXPECT(VIP_INVALID_PTAG, VipCreateVi(nic, &of, NULL, NULL, &vi));
    CHECK(VipPostRecv(vi, prepare(0, 0, memory->in, 0), memory_of));
    CHECK(VipRecvNotify(vi, &heard, on_last));
    CHECK(VipDisconnect(vi)); /* flushes the descriptor, which calls the handler */
    await_calls(2);
    EXPECT(VIP_INVALID_PARAMETER, VipQueryVi(vi, NULL, NULL, NULL, NULL));
    meet(0);
}

/* Connections that both sides request. */
static void peers(void)
{
    VIP_VI_ATTRIBUTES seen;
    VIP_VI_HANDLE vi = create(VIP_SERVICE_RELIABLE_DELIVERY);
    /* Where both are on one host, the second pair is one address. */
    const char *const names[] = {"peer 0", "peer 1"};
    net_address here[] = {own_address(names[serves]), own_address("peer")};
    net_address there[] = {other_address(names[!serves]), other_address("peer")};
    net_address nobody = other_address("peer of nobody");
    const VIP_NET_ADDRESS *local = &here[0].of, *remote = &there[0].of;
    EXPECT(VIP_INVALID_STATE, VipConnectPeerDone(vi, &seen));
    EXPECT(VIP_INVALID_STATE, VipConnectPeerWait(vi, &seen));
    EXPECT(VIP_INVALID_PARAMETER, VipConnectPeerRequest(vi, local, remote, 0));
    /* Nobody comes. */
    CHECK(VipConnectPeerRequest(vi, local, &nobody.of, 20));
    EXPECT(VIP_INVALID_STATE, VipConnectPeerRequest(vi, local, &nobody.of, 20));
    MUST(state_of(vi) == VIP_STATE_CONNECT_PENDING);
    EXPECT(VIP_INVALID_STATE, VipDestroyVi(vi));
    EXPECT(VIP_TIMEOUT, VipConnectPeerWait(vi, &seen));
    MUST(state_of(vi) == VIP_STATE_IDLE);
    /* One after the other, at the same time, and at one address. */
    for (int round = 0; round < 4; round++) {
        post_recv(vi, 0, memory->in, 8);
        if (round == 0 && serves)
            meet(1);
        if (round == 3)
            local = &here[1].of, remote = &there[1].of;
        CHECK(VipConnectPeerRequest(vi, local, remote, LIMIT_MS));
        if (round == 0 && !serves) {
            EXPECT(VIP_NOT_DONE, VipConnectPeerDone(vi, &seen));
            meet(1);
        }
        if (round % 2 == 0)
            CHECK(VipConnectPeerWait(vi, &seen));
        else {
            VIP_RETURN code;
            while ((code = VipConnectPeerDone(vi, &seen)) == VIP_NOT_DONE)
                nap(1);
            EXPECT(VIP_SUCCESS, code);
        }
        MUST(seen.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY);
        EXPECT(VIP_INVALID_STATE, VipConnectPeerDone(vi, &seen));
        post_send(vi, 1, memory->out, 8);
        SENT(vi, 1, OF_SEND);
        RECEIVED(vi, 0, OF_RECV);
        meet(2);
        CHECK(VipDisconnect(vi));
        meet(3);
    }
    end(vi);
    /* Attributes differ: both learn. */
    vi = create(serves ? VIP_SERVICE_UNRELIABLE : VIP_SERVICE_RELIABLE_DELIVERY);
    local = &here[0].of, remote = &there[0].of;
    CHECK(VipConnectPeerRequest(vi, local, remote, LIMIT_MS));
    EXPECT(VIP_INVALID_RELIABILITY_LEVEL, VipConnectPeerWait(vi, &seen));
    MUST(state_of(vi) == VIP_STATE_IDLE);
    meet(4);
    end(vi);
}

/* A side that disconnects, and what it leaves. */
static void disconnects(void)
{
    VIP_VI_HANDLE vi = create(VIP_SERVICE_RELIABLE_DELIVERY);
    for (int i = 0; i < 3; i++)
        post_recv(vi, i, memory->in, 8);
    join(vi, "disconnects");
    if (serves) {
        /* Messages that were sent before arrive. */
        post_send(vi, 4, memory->out, 8);
        post_send(vi, 5, memory->out, 8);
        CHECK(VipDisconnect(vi));
        CHECK(VipDisconnect(vi));
        MUST(state_of(vi) == VIP_STATE_IDLE);
        for (int i = 0; i < 3; i++)
            RECEIVED(vi, i, OF_RECV | VIP_STATUS_DESC_FLUSHED_ERROR);
        SENT(vi, 4, OF_SEND);
        SENT(vi, 5, OF_SEND);
        post_send(vi, 4, memory->out, 8);
        SENT(vi, 4, OF_SEND | VIP_STATUS_DESC_FLUSHED_ERROR);
    } else {
        VIP_ERROR_DESCRIPTOR error = await_error(vi, VIP_ERROR_CONN_LOST);
        MUST(error.ResourceCode == VIP_RESOURCE_VI && error.DescriptorPtr == NULL);
        MUST(state_of(vi) == VIP_STATE_ERROR);
        RECEIVED(vi, 0, OF_RECV);
        RECEIVED(vi, 1, OF_RECV);
        RECEIVED(vi, 2, OF_RECV | VIP_STATUS_DESC_FLUSHED_ERROR);
        post_send(vi, 4, memory->out, 8);
        SENT(vi, 4, OF_SEND | VIP_STATUS_DESC_FLUSHED_ERROR);
    }
    meet(0);
    end(vi);
}

/* Threads: some wait, one polls, on one network interface. */
enum { WAITERS = 3, TURNS = 100 };
static VIP_VI_HANDLE of_thread[WAITERS + 1];

static void *answer(void *number)
{
    int i = (int)(intptr_t)number;
    VIP_VI_HANDLE vi = of_thread[i];
    for (int turn = 0; turn < TURNS; turn++) {
        if (serves)
            post_send(vi, 2 * i, memory->out, 8);
        if (i < WAITERS)
            RECEIVED(vi, 2 * i + 1, OF_RECV);
        else {
            VIP_DESCRIPTOR *d;
            VIP_RETURN code;
            while ((code = VipRecvDone(vi, &d)) == VIP_NOT_DONE)
                ;
            EXPECT(VIP_SUCCESS, code);
        }
        post_recv(vi, 2 * i + 1, memory->in + 64 * i, 8);
        if (!serves)
            post_send(vi, 2 * i, memory->out, 8);
        SENT(vi, 2 * i, OF_SEND);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t all[WAITERS + 1];
    for (int i = 0; i <= WAITERS; i++) {
        of_thread[i] = create(VIP_SERVICE_RELIABLE_RECEPTION);
        post_recv(of_thread[i], 2 * i + 1, memory->in + 64 * i, 8);
        join(of_thread[i], "threads");
    }
    meet(0);
    for (int i = 0; i <= WAITERS; i++)
        pthread_create(&all[i], NULL, answer, (void *)(intptr_t)i);
    for (int i = 0; i <= WAITERS; i++)
        pthread_join(all[i], NULL);
    meet(1);
    for (int i = 0; i <= WAITERS; i++)
        end(of_thread[i]);
}

/* A program that waits takes no time of a processor, and neither does one that does nothing. */
static double processor_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void idle(void)
{
    VIP_VI_HANDLE vi = create(VIP_SERVICE_RELIABLE_DELIVERY);
    post_recv(vi, 0, memory->in, 8);
    join(vi, "idle");
    meet(0);
    VIP_DESCRIPTOR *d;
    for (int way = 0; way < 2; way++) {
        double before = processor_time();
        if (way == 0)
            EXPECT(VIP_TIMEOUT, VipRecvWait(vi, 500, &d));
        else
            nap(500);
        MUST(processor_time() - before < 0.25);
    }
    meet(1);
    end(vi);
}

/* The other side writes while this one calls nothing. */
static void absent(void)
{
    VIP_VI_HANDLE vi = create(VIP_SERVICE_RELIABLE_DELIVERY);
    volatile unsigned char *there = memory->in;
    VIP_UINT64 to = meet((VIP_UINT64)(uintptr_t)memory->in);
    VIP_MEM_HANDLE of = (VIP_MEM_HANDLE)meet(handle);
    *there = 0;
    join(vi, "absent");
    meet(0);
    if (serves)
        while (*there == 0)
            nap(1);
    else {
        memory->out[0] = 1;
        VIP_DESCRIPTOR *d = prepare_remote(0, VIP_CONTROL_OP_RDMAWRITE, memory->out, 1, to, of);
        CHECK(VipPostSend(vi, d, handle));
        SENT(vi, 0, OF_WRITE);
    }
    meet(1);
    end(vi);
}

int main(int count, char **words)
{
    (void)count;
    alarm(LIMIT_MS / 1000 + 20);
    serves = strcmp(words[1], "server") == 0;
    open_all();
    begin_meetings();
    for (int i = 0; i < 3; i++) {
        messages(LEVELS[i]);
        bursts(LEVELS[i]);
        none_posted(LEVELS[i]);
        too_long(LEVELS[i]);
        remote(LEVELS[i]);
        remote_pieces(LEVELS[i]);
        for (int of = 0; of < 5; of++)
            refused(LEVELS[i], of);
    }
    segments(10);
    segments(3000);
    segments(20000);
    differences();
    late();
    wrong_sends();
    wrong_send_breaks(VIP_SERVICE_RELIABLE_DELIVERY);
    wrong_send_breaks(VIP_SERVICE_RELIABLE_RECEPTION);
    wrong_receives();
    gone();
    queues();
    handlers();
    handlers_that_close();
    peers();
    disconnects();
    threads();
    absent();
    idle();
    meet(99);
    /* Handlers may still be told that the other side has gone: nothing more is expected. */
    end(meeting);
    close_all();
    printf("%s: all is as it has to be\n", words[1]);
    return 0;
}
