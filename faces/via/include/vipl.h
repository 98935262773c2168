/*
 * vipl.h: the interface of the Virtual Interface Architecture, version 1.0, over weft.
 *
 * Compile with `pkg-config --cflags --libs vipl`; the guide is docs/guide/via.md. Functions whose
 * names end in "Wait", VipConnectRequest and VipConnectAccept wait for other processes, without use
 * of a processor. Every function may be called by several threads at once. A handle that is none,
 * or whose object is gone, is refused with VIP_INVALID_PARAMETER. A call in a signal handler that
 * has interrupted another call, and a call in a child made by fork, are refused with
 * VIP_ERROR_RESOURCE.
 */
#ifndef WEFT_VIPL_H
#define WEFT_VIPL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void *VIP_PVOID;
typedef int VIP_BOOLEAN;
typedef char VIP_CHAR;
typedef unsigned char VIP_UCHAR;
typedef unsigned short VIP_USHORT;
typedef unsigned long VIP_ULONG;
typedef uint64_t VIP_UINT64;
typedef uint32_t VIP_UINT32;
typedef uint16_t VIP_UINT16;
typedef uint8_t VIP_UINT8;

#define VIP_TRUE 1
#define VIP_FALSE 0

/* No end of a time in milliseconds. */
#define VIP_INFINITE ((VIP_ULONG)0xffffffff)

/* Handles. They point to nothing. */
typedef VIP_PVOID VIP_NIC_HANDLE;
typedef VIP_PVOID VIP_VI_HANDLE;
typedef VIP_PVOID VIP_CQ_HANDLE;
typedef VIP_PVOID VIP_CONN_HANDLE;
typedef VIP_PVOID VIP_PROTECTION_HANDLE;
typedef VIP_UINT32 VIP_MEM_HANDLE;

/* No quality of service is defined: NULL. */
typedef VIP_PVOID VIP_QOS;

/*
 * An address: HostAddressLen bytes of the host, then DiscriminatorLen bytes of the program's
 * choice, from HostAddress on. Callers allocate more than the structure for them.
 */
typedef struct {
    VIP_UINT16 HostAddressLen;
    VIP_UINT16 DiscriminatorLen;
    VIP_UINT8 HostAddress[1];
} VIP_NET_ADDRESS;

/* Levels of reliability. A virtual interface has one of them. */
typedef VIP_USHORT VIP_RELIABILITY_LEVEL;
#define VIP_SERVICE_UNRELIABLE 0x01
#define VIP_SERVICE_RELIABLE_DELIVERY 0x02
#define VIP_SERVICE_RELIABLE_RECEPTION 0x04

/* Results. */
typedef enum {
    VIP_SUCCESS = 0,
    VIP_NOT_DONE = 1,
    VIP_INVALID_PARAMETER = 2,
    VIP_ERROR_RESOURCE = 3,
    VIP_TIMEOUT = 4,
    VIP_REJECT = 5,
    VIP_INVALID_RELIABILITY_LEVEL = 6,
    VIP_INVALID_MTU = 7,
    VIP_INVALID_QOS = 8,
    VIP_INVALID_PTAG = 9,
    VIP_INVALID_RDMAREAD = 10,
    VIP_DESCRIPTOR_ERROR = 11,
    VIP_INVALID_STATE = 12,
    VIP_ERROR_NAMESERVICE = 13,
    VIP_NO_MATCH = 14,
    VIP_NOT_REACHABLE = 15,
    VIP_ERROR_NOT_SUPPORTED = 16
} VIP_RETURN;

/* Names that programs look for with #ifdef. */
#define VIP_NOT_REACHABLE VIP_NOT_REACHABLE
#define VIP_ERROR_NOT_SUPPORTED VIP_ERROR_NOT_SUPPORTED

/* State of a virtual interface. */
typedef enum {
    VIP_STATE_IDLE = 0,
    VIP_STATE_CONNECTED = 1,
    VIP_STATE_CONNECT_PENDING = 2,
    VIP_STATE_ERROR = 3
} VIP_VI_STATE;

