/* One process: all functions, with arguments that are right and wrong. */
#define _GNU_SOURCE
#include "common.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>

/* Numbers and pointers that are no handle. */
static VIP_PVOID none_of[8];
enum { NONE_OF = sizeof none_of / sizeof *none_of };

static void on_any(VIP_PVOID a, VIP_NIC_HANDLE b, VIP_VI_HANDLE c, VIP_DESCRIPTOR *d)
{
    (void)a, (void)b, (void)c, (void)d;
}

static void on_any_entry(VIP_PVOID a, VIP_NIC_HANDLE b, VIP_VI_HANDLE c, VIP_BOOLEAN d)
{
    (void)a, (void)b, (void)c, (void)d;
}

/* Every function refuses a handle that is none. */
static void refuses(VIP_PVOID wrong)
{
    VIP_VI_ATTRIBUTES of_vi = attributes(VIP_SERVICE_UNRELIABLE);
    VIP_MEM_ATTRIBUTES of_memory = {tag, VIP_FALSE, VIP_FALSE};
    VIP_AUTODISCOVERY_LIST list = {0, NULL, 0};
    VIP_NIC_ATTRIBUTES of_nic;
    VIP_VI_HANDLE vi;
    VIP_CQ_HANDLE cq;
    VIP_CONN_HANDLE conn;
    VIP_PROTECTION_HANDLE ptag;
    VIP_MEM_HANDLE mem;
    VIP_DESCRIPTOR *d = prepare(0, 0, memory->out, 8);
    VIP_BOOLEAN flag;
    VIP_CHAR name[64];
    VIP_ULONG len = sizeof name;
    net_address at = own_address("x");
#define REFUSED(call) EXPECT(VIP_INVALID_PARAMETER, call)
    REFUSED(VipCloseNic(wrong));
    REFUSED(VipQueryNic(wrong, &of_nic));
    REFUSED(VipErrorCallback(wrong, NULL, NULL));
    REFUSED(VipQuerySystemManagementInfo(wrong, VIP_SMI_AUTODISCOVERY, &list));
    REFUSED(VipQuerySystemManagementInfo(wrong, 7, &list));
    REFUSED(VipCreateVi(wrong, &of_vi, NULL, NULL, &vi));
    REFUSED(VipDestroyVi(wrong));
    REFUSED(VipSetViAttributes(wrong, &of_vi));
    REFUSED(VipQueryVi(wrong, NULL, NULL, NULL, NULL));
    REFUSED(VipCreatePtag(wrong, &ptag));
    REFUSED(VipDestroyPtag(wrong, tag));
    REFUSED(VipRegisterMem(wrong, memory, 64, &of_memory, &mem));
    REFUSED(VipDeregisterMem(wrong, memory, handle));
    REFUSED(VipSetMemAttributes(wrong, memory, handle, &of_memory));
    REFUSED(VipQueryMem(wrong, memory, handle, &of_memory));
    REFUSED(VipPostSend(wrong, d, handle));
    REFUSED(VipPostRecv(wrong, d, handle));
    REFUSED(VipSendDone(wrong, &d));
    REFUSED(VipRecvDone(wrong, &d));
    REFUSED(VipSendWait(wrong, 1, &d));
    REFUSED(VipRecvWait(wrong, 1, &d));
    REFUSED(VipSendNotify(wrong, NULL, on_any));
    REFUSED(VipRecvNotify(wrong, NULL, on_any));
    REFUSED(VipCreateCQ(wrong, 1, &cq));
    REFUSED(VipDestroyCQ(wrong));
    REFUSED(VipResizeCQ(wrong, 2));
    REFUSED(VipCQDone(wrong, &vi, &flag));
    REFUSED(VipCQWait(wrong, 1, &vi, &flag));
    REFUSED(VipCQNotify(wrong, NULL, on_any_entry));
    REFUSED(VipConnectWait(wrong, &at.of, 1, NULL, NULL, &conn));
    REFUSED(VipConnectAccept(wrong, wrong));
    REFUSED(VipConnectReject(wrong));
    REFUSED(VipConnectRequest(wrong, &at.of, &at.of, 1, NULL));
    REFUSED(VipConnectPeerRequest(wrong, &at.of, &at.of, 1));
    REFUSED(VipConnectPeerDone(wrong, NULL));
    REFUSED(VipConnectPeerWait(wrong, NULL));
    REFUSED(VipDisconnect(wrong));
    REFUSED(VipNSInit(wrong, NULL));
    REFUSED(VipNSGetHostByName(wrong, "localhost", &at.of, 0));
    REFUSED(VipNSGetHostByAddr(wrong, &at.of, name, &len));
    REFUSED(VipNSShutdown(wrong));
}

