/* Shared by the tests: two sides that do the same steps, each in a process of its own. */
#ifndef COMMON_H
#define COMMON_H

#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum {
    ROOM = 160 << 10, /* bytes for messages in each direction */
    PLACES = 512,     /* descriptors */
    SEGMENTS = 10,    /* segments of a descriptor here */
    MOST = 64 << 10,  /* the longest message */
    LIMIT_MS = 100000 /* a time that no working test takes */
};

/* A descriptor with more segments than the structure has. */
typedef union {
    VIP_DESCRIPTOR d;
    struct {
        VIP_CONTROL_SEGMENT CS;
        VIP_DESCRIPTOR_SEGMENT DS[SEGMENTS];
    } long_one;
} place;

struct memory {
    place places[PLACES];
    unsigned char out[ROOM], in[ROOM];
};

static int serves; /* true in the process that accepts connections */
static VIP_NIC_HANDLE nic;
static VIP_NIC_ATTRIBUTES about;
static VIP_PROTECTION_HANDLE tag;
static struct memory *memory;
static VIP_MEM_HANDLE handle;

#define FAIL(...) \
    (fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, serves ? "server" : "client"), \
     fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define MUST(condition) ((condition) ? (void)0 : FAIL("not so: %s", #condition))

static inline void nap(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Asynchronous errors that came. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t came;
    VIP_ERROR_DESCRIPTOR all[64];
    int count;
} errors = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {{0}}, 0};

static inline void on_error(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *error)
{
    MUST(context == &errors);
    pthread_mutex_lock(&errors.lock);
    if (errors.count < 64)
        errors.all[errors.count++] = *error;
    pthread_cond_broadcast(&errors.came);
    pthread_mutex_unlock(&errors.lock);
}

/* Waits for an error of a virtual interface, or of any, and takes it. */
static inline VIP_ERROR_DESCRIPTOR await_error(VIP_VI_HANDLE vi, VIP_ERROR_CODE code)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LIMIT_MS / 1000;
    pthread_mutex_lock(&errors.lock);
    for (;;) {
        for (int i = 0; i < errors.count; i++)
            if ((vi == NULL || errors.all[i].ViHandle == vi) && errors.all[i].ErrorCode == code) {
                VIP_ERROR_DESCRIPTOR found = errors.all[i];
                errors.all[i] = errors.all[--errors.count];
                pthread_mutex_unlock(&errors.lock);
                MUST(found.NicHandle == nic);
                return found;
            }
        if (pthread_cond_timedwait(&errors.came, &errors.lock, &until) == ETIMEDOUT)
            FAIL("error %d did not come; %d others did", (int)code, errors.count);
    }
}

/* Opens the network interface, and registers memory. */
static inline void open_all(void)
{
    VIP_MEM_ATTRIBUTES of;
    memset(&of, 0, sizeof of);
    CHECK(VipOpenNic("VINIC0", &nic));
    CHECK(VipQueryNic(nic, &about));
    CHECK(VipErrorCallback(nic, &errors, on_error));
    CHECK(VipCreatePtag(nic, &tag));
    memory = aligned(sizeof *memory);
    of.Ptag = tag;
    of.EnableRdmaWrite = of.EnableRdmaRead = VIP_TRUE;
    CHECK(VipRegisterMem(nic, memory, sizeof *memory, &of, &handle));
}

static inline void close_all(void)
{
    CHECK(VipDeregisterMem(nic, memory, handle));
    CHECK(VipDestroyPtag(nic, tag));
    CHECK(VipCloseNic(nic));
    free(memory);
}

static inline net_address own_address(const char *discriminator)
{
    return address_of(about.LocalNicAddress, about.NicAddressLen, discriminator);
}