/* Attributes of a network interface. The address is valid until the interface is closed. */
typedef struct {
    VIP_CHAR Name[64];
    VIP_ULONG HardwareVersion;
    VIP_ULONG ProviderVersion;
    VIP_UINT16 NicAddressLen;
    const VIP_UINT8 *LocalNicAddress;
    VIP_BOOLEAN ThreadSafe;
    VIP_UINT16 MaxDiscriminatorLen;
    VIP_ULONG MaxRegisterBytes;
    VIP_ULONG MaxRegisterRegions;
    VIP_ULONG MaxRegisterBlockBytes;
    VIP_ULONG MaxVI;
    VIP_ULONG MaxDescriptorsPerQueue;
    VIP_ULONG MaxSegmentsPerDesc;
    VIP_ULONG MaxCQ;
    VIP_ULONG MaxCQEntries;
    VIP_ULONG MaxTransferSize;
    VIP_ULONG NativeMTU;
    VIP_ULONG MaxPtags;
    VIP_RELIABILITY_LEVEL ReliabilityLevelSupport;
    VIP_RELIABILITY_LEVEL RDMAReadSupport;
} VIP_NIC_ATTRIBUTES;

/* Attributes of a virtual interface. */
typedef struct {
    VIP_RELIABILITY_LEVEL ReliabilityLevel;
    VIP_ULONG MaxTransferSize;
    VIP_QOS QoS;
    VIP_PROTECTION_HANDLE Ptag;
    VIP_BOOLEAN EnableRdmaWrite;
    VIP_BOOLEAN EnableRdmaRead;
} VIP_VI_ATTRIBUTES;

/* Attributes of registered memory. */
typedef struct {
    VIP_PROTECTION_HANDLE Ptag;
    VIP_BOOLEAN EnableRdmaWrite;
    VIP_BOOLEAN EnableRdmaRead;
} VIP_MEM_ATTRIBUTES;

/*
 * Descriptors. A descriptor begins at a multiple of 64 bytes in registered memory; its segments
 * follow each other, also beyond the two of the structure.
 */
#define VIP_DESCRIPTOR_ALIGNMENT 64

typedef union {
    VIP_UINT64 AddressBits;
    VIP_PVOID Address;
} VIP_PVOID64;

typedef struct {
    VIP_PVOID64 Next;
    VIP_MEM_HANDLE NextHandle;
    VIP_UINT16 SegCount;
    VIP_UINT16 Control;
    VIP_UINT32 Reserved;
    VIP_UINT32 ImmediateData;
    VIP_UINT32 Length;
    VIP_UINT32 Status;
} VIP_CONTROL_SEGMENT;

/* The first segment of a write or read: a place in the other side's memory. */
typedef struct {
    VIP_PVOID64 Data;
    VIP_MEM_HANDLE Handle;
    VIP_UINT32 Reserved;
} VIP_ADDRESS_SEGMENT;

typedef struct {
    VIP_PVOID64 Data;
    VIP_MEM_HANDLE Handle;
    VIP_UINT32 Length;
} VIP_DATA_SEGMENT;

typedef union {
    VIP_ADDRESS_SEGMENT Remote;
    VIP_DATA_SEGMENT Local;
} VIP_DESCRIPTOR_SEGMENT;

typedef struct {
    VIP_CONTROL_SEGMENT CS;
    VIP_DESCRIPTOR_SEGMENT DS[2];
} VIP_DESCRIPTOR;

/* Control. */
#define VIP_CONTROL_OP_SENDRECV 0x0
#define VIP_CONTROL_OP_RDMAWRITE 0x1
#define VIP_CONTROL_OP_RDMAREAD 0x2
#define VIP_CONTROL_OP_RESERVED 0x3
#define VIP_CONTROL_OP_MASK 0x3
#define VIP_CONTROL_IMMEDIATE 0x4
#define VIP_CONTROL_QFENCE 0x8
#define VIP_CONTROL_RESERVED 0xfff0