static void handles(void)
{
    VIP_VI_HANDLE gone = create(VIP_SERVICE_UNRELIABLE);
    CHECK(VipDestroyVi(gone));
    none_of[0] = NULL;
    none_of[1] = &none_of;
    none_of[2] = (VIP_PVOID)~(uintptr_t)0;
    none_of[3] = (VIP_PVOID)1;
    none_of[4] = gone;
    none_of[5] = (VIP_PVOID)((uintptr_t)nic + 1);
    none_of[6] = (VIP_PVOID)((uintptr_t)nic ^ (uintptr_t)1 << 50);
    none_of[7] = tag; /* of another kind */
    for (int i = 0; i < NONE_OF; i++)
        if (i != 5 && i != 6) /* refused as network interfaces below */
            refuses(none_of[i]);
    EXPECT(VIP_INVALID_PARAMETER, VipQueryNic(none_of[6], &about));
    EXPECT(VIP_INVALID_PARAMETER, VipDestroyVi(nic));
    EXPECT(VIP_INVALID_PARAMETER, VipCloseNic(gone));
}

/* Network interfaces. */
static void nics(void)
{
    VIP_NIC_HANDLE other, again;
    VIP_NIC_ATTRIBUTES of;
    static const char *const WRONG[] = {"", "VINIC", "VINIC999", "/dev/via_none", "/dev/null"};
    char long_name[5000];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    EXPECT(VIP_INVALID_PARAMETER, VipOpenNic(NULL, &other));
    EXPECT(VIP_INVALID_PARAMETER, VipOpenNic("VINIC0", NULL));
    EXPECT(VIP_INVALID_PARAMETER, VipOpenNic("VINIC0", (VIP_NIC_HANDLE *)((char *)&other + 1)));
    EXPECT(VIP_INVALID_PARAMETER, VipOpenNic(long_name, &other));
    EXPECT(VIP_INVALID_PARAMETER, VipOpenNic("\xff\xfe", &other));
    for (unsigned i = 0; i < sizeof WRONG / sizeof *WRONG; i++)
        EXPECT(VIP_INVALID_PARAMETER, VipOpenNic(WRONG[i], &other));
    EXPECT(VIP_INVALID_PARAMETER, VipQueryNic(nic, NULL));
    MUST(strcmp(about.Name, "VINIC0") == 0 && about.NicAddressLen == 4 && about.ThreadSafe);
    MUST(about.MaxTransferSize == MOST && about.MaxSegmentsPerDesc == 252);
    MUST(about.ReliabilityLevelSupport == 7 && about.RDMAReadSupport == 6);
    MUST(about.MaxVI > 100 && about.MaxCQ > 100 && about.MaxPtags > 100 && about.NativeMTU > 100);
    MUST(about.MaxDescriptorsPerQueue > 1000 && about.MaxCQEntries > 1000);
    MUST(about.MaxDiscriminatorLen == 64 && about.MaxRegisterRegions > 1000);
    /* The interface opens twice: the handles differ, and have objects of their own. */
    CHECK(VipOpenNic("/dev/via_lo", &other));
    CHECK(VipQueryNic(other, &of));
    MUST(of.LocalNicAddress[0] == 127 && other != nic);
    CHECK(VipOpenNic("/dev/via_lo", &again));
    MUST(again != other);
    EXPECT(VIP_INVALID_PARAMETER, VipDestroyPtag(other, tag));
    VIP_VI_ATTRIBUTES of_vi = attributes(VIP_SERVICE_UNRELIABLE);
    VIP_PROTECTION_HANDLE own;
    VIP_CQ_HANDLE cq;
    VIP_VI_HANDLE vi;
    EXPECT(VIP_INVALID_PTAG, VipCreateVi(other, &of_vi, NULL, NULL, &vi));
    CHECK(VipCreatePtag(other, &own));
    CHECK(VipCreateCQ(nic, 1, &cq));
    of_vi.Ptag = own;
    EXPECT(VIP_INVALID_PARAMETER, VipCreateVi(other, &of_vi, cq, NULL, &vi));
    CHECK(VipCreateVi(other, &of_vi, NULL, NULL, &vi));
    CHECK(VipDestroyCQ(cq));
    /* The network interface is closed with all that it has. */
    CHECK(VipCloseNic(other));
    EXPECT(VIP_INVALID_PARAMETER, VipCloseNic(other));
    EXPECT(VIP_INVALID_PARAMETER, VipDestroyVi(vi));
    refuses(other);
    CHECK(VipOpenNic("lo", &other));
    EXPECT(VIP_INVALID_PARAMETER, VipDestroyVi(vi)); /* of the one that was closed */
    EXPECT(VIP_INVALID_PARAMETER, VipDestroyPtag(other, own));
    CHECK(VipCloseNic(other));
    CHECK(VipCloseNic(again));
    /* A device without tags takes memory and virtual interfaces without. */
    VIP_MEM_ATTRIBUTES of_memory = {NULL, VIP_FALSE, VIP_FALSE};
    VIP_MEM_HANDLE mem;
    CHECK(VipOpenNic("/dev/clanvi0", &other));
    of_vi.Ptag = NULL;
    CHECK(VipCreateVi(other, &of_vi, NULL, NULL, &vi));
    CHECK(VipRegisterMem(other, memory, 64, &of_memory, &mem));
    CHECK(VipCloseNic(other));
    EXPECT(VIP_INVALID_PTAG, VipRegisterMem(nic, memory, 64, &of_memory, &mem));
}