/* Returns an address of the other side's host: this one, or that of TEST_OTHER. */
static inline net_address other_address(const char *discriminator)
{
    const char *other = getenv("TEST_OTHER");
    unsigned bytes[4];
    VIP_UINT8 host[4];
    if (other == NULL)
        return own_address(discriminator);
    MUST(sscanf(other, "%u.%u.%u.%u", &bytes[0], &bytes[1], &bytes[2], &bytes[3]) == 4);
    for (int i = 0; i < 4; i++)
        host[i] = (VIP_UINT8)bytes[i];
    return address_of(host, sizeof host, discriminator);
}

/* Returns attributes of a virtual interface. */
static inline VIP_VI_ATTRIBUTES attributes(VIP_RELIABILITY_LEVEL level)
{
    VIP_VI_ATTRIBUTES of;
    memset(&of, 0, sizeof of);
    of.ReliabilityLevel = level;
    of.MaxTransferSize = MOST;
    of.Ptag = tag;
    of.EnableRdmaWrite = VIP_TRUE;
    of.EnableRdmaRead = level != VIP_SERVICE_UNRELIABLE;
    return of;
}

static inline VIP_VI_HANDLE create_of(VIP_VI_ATTRIBUTES of, VIP_CQ_HANDLE sends,
                                      VIP_CQ_HANDLE receives)
{
    VIP_VI_HANDLE vi;
    CHECK(VipCreateVi(nic, &of, sends, receives, &vi));
    return vi;
}

static inline VIP_VI_HANDLE create(VIP_RELIABILITY_LEVEL level)
{
    return create_of(attributes(level), NULL, NULL);
}

/* Requests a connection until somebody waits at the place. */
static inline VIP_RETURN request(VIP_VI_HANDLE vi, const char *at, VIP_ULONG ms)
{
    net_address from = own_address(""), to = other_address(at);
    for (;;) {
        VIP_RETURN code = VipConnectRequest(vi, &from.of, &to.of, ms, NULL);
        if (code != VIP_NO_MATCH)
            return code;
        nap(1);
    }
}

static inline VIP_CONN_HANDLE wait_for(const char *at)
{
    net_address own = own_address(at);
    VIP_CONN_HANDLE conn;
    CHECK(VipConnectWait(nic, &own.of, LIMIT_MS, NULL, NULL, &conn));
    return conn;
}

/* Connects a virtual interface of each side. */
static inline void join(VIP_VI_HANDLE vi, const char *at)
{
    if (serves)
        CHECK(VipConnectAccept(wait_for(at), vi));
    else
        CHECK(request(vi, at, LIMIT_MS));
}

/* Makes a descriptor with one data segment. */
static inline VIP_DESCRIPTOR *prepare(int number, VIP_UINT16 control, void *data, size_t len)
{
    VIP_DESCRIPTOR *d = &memory->places[number].d;
    memset(&memory->places[number], 0, sizeof memory->places[number]);
    d->CS.Control = control;
    d->CS.SegCount = 1;
    d->CS.Length = (VIP_UINT32)len;
    d->DS[0].Local.Data.Address = data;
    d->DS[0].Local.Handle = handle;
    d->DS[0].Local.Length = (VIP_UINT32)len;
    return d;
}

/* Makes a descriptor of a write or read. */
static inline VIP_DESCRIPTOR *prepare_remote(int number, VIP_UINT16 control, void *data, size_t len,
                                             VIP_UINT64 there, VIP_MEM_HANDLE of)
{
    VIP_DESCRIPTOR *d = prepare(number, control, data, len);
    d->CS.SegCount = 2;
    d->DS[1].Local = d->DS[0].Local;
    memset(&d->DS[0], 0, sizeof d->DS[0]);
    d->DS[0].Remote.Data.AddressBits = there;
    d->DS[0].Remote.Handle = of;
    return d;
}

static inline void post_recv(VIP_VI_HANDLE vi, int number, void *data, size_t len)
{
    CHECK(VipPostRecv(vi, prepare(number, VIP_CONTROL_OP_SENDRECV, data, len), handle));
}