/* Status. */
#define VIP_STATUS_DONE 0x1
#define VIP_STATUS_FORMAT_ERROR 0x2
#define VIP_STATUS_PROTECTION_ERROR 0x4
#define VIP_STATUS_LENGTH_ERROR 0x8
#define VIP_STATUS_PARTIAL_ERROR 0x10
#define VIP_STATUS_DESC_FLUSHED_ERROR 0x20
#define VIP_STATUS_TRANSPORT_ERROR 0x40
#define VIP_STATUS_RDMA_PROT_ERROR 0x80
#define VIP_STATUS_REMOTE_DESC_ERROR 0x100
#define VIP_STATUS_ERROR_MASK 0x1fe
#define VIP_STATUS_OP_SEND 0x0
#define VIP_STATUS_OP_RECEIVE 0x10000
#define VIP_STATUS_OP_RDMA_WRITE 0x20000
#define VIP_STATUS_OP_REMOTE_RDMA_WRITE 0x30000
#define VIP_STATUS_OP_RDMA_READ 0x40000
#define VIP_STATUS_OP_MASK 0x70000
#define VIP_STATUS_IMMEDIATE 0x80000
#define VIP_STATUS_RESERVED 0xfff0fe00

/* Asynchronous errors. */
typedef enum {
    VIP_ERROR_POST_DESC = 0,
    VIP_ERROR_CONN_LOST = 1,
    VIP_ERROR_RECVQ_EMPTY = 2,
    VIP_ERROR_VI_OVERRUN = 3,
    VIP_ERROR_RDMAW_PROT = 4,
    VIP_ERROR_RDMAW_DATA = 5,
    VIP_ERROR_RDMAW_ABORT = 6,
    VIP_ERROR_RDMAR_PROT = 7,
    VIP_ERROR_COMP_PROT = 8,
    VIP_ERROR_RDMA_TRANSPORT = 9,
    VIP_ERROR_CATASTROPHIC = 10
} VIP_ERROR_CODE;

typedef enum {
    VIP_RESOURCE_NIC = 0,
    VIP_RESOURCE_VI = 1,
    VIP_RESOURCE_CQ = 2,
    VIP_RESOURCE_DESCRIPTOR = 3
} VIP_RESOURCE_CODE;

typedef struct {
    VIP_NIC_HANDLE NicHandle;
    VIP_VI_HANDLE ViHandle;
    VIP_CQ_HANDLE CQHandle;
    VIP_DESCRIPTOR *DescriptorPtr;
    VIP_ULONG OpCode;
    VIP_RESOURCE_CODE ResourceCode;
    VIP_ERROR_CODE ErrorCode;
} VIP_ERROR_DESCRIPTOR;

/*
 * Handlers are called by a thread of the library, one at a time, and may call every function. A
 * handler is called once; it gives itself again for the next time. They are called in the order in
 * which they were given, and not after their object is destroyed.
 */
typedef void (*VIP_ERROR_HANDLER)(VIP_PVOID Context, VIP_ERROR_DESCRIPTOR *ErrorDesc);
typedef void (*VIP_VI_HANDLER)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle, VIP_VI_HANDLE ViHandle,
                               VIP_DESCRIPTOR *DescriptorPtr);
typedef void (*VIP_CQ_HANDLER)(VIP_PVOID Context, VIP_NIC_HANDLE NicHandle, VIP_VI_HANDLE ViHandle,
                               VIP_BOOLEAN RecvQueue);

/* Kinds of information for VipQuerySystemManagementInfo. */
#define VIP_SMI_AUTODISCOVERY ((VIP_ULONG)1)

/*
 * Hosts: the caller gives NumAdAddrs places for addresses, and gets their number. Without places it
 * gets the number of all.
 */
typedef struct {
    VIP_ULONG NumberOfHops;
    VIP_NET_ADDRESS **ADAddrArray;
    VIP_ULONG NumAdAddrs;
} VIP_AUTODISCOVERY_LIST;