/* Virtual interfaces: attributes that are wrong, one by one. */
static void vis(void)
{
    VIP_VI_ATTRIBUTES good = attributes(VIP_SERVICE_RELIABLE_DELIVERY), of = good, seen;
    VIP_VI_STATE state;
    VIP_BOOLEAN send_empty, recv_empty;
    VIP_VI_HANDLE vi;
    VIP_DESCRIPTOR *d;
    EXPECT(VIP_INVALID_PARAMETER, VipCreateVi(nic, NULL, NULL, NULL, &vi));
    EXPECT(VIP_INVALID_PARAMETER, VipCreateVi(nic, &of, NULL, NULL, NULL));
    EXPECT(VIP_INVALID_PARAMETER, VipCreateVi(nic, &of, tag, NULL, &vi));
    EXPECT(VIP_INVALID_PARAMETER, VipCreateVi(nic, &of, NULL, (VIP_PVOID)1, &vi));
    static const VIP_RELIABILITY_LEVEL WRONG[] = {0, 3, 6, 8};
    for (int i = 0; i < 4; i++) {
        of.ReliabilityLevel = WRONG[i];
        EXPECT(VIP_INVALID_RELIABILITY_LEVEL, VipCreateVi(nic, &of, NULL, NULL, &vi));
    }
    of = good, of.MaxTransferSize = 0;
    EXPECT(VIP_INVALID_MTU, VipCreateVi(nic, &of, NULL, NULL, &vi));
    of.MaxTransferSize = MOST + 1;
    EXPECT(VIP_INVALID_MTU, VipCreateVi(nic, &of, NULL, NULL, &vi));
    of = good, of.QoS = &of;
    EXPECT(VIP_INVALID_QOS, VipCreateVi(nic, &of, NULL, NULL, &vi));
    of = good, of.Ptag = NULL;
    EXPECT(VIP_INVALID_PTAG, VipCreateVi(nic, &of, NULL, NULL, &vi));
    of.Ptag = nic;
    EXPECT(VIP_INVALID_PTAG, VipCreateVi(nic, &of, NULL, NULL, &vi));
    of = attributes(VIP_SERVICE_UNRELIABLE), of.EnableRdmaRead = VIP_TRUE;
    EXPECT(VIP_INVALID_RDMAREAD, VipCreateVi(nic, &of, NULL, NULL, &vi));
    CHECK(VipCreateVi(nic, &good, NULL, NULL, &vi));
    CHECK(VipQueryVi(vi, &state, &seen, &send_empty, &recv_empty));
    MUST(state == VIP_STATE_IDLE && send_empty && recv_empty);
    MUST(memcmp(&seen.MaxTransferSize, &good.MaxTransferSize, sizeof good.MaxTransferSize) == 0);
    MUST(seen.Ptag == tag && seen.EnableRdmaWrite && seen.EnableRdmaRead && seen.QoS == NULL);
    EXPECT(VIP_INVALID_PARAMETER, VipQueryVi(vi, (VIP_VI_STATE *)1, NULL, NULL, NULL));
    of = good, of.EnableRdmaWrite = VIP_FALSE, of.MaxTransferSize = 5;
    CHECK(VipSetViAttributes(vi, &of));
    CHECK(VipQueryVi(vi, NULL, &seen, NULL, NULL));
    MUST(!seen.EnableRdmaWrite && seen.MaxTransferSize == 5);
    of.MaxTransferSize = 0;
    EXPECT(VIP_INVALID_MTU, VipSetViAttributes(vi, &of));
    EXPECT(VIP_INVALID_PARAMETER, VipSetViAttributes(vi, NULL));
    /* Empty queues, and places that are none. */
    EXPECT(VIP_DESCRIPTOR_ERROR, VipSendDone(vi, &d));
    EXPECT(VIP_DESCRIPTOR_ERROR, VipRecvWait(vi, LIMIT_MS, &d));
    MUST(d == NULL);
    EXPECT(VIP_INVALID_PARAMETER, VipSendDone(vi, NULL));
    EXPECT(VIP_INVALID_PARAMETER, VipRecvWait(vi, 1, NULL));
    /* Without a connection a send is flushed, and a receive waits. */
    post_send(vi, 0, memory->out, 4);
    post_recv(vi, 1, memory->in, 4);
    EXPECT(VIP_ERROR_RESOURCE, VipDestroyVi(vi));
    CHECK(VipQueryVi(vi, NULL, NULL, &send_empty, &recv_empty));
    MUST(!send_empty && !recv_empty);
    SENT(vi, 0, VIP_STATUS_OP_SEND | VIP_STATUS_DESC_FLUSHED_ERROR);
    CHECK(VipPostSend(vi, prepare_remote(0, VIP_CONTROL_OP_RDMAREAD, memory->in, 4, 0, 0), handle));
    SENT(vi, 0, VIP_STATUS_OP_RDMA_READ | VIP_STATUS_DESC_FLUSHED_ERROR);
    EXPECT(VIP_NOT_DONE, VipRecvDone(vi, &d));
    MUST(d == NULL);
    EXPECT(VIP_TIMEOUT, VipRecvWait(vi, 0, &d));
    EXPECT(VIP_TIMEOUT, VipRecvWait(vi, 5, &d));
    EXPECT(VIP_ERROR_RESOURCE, VipDestroyVi(vi));
    CHECK(VipDisconnect(vi));
    RECEIVED(vi, 1, VIP_STATUS_OP_RECEIVE | VIP_STATUS_DESC_FLUSHED_ERROR);
    CHECK(VipDestroyVi(vi));
    EXPECT(VIP_INVALID_PARAMETER, VipDestroyVi(vi));
}