static inline void post_send(VIP_VI_HANDLE vi, int number, const void *data, size_t len)
{
    VIP_DESCRIPTOR *d = prepare(number, VIP_CONTROL_OP_SENDRECV, (void *)data, len);
    CHECK(VipPostSend(vi, d, handle));
}

/* Waits for the next descriptor of a queue, and checks code, descriptor and status. */
#define SENT(vi, number, status) ended(vi, 0, number, status, __LINE__)
#define RECEIVED(vi, number, status) ended(vi, 1, number, status, __LINE__)

static inline VIP_DESCRIPTOR *ended(VIP_VI_HANDLE vi, int received, int number, VIP_UINT32 status,
                                    int line)
{
    VIP_DESCRIPTOR *d = NULL;
    VIP_RETURN code = received ? VipRecvWait(vi, LIMIT_MS, &d) : VipSendWait(vi, LIMIT_MS, &d);
    int failed = (status & VIP_STATUS_ERROR_MASK) != 0;
    if (code != (failed ? VIP_DESCRIPTOR_ERROR : VIP_SUCCESS) || d != &memory->places[number].d
        || d->CS.Status != (status | VIP_STATUS_DONE))
        FAIL("line %d: code %d, descriptor %ld and not %d, status %#x and not %#x", line, (int)code,
             d == NULL ? -1L : (long)((place *)d - memory->places), number,
             d == NULL ? 0 : d->CS.Status, status | VIP_STATUS_DONE);
    return d;
}

static inline VIP_VI_STATE state_of(VIP_VI_HANDLE vi)
{
    VIP_VI_STATE state;
    CHECK(VipQueryVi(vi, &state, NULL, NULL, NULL));
    return state;
}

/* Disconnects and destroys, whatever is in the queues. */
static inline void end(VIP_VI_HANDLE vi)
{
    VIP_DESCRIPTOR *d;
    CHECK(VipDisconnect(vi));
    MUST(state_of(vi) == VIP_STATE_IDLE);
    do
        VipSendDone(vi, &d);
    while (d != NULL);
    do
        VipRecvDone(vi, &d);
    while (d != NULL);
    CHECK(VipDestroyVi(vi));
}

/*
 * A connection of the test itself, by which the sides meet. The other side may be one meeting
 * ahead, so two receives are posted.
 */
static VIP_VI_HANDLE meeting;
static int meetings;
enum { MEET_SEND = PLACES - 1, MEET_RECV = PLACES - 3 };

static inline VIP_UINT64 *meet_word(int number)
{
    return (VIP_UINT64 *)(void *)(memory->in + ROOM - 64 * (number % 2 + 1));
}

static inline void expect_meeting(int number)
{
    post_recv(meeting, MEET_RECV + number % 2, meet_word(number), sizeof(VIP_UINT64));
}

static inline void begin_meetings(void)
{
    meeting = create(VIP_SERVICE_RELIABLE_DELIVERY);
    expect_meeting(0);
    expect_meeting(1);
    join(meeting, "meeting");
}

/* Returns when the other side is here, too; exchanges a word. */
static inline VIP_UINT64 meet(VIP_UINT64 word)
{
    VIP_UINT64 *out = (VIP_UINT64 *)(void *)(memory->out + ROOM - 64), theirs;
    *out = word;
    post_send(meeting, MEET_SEND, out, sizeof *out);
    SENT(meeting, MEET_SEND, VIP_STATUS_OP_SEND);
    RECEIVED(meeting, MEET_RECV + meetings % 2, VIP_STATUS_OP_RECEIVE);
    theirs = *meet_word(meetings);
    expect_meeting(meetings++);
    return theirs;
}

/* Bytes that differ from place to place. */
static inline void fill(unsigned char *at, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        at[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

static inline void same(const unsigned char *at, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        if (at[i] != (unsigned char)(i * 7 + i / 251 + seed))
            FAIL("byte %zu of %zu is %d", i, len, at[i]);
}

#endif