/*
 * Opens a network interface. The name is VINICn, nicn, /dev/clanvin or /dev/vian, the n-th
 * interface of the host from 0, or /dev/via_NAME or NAME. Devices named clanvi have no protection
 * tags: tags are ignored there, as cLAN's were.
 *
 * VIP_INVALID_PARAMETER: there is no such interface; VIP_ERROR_RESOURCE: no link opens, which the
 * log explains.
 */
VIP_RETURN VipOpenNic(const VIP_CHAR *DeviceName, VIP_NIC_HANDLE *NicHandle);

/*
 * Closes a network interface, with all its objects: connections end, and its memory is registered
 * no more.
 */
VIP_RETURN VipCloseNic(VIP_NIC_HANDLE NicHandle);

/* Stores the attributes of a network interface. */
VIP_RETURN VipQueryNic(VIP_NIC_HANDLE NicHandle, VIP_NIC_ATTRIBUTES *NicAttribs);

/* Sets the handler of asynchronous errors. NULL is the default one, which logs them. */
VIP_RETURN VipErrorCallback(VIP_NIC_HANDLE NicHandle, VIP_PVOID Context,
                            VIP_ERROR_HANDLER ErrorHandler);

/*
 * Searches for hosts (VIP_SMI_AUTODISCOVERY): this one, and those of the file of names. Other types
 * give VIP_ERROR_NOT_SUPPORTED.
 */
VIP_RETURN VipQuerySystemManagementInfo(VIP_NIC_HANDLE NicHandle, VIP_ULONG InfoType,
                                        VIP_PVOID SysManInfo);

/*
 * Makes a virtual interface. The completion queues may be NULL.
 *
 * VIP_INVALID_RELIABILITY_LEVEL: not one level; VIP_INVALID_MTU: not from 1 to MaxTransferSize of
 * the network interface; VIP_INVALID_QOS: not NULL; VIP_INVALID_PTAG: no tag of it;
 * VIP_INVALID_RDMAREAD: reads need a reliable level; VIP_ERROR_RESOURCE: too many.
 */
VIP_RETURN VipCreateVi(VIP_NIC_HANDLE NicHandle, const VIP_VI_ATTRIBUTES *ViAttribs,
                       VIP_CQ_HANDLE SendCQHandle, VIP_CQ_HANDLE RecvCQHandle,
                       VIP_VI_HANDLE *ViHandle);

/*
 * Ends a virtual interface. VIP_INVALID_STATE: it is connected, or about to be; VIP_ERROR_RESOURCE:
 * descriptors are in its queues.
 */
VIP_RETURN VipDestroyVi(VIP_VI_HANDLE ViHandle);

/* Changes the attributes of a virtual interface. VIP_INVALID_STATE: it is not idle. */
VIP_RETURN VipSetViAttributes(VIP_VI_HANDLE ViHandle, const VIP_VI_ATTRIBUTES *ViAttribs);

/* Stores state and attributes of a virtual interface. Any of the places may be NULL. */
VIP_RETURN VipQueryVi(VIP_VI_HANDLE ViHandle, VIP_VI_STATE *State, VIP_VI_ATTRIBUTES *ViAttribs,
                      VIP_BOOLEAN *ViSendQEmpty, VIP_BOOLEAN *ViRecvQEmpty);

/*
 * Makes or ends a protection tag. VIP_ERROR_RESOURCE: there are too many, or a virtual interface or
 * memory has it.
 */
VIP_RETURN VipCreatePtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE *ProtectionTag);
VIP_RETURN VipDestroyPtag(VIP_NIC_HANDLE NicHandle, VIP_PROTECTION_HANDLE ProtectionTag);

/*
 * Registers memory. It stays there, and writable where anything is received or written to it, until
 * it is deregistered. VIP_INVALID_PARAMETER: not all of it is mapped.
 */
VIP_RETURN VipRegisterMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress, VIP_ULONG Length,
                          const VIP_MEM_ATTRIBUTES *MemAttribs, VIP_MEM_HANDLE *MemoryHandle);

/*
 * Ends the registration of memory. Operations that use it are taken back: their descriptors fail
 * with VIP_STATUS_PROTECTION_ERROR.
 */