/* The program can make as many objects as there may be, and no more. */
static void limits(void)
{
    VIP_PROTECTION_HANDLE *tags = calloc(about.MaxPtags + 1, sizeof *tags);
    VIP_CQ_HANDLE *queues = calloc(about.MaxCQ + 1, sizeof *queues);
    VIP_VI_HANDLE *all = calloc(about.MaxVI + 1, sizeof *all), vi;
    VIP_VI_ATTRIBUTES of = attributes(VIP_SERVICE_UNRELIABLE);
    VIP_ULONG count;
    for (count = 1; VipCreatePtag(nic, &tags[count]) == VIP_SUCCESS; count++)
        ;
    MUST(count == about.MaxPtags);
    EXPECT(VIP_ERROR_RESOURCE, VipCreatePtag(nic, &tags[0]));
    while (--count > 0)
        CHECK(VipDestroyPtag(nic, tags[count]));
    for (count = 0; VipCreateCQ(nic, 1, &queues[count]) == VIP_SUCCESS; count++)
        ;
    MUST(count == about.MaxCQ);
    while (count-- > 0)
        CHECK(VipDestroyCQ(queues[count]));
    EXPECT(VIP_INVALID_PARAMETER, VipCreateCQ(nic, 0, &queues[0]));
    EXPECT(VIP_INVALID_PARAMETER, VipCreateCQ(nic, about.MaxCQEntries + 1, &queues[0]));
    EXPECT(VIP_INVALID_PARAMETER, VipCreateCQ(nic, 1, NULL));
    for (count = 0; VipCreateVi(nic, &of, NULL, NULL, &all[count]) == VIP_SUCCESS; count++)
        ;
    MUST(count == about.MaxVI);
    EXPECT(VIP_ERROR_RESOURCE, VipCreateVi(nic, &of, NULL, NULL, &vi));
    while (count-- > 0)
        CHECK(VipDestroyVi(all[count]));
    /* Descriptors: the last one of a queue has room, and the next does not. */
    vi = create(VIP_SERVICE_UNRELIABLE);
    VIP_DESCRIPTOR *d = prepare(0, 0, memory->in, 8);
    for (count = 0; VipPostRecv(vi, d, handle) == VIP_SUCCESS; count++)
        ;
    MUST(count == about.MaxDescriptorsPerQueue);
    EXPECT(VIP_ERROR_RESOURCE, VipPostRecv(vi, d, handle));
    end(vi);
    free(tags), free(queues), free(all);
}

/* Registered memory. */
static void regions(void)
{
    VIP_MEM_ATTRIBUTES of = {tag, VIP_FALSE, VIP_TRUE}, seen;
    VIP_PROTECTION_HANDLE other;
    VIP_MEM_HANDLE mem, twice;
    long page = sysconf(_SC_PAGESIZE);
    int rights = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS;
    char *two = mmap(NULL, (size_t)page * 2, rights, kind, -1, 0);
    munmap(two + page, (size_t)page);
    EXPECT(VIP_INVALID_PARAMETER, VipRegisterMem(nic, two, (VIP_ULONG)page + 1, &of, &mem));
    EXPECT(VIP_INVALID_PARAMETER, VipRegisterMem(nic, two + page, 1, &of, &mem));
    EXPECT(VIP_INVALID_PARAMETER, VipRegisterMem(nic, NULL, 64, &of, &mem));
    EXPECT(VIP_INVALID_PARAMETER, VipRegisterMem(nic, two, 0, &of, &mem));
    EXPECT(VIP_INVALID_PARAMETER, VipRegisterMem(nic, two, ~0ul, &of, &mem));
    EXPECT(VIP_INVALID_PARAMETER, VipRegisterMem(nic, two, 64, NULL, &mem));
    EXPECT(VIP_INVALID_PARAMETER, VipRegisterMem(nic, two, 64, &of, NULL));
    CHECK(VipRegisterMem(nic, two, (VIP_ULONG)page, &of, &mem));
    CHECK(VipRegisterMem(nic, two, (VIP_ULONG)page, &of, &twice));
    MUST(mem != 0 && twice != 0 && mem != twice);
    CHECK(VipQueryMem(nic, two, mem, &seen));
    MUST(seen.Ptag == tag && !seen.EnableRdmaWrite && seen.EnableRdmaRead);
    CHECK(VipCreatePtag(nic, &other));
    of.Ptag = other, of.EnableRdmaWrite = VIP_TRUE;
    CHECK(VipSetMemAttributes(nic, two, mem, &of));
    CHECK(VipQueryMem(nic, two, mem, &seen));
    MUST(seen.Ptag == other && seen.EnableRdmaWrite);
    EXPECT(VIP_ERROR_RESOURCE, VipDestroyPtag(nic, other));
    EXPECT(VIP_INVALID_PARAMETER, VipQueryMem(nic, two, mem, NULL));
    EXPECT(VIP_INVALID_PARAMETER, VipQueryMem(nic, two + 1, mem, &seen));
    EXPECT(VIP_INVALID_PARAMETER, VipSetMemAttributes(nic, two + 1, mem, &of));
    EXPECT(VIP_INVALID_PARAMETER, VipSetMemAttributes(nic, two, mem, NULL));
    of.Ptag = NULL;
    EXPECT(VIP_INVALID_PTAG, VipSetMemAttributes(nic, two, mem, &of));
    EXPECT(VIP_INVALID_PARAMETER, VipDeregisterMem(nic, two + 1, mem));
    CHECK(VipDeregisterMem(nic, two, mem));
    EXPECT(VIP_INVALID_PARAMETER, VipDeregisterMem(nic, two, mem));
    CHECK(VipDeregisterMem(nic, two, twice));
    CHECK(VipDestroyPtag(nic, other));
    EXPECT(VIP_INVALID_PARAMETER, VipDestroyPtag(nic, other));
    EXPECT(VIP_INVALID_PARAMETER, VipCreatePtag(nic, NULL));
    munmap(two, (size_t)page);
}