VIP_RETURN VipDeregisterMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID VirtualAddress,
                            VIP_MEM_HANDLE MemoryHandle);

/* Changes or stores the attributes of registered memory. */
VIP_RETURN VipSetMemAttributes(VIP_NIC_HANDLE NicHandle, VIP_PVOID Address,
                               VIP_MEM_HANDLE MemHandle, const VIP_MEM_ATTRIBUTES *MemAttribs);
VIP_RETURN VipQueryMem(VIP_NIC_HANDLE NicHandle, VIP_PVOID Address, VIP_MEM_HANDLE MemHandle,
                       VIP_MEM_ATTRIBUTES *MemAttribs);

/*
 * Posts a descriptor to a queue. VIP_INVALID_PARAMETER: it is not aligned, or not in registered
 * memory; VIP_ERROR_RESOURCE: the queue is full. All else is found when its turn comes, and is in
 * its status.
 */
VIP_RETURN VipPostSend(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR *DescriptorPtr,
                       VIP_MEM_HANDLE MemoryHandle);
VIP_RETURN VipPostRecv(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR *DescriptorPtr,
                       VIP_MEM_HANDLE MemoryHandle);

/*
 * Takes the first descriptor of a queue, if it is complete. VIP_NOT_DONE: it is not;
 * VIP_DESCRIPTOR_ERROR: it has failed or, if the pointer is NULL, the queue is empty.
 */
VIP_RETURN VipSendDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipRecvDone(VIP_VI_HANDLE ViHandle, VIP_DESCRIPTOR **DescriptorPtr);

/*
 * Waits until the first descriptor of a queue is complete, and takes it. A queue that has a
 * completion queue gives VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipSendWait(VIP_VI_HANDLE ViHandle, VIP_ULONG TimeOut, VIP_DESCRIPTOR **DescriptorPtr);
VIP_RETURN VipRecvWait(VIP_VI_HANDLE ViHandle, VIP_ULONG TimeOut, VIP_DESCRIPTOR **DescriptorPtr);

/*
 * Gives the next complete descriptor of a queue to a handler. A queue that has a completion queue
 * gives VIP_INVALID_PARAMETER.
 */
VIP_RETURN VipSendNotify(VIP_VI_HANDLE ViHandle, VIP_PVOID Context, VIP_VI_HANDLER Handler);
VIP_RETURN VipRecvNotify(VIP_VI_HANDLE ViHandle, VIP_PVOID Context, VIP_VI_HANDLER Handler);

/*
 * Makes a completion queue. An entry that finds no room later is lost, which is the asynchronous
 * error VIP_ERROR_VI_OVERRUN.
 */
VIP_RETURN VipCreateCQ(VIP_NIC_HANDLE NicHandle, VIP_ULONG EntryCount, VIP_CQ_HANDLE *CQHandle);

/* Ends a completion queue. VIP_ERROR_RESOURCE: a virtual interface uses it. */
VIP_RETURN VipDestroyCQ(VIP_CQ_HANDLE CQHandle);

/* Changes the number of entries. VIP_ERROR_RESOURCE: more are in it. */
VIP_RETURN VipResizeCQ(VIP_CQ_HANDLE CQHandle, VIP_ULONG EntryCount);

/*
 * Takes the first entry of a completion queue: a virtual interface and one of its queues, whose
 * first descriptor VipSendDone or VipRecvDone takes. VIP_NOT_DONE: there is none; the second
 * function waits for one.
 */
VIP_RETURN VipCQDone(VIP_CQ_HANDLE CQHandle, VIP_VI_HANDLE *ViHandle, VIP_BOOLEAN *RecvQueue);
VIP_RETURN VipCQWait(VIP_CQ_HANDLE CQHandle, VIP_ULONG TimeOut, VIP_VI_HANDLE *ViHandle,
                     VIP_BOOLEAN *RecvQueue);

/* Gives the next entry of a completion queue to a handler. */
VIP_RETURN VipCQNotify(VIP_CQ_HANDLE CQHandle, VIP_PVOID Context, VIP_CQ_HANDLER Handler);