/* Addresses that are wrong, and times. */
static void addresses(void)
{
    VIP_VI_HANDLE vi = create(VIP_SERVICE_UNRELIABLE);
    net_address own = own_address("here"), wrong;
    VIP_CONN_HANDLE conn;
    EXPECT(VIP_INVALID_PARAMETER, VipConnectWait(nic, NULL, 1, NULL, NULL, &conn));
    EXPECT(VIP_INVALID_PARAMETER, VipConnectWait(nic, &own.of, 1, NULL, NULL, NULL));
    EXPECT(VIP_INVALID_PARAMETER, VipConnectWait(nic, &own.of, 0, NULL, NULL, &conn));
    EXPECT(VIP_INVALID_PARAMETER, VipConnectRequest(vi, &own.of, NULL, 1, NULL));
    EXPECT(VIP_INVALID_PARAMETER, VipConnectRequest(vi, NULL, &own.of, 1, NULL));
    EXPECT(VIP_INVALID_PARAMETER, VipConnectRequest(vi, &own.of, &own.of, 0, NULL));
    EXPECT(VIP_INVALID_PARAMETER, VipConnectPeerRequest(vi, &own.of, &own.of, 0));
    wrong = own, wrong.of.HostAddressLen = 6;
    EXPECT(VIP_INVALID_PARAMETER, VipConnectRequest(vi, &own.of, &wrong.of, 1, NULL));
    wrong = own, wrong.of.DiscriminatorLen = 65;
    EXPECT(VIP_INVALID_PARAMETER, VipConnectWait(nic, &wrong.of, 1, NULL, NULL, &conn));
    wrong = own, wrong.of.HostAddress[3] ^= 1; /* the address of another host */
    EXPECT(VIP_INVALID_PARAMETER, VipConnectWait(nic, &wrong.of, 1, NULL, NULL, &conn));
    EXPECT(VIP_INVALID_PARAMETER, VipConnectPeerRequest(vi, &wrong.of, &own.of, 1));
    EXPECT(VIP_TIMEOUT, VipConnectWait(nic, &own.of, 5, NULL, NULL, &conn));
    EXPECT(VIP_NO_MATCH, VipConnectRequest(vi, &own.of, &own.of, LIMIT_MS, NULL));
    MUST(state_of(vi) == VIP_STATE_IDLE);
    /* A host of this network that is not there: no answer, or the network says so. */
    net_address far = own;
    memcpy(far.of.HostAddress, (unsigned char[]){192, 0, 2, 77}, 4);
    VIP_RETURN code = VipConnectRequest(vi, &own.of, &far.of, 100, NULL);
    MUST(code == VIP_TIMEOUT || code == VIP_NOT_REACHABLE || code == VIP_NO_MATCH);
    MUST(state_of(vi) == VIP_STATE_IDLE);
    end(vi);
}

/* Names. */
static void names(void)
{
    char file[] = "/tmp/weft-via-hosts-XXXXXX", name[64];
    int fd = mkstemp(file);
    static const char TEXT[] = "10.1.2.3 three # a host\n10.1.2.4 four three\n127.0.0.1 self\n";
    net_address at, places[4];
    VIP_ULONG len = sizeof name;
    MUST(write(fd, TEXT, sizeof TEXT - 1) == sizeof TEXT - 1);
    close(fd);
    EXPECT(VIP_ERROR_NAMESERVICE, VipNSGetHostByName(nic, "three", &at.of, 0));
    EXPECT(VIP_ERROR_NAMESERVICE, VipNSShutdown(nic));
    EXPECT(VIP_ERROR_NAMESERVICE, VipNSInit(nic, "/no/such/file"));
    CHECK(VipNSInit(nic, file));
    memset(&at, 0xff, sizeof at);
    CHECK(VipNSGetHostByName(nic, "three", &at.of, 1));
    MUST(at.of.HostAddressLen == 4 && at.of.DiscriminatorLen == 0);
    MUST(memcmp(at.of.HostAddress, (unsigned char[]){10, 1, 2, 4}, 4) == 0);
    EXPECT(VIP_ERROR_NAMESERVICE, VipNSGetHostByName(nic, "three", &at.of, 2));
    EXPECT(VIP_INVALID_PARAMETER, VipNSGetHostByName(nic, NULL, &at.of, 0));
    EXPECT(VIP_INVALID_PARAMETER, VipNSGetHostByName(nic, "three", NULL, 0));
    CHECK(VipNSGetHostByName(nic, "self", &at.of, 0));
    MUST(memcmp(at.of.HostAddress, about.LocalNicAddress, 4) == 0);
    CHECK(VipNSGetHostByName(nic, "localhost", &at.of, 0));
    MUST(memcmp(at.of.HostAddress, about.LocalNicAddress, 4) == 0);
    /* This host has a name, by which it is found. */
    memcpy(at.of.HostAddress, about.LocalNicAddress, 4);
    at.of.HostAddressLen = 4;
    CHECK(VipNSGetHostByAddr(nic, &at.of, name, &len));
    MUST(len > 0 && strlen(name) == len);
    len = sizeof name;
    CHECK(VipNSGetHostByName(nic, name, &at.of, 0));
    CHECK(VipNSGetHostByName(nic, "four", &at.of, 0));
    CHECK(VipNSGetHostByAddr(nic, &at.of, name, &len));
    MUST(len == 4 && strcmp(name, "four") == 0);
    EXPECT(VIP_ERROR_RESOURCE, VipNSGetHostByAddr(nic, &at.of, name, &len));
    MUST(len == 4);
    EXPECT(VIP_INVALID_PARAMETER, VipNSGetHostByAddr(nic, &at.of, name, NULL));
    EXPECT(VIP_INVALID_PARAMETER, VipNSGetHostByAddr(nic, NULL, name, &len));
    /* All hosts: their number, then as many as have room. */
    VIP_NET_ADDRESS *room[4] = {&places[0].of, &places[1].of, NULL, &places[3].of};
    VIP_AUTODISCOVERY_LIST list = {1, NULL, 0};
    CHECK(VipQuerySystemManagementInfo(nic, VIP_SMI_AUTODISCOVERY, &list));
    MUST(list.NumAdAddrs == 4);
    list.ADAddrArray = room;
    CHECK(VipQuerySystemManagementInfo(nic, VIP_SMI_AUTODISCOVERY, &list));
    MUST(list.NumAdAddrs == 4);
    MUST(memcmp(places[0].of.HostAddress, about.LocalNicAddress, 4) == 0);
    EXPECT(VIP_ERROR_NOT_SUPPORTED, VipQuerySystemManagementInfo(nic, 2, &list));
    EXPECT(VIP_INVALID_PARAMETER, VipQuerySystemManagementInfo(nic, 1, NULL));
    CHECK(VipNSShutdown(nic));
    EXPECT(VIP_ERROR_NAMESERVICE, VipNSGetHostByAddr(nic, &at.of, name, &len));
    unlink(file);
}

/* Two virtual interfaces of this process, connected by a thread that waits. */
static VIP_VI_HANDLE one, two;

static void *accepts(void *of)
{
    CHECK(VipConnectAccept(wait_for("self"), *(VIP_VI_HANDLE *)of));
    return NULL;
}

static void connect_self(VIP_RELIABILITY_LEVEL level)
{
    pthread_t thread;
    one = create(level), two = create(level);
    pthread_create(&thread, NULL, accepts, &one);
    CHECK(request(two, "self", LIMIT_MS));
    pthread_join(thread, NULL);
}

static void self(void)
{
    for (int level = 1; level <= 4; level *= 2) {
        connect_self((VIP_RELIABILITY_LEVEL)level);
        post_recv(one, 0, memory->in, 100);
        fill(memory->out, 100, 1);
        post_send(two, 1, memory->out, 100);
        SENT(two, 1, VIP_STATUS_OP_SEND);
        RECEIVED(one, 0, VIP_STATUS_OP_RECEIVE);
        same(memory->in, 100, 1);
        end(one);
        if (level != VIP_SERVICE_UNRELIABLE)
            await_error(two, VIP_ERROR_CONN_LOST);
        end(two);
    }
}

/* A thread waits, and another one ends what it waits for. */
enum { BY_DISCONNECT, BY_CLOSE, BY_QUEUE, BY_PEER, BY_POST, WAYS };
static VIP_NIC_HANDLE apart;

static void *waits(void *how)
{
    VIP_DESCRIPTOR *d;
    VIP_BOOLEAN received;
    VIP_VI_HANDLE vi;
    switch ((int)(intptr_t)how) {
    case BY_DISCONNECT:
        RECEIVED(one, 0, VIP_STATUS_OP_RECEIVE | VIP_STATUS_DESC_FLUSHED_ERROR);
        break;
    case BY_CLOSE:
        EXPECT(VIP_INVALID_PARAMETER, VipRecvWait(two, VIP_INFINITE, &d));
        break;
    case BY_QUEUE:
        EXPECT(VIP_INVALID_PARAMETER, VipCQWait(two, VIP_INFINITE, &vi, &received));
        break;
    case BY_PEER:
        EXPECT(VIP_INVALID_STATE, VipConnectPeerWait(one, NULL));
        break;
    case BY_POST:
        CHECK(VipCQWait(two, VIP_INFINITE, &vi, &received));
        MUST(vi == one && !received);
        break;
    }
    return NULL;
}