/*
 * Waits for a request at an address of this network interface. RemoteAddr and RemoteViAttribs may
 * be NULL. Times are in milliseconds; 0 gives VIP_INVALID_PARAMETER. VIP_ERROR_RESOURCE: another
 * process waits there.
 */
VIP_RETURN VipConnectWait(VIP_NIC_HANDLE NicHandle, const VIP_NET_ADDRESS *LocalAddr,
                          VIP_ULONG TimeOut, VIP_NET_ADDRESS *RemoteAddr,
                          VIP_VI_ATTRIBUTES *RemoteViAttribs, VIP_CONN_HANDLE *ConnHandle);

/*
 * Accepts a request, and waits until the other side has confirmed it. If level of reliability or
 * maximum transfer size differ, nothing is sent: the request can be accepted by another virtual
 * interface, or rejected. VIP_TIMEOUT: the other side has given up.
 */
VIP_RETURN VipConnectAccept(VIP_CONN_HANDLE ConnHandle, VIP_VI_HANDLE ViHandle);

/* Rejects a request. */
VIP_RETURN VipConnectReject(VIP_CONN_HANDLE ConnHandle);

/*
 * Requests a connection with one who waits at an address, and waits for the answer. VIP_NO_MATCH:
 * nobody waits there, and the program may try again; VIP_REJECT: the request was rejected;
 * VIP_NOT_REACHABLE: no way leads to the host, or its process ends.
 */
VIP_RETURN VipConnectRequest(VIP_VI_HANDLE ViHandle, const VIP_NET_ADDRESS *LocalAddr,
                             const VIP_NET_ADDRESS *RemoteAddr, VIP_ULONG TimeOut,
                             VIP_VI_ATTRIBUTES *RemoteViAttribs);

/*
 * Requests a connection with one who requests it, too. VipConnectPeerDone and VipConnectPeerWait
 * give the result.
 */
VIP_RETURN VipConnectPeerRequest(VIP_VI_HANDLE ViHandle, const VIP_NET_ADDRESS *LocalAddr,
                                 const VIP_NET_ADDRESS *RemoteAddr, VIP_ULONG TimeOut);

/*
 * Returns the result of requests that meet, or VIP_NOT_DONE; the second waits, until the time of
 * the request is over. VIP_INVALID_STATE: there is no request.
 */
VIP_RETURN VipConnectPeerDone(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *RemoteViAttribs);
VIP_RETURN VipConnectPeerWait(VIP_VI_HANDLE ViHandle, VIP_VI_ATTRIBUTES *RemoteViAttribs);

/*
 * Ends a connection, or a request for one, and flushes both queues. The state is idle then. The
 * other side gets VIP_ERROR_CONN_LOST.
 */
VIP_RETURN VipDisconnect(VIP_VI_HANDLE ViHandle);

/*
 * Opens or closes the name service. NSInitInfo is NULL, or the path of a file in the form of
 * hosts(5).
 */
VIP_RETURN VipNSInit(VIP_NIC_HANDLE NicHandle, const void *NSInitInfo);
VIP_RETURN VipNSShutdown(VIP_NIC_HANDLE NicHandle);

/*
 * Stores an address of a host, without a discriminator: of the file, of the system's resolver, or
 * of a name of the cluster. A host may have several, by index from 0.
 */
VIP_RETURN VipNSGetHostByName(VIP_NIC_HANDLE NicHandle, const VIP_CHAR *Name,
                              VIP_NET_ADDRESS *Address, VIP_ULONG NameIndex);

/*
 * Stores the name of a host, and its length. VIP_ERROR_RESOURCE: the room is too short, and the
 * length is stored.
 */
VIP_RETURN VipNSGetHostByAddr(VIP_NIC_HANDLE NicHandle, const VIP_NET_ADDRESS *Address,
                              VIP_CHAR *Name, VIP_ULONG *NameLen);

#ifdef __cplusplus
}
#endif

#endif