static void ends_while_waiting(void)
{
    pthread_t thread;
    for (int how = 0; how < WAYS; how++) {
        VIP_VI_ATTRIBUTES of = attributes(VIP_SERVICE_UNRELIABLE);
        VIP_MEM_ATTRIBUTES of_memory = {NULL, VIP_FALSE, VIP_FALSE};
        VIP_MEM_HANDLE mem;
        net_address at = own_address("waits"), nobody = own_address("nobody");
        CHECK(VipOpenNic("lo", &apart));
        CHECK(VipCreatePtag(apart, &of.Ptag));
        of_memory.Ptag = of.Ptag;
        CHECK(VipRegisterMem(apart, memory, sizeof *memory, &of_memory, &mem));
        one = create(VIP_SERVICE_UNRELIABLE);
        if (how == BY_DISCONNECT)
            post_recv(one, 0, memory->in, 8);
        if (how == BY_CLOSE) {
            CHECK(VipCreateVi(apart, &of, NULL, NULL, &two));
            CHECK(VipPostRecv(two, prepare(0, 0, memory->in, 0), mem));
        }
        if (how == BY_QUEUE)
            CHECK(VipCreateCQ(apart, 4, &two));
        if (how == BY_PEER)
            CHECK(VipConnectPeerRequest(one, &at.of, &nobody.of, VIP_INFINITE));
        if (how == BY_POST) {
            CHECK(VipDestroyVi(one));
            CHECK(VipCreateCQ(nic, 4, &two));
            one = create_of(attributes(VIP_SERVICE_UNRELIABLE), two, two);
        }
        pthread_create(&thread, NULL, waits, (void *)(intptr_t)how);
        nap(20); /* The thread most likely waits then; the result is the same. */
        if (how == BY_CLOSE)
            CHECK(VipCloseNic(apart));
        else if (how == BY_QUEUE)
            CHECK(VipDestroyCQ(two));
        else if (how == BY_POST)
            post_send(one, 0, memory->out, 8); /* flushed at once */
        else
            CHECK(VipDisconnect(one));
        pthread_join(thread, NULL);
        end(one);
        if (how == BY_POST)
            CHECK(VipDestroyCQ(two));
        if (how != BY_CLOSE)
            CHECK(VipCloseNic(apart));
    }
}

/* A signal handler that calls inside of a call is refused; the call goes on. */
static volatile sig_atomic_t nested, odd;

static void on_alarm(int number)
{
    VIP_DESCRIPTOR *d;
    VIP_RETURN code = VipRecvDone(one, &d);
    (void)number;
    if (code == VIP_ERROR_RESOURCE)
        nested++;
    else if (code != VIP_NOT_DONE)
        odd = (sig_atomic_t)code;
}

static void signals(void)
{
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    VIP_DESCRIPTOR *d;
    one = create(VIP_SERVICE_UNRELIABLE);
    post_recv(one, 0, memory->in, 8);
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &often, NULL);
    while (nested < 20)
        EXPECT(VIP_TIMEOUT, VipRecvWait(one, 2, &d));
    setitimer(ITIMER_REAL, &never, NULL);
    signal(SIGALRM, SIG_DFL);
    alarm(LIMIT_MS / 1000);
    MUST(odd == 0);
    end(one);
}

/* A child made by fork has no interface, and its end is not that of its parent. */
static void child(void)
{
    connect_self(VIP_SERVICE_RELIABLE_DELIVERY);
    pid_t pid = fork();
    if (pid == 0) {
        VIP_DESCRIPTOR *d;
        EXPECT(VIP_ERROR_RESOURCE, VipRecvDone(one, &d));
        EXPECT(VIP_ERROR_RESOURCE, VipCloseNic(nic));
        EXPECT(VIP_ERROR_RESOURCE, VipOpenNic("VINIC0", &apart));
        exit(0);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
    post_recv(one, 0, memory->in, 8);
    post_send(two, 1, memory->out, 8);
    SENT(two, 1, VIP_STATUS_OP_SEND);
    RECEIVED(one, 0, VIP_STATUS_OP_RECEIVE);
    end(one), end(two);
}

int main(void)
{
    alarm(LIMIT_MS / 1000 + 20);
    open_all();
    handles();
    nics();
    vis();
    limits();
    regions();
    addresses();
    names();
    self();
    ends_while_waiting();
    signals();
    child();
    close_all();
    EXPECT(VIP_INVALID_PARAMETER, VipQueryNic(nic, &about));
    printf("alone: all is as it has to be\n");
    return 0;
}
