/* weft: message passing over plain Ethernet and shared memory.
 *
 * The interface of a rank of a job: packets with upcalls, messages with tags, collective
 * operations, counters, remote-memory copy; and names of a cluster, with or without a job. A
 * program is started by `weft run`, or by an mpiexec, srun or prterun that supports PMI-1 or PMIx.
 * Compile with `pkg-config --cflags --libs weft`.
 *
 * Functions that return `int` return a number of their own or WEFT_OK on success, and a negative
 * code on failure: weft_strerror returns its meaning, weft_last_error the details. All functions
 * of a job are called by the thread that called weft_init, or by upcalls. Null pointers,
 * misaligned ones and freed handles are detected as far as possible.
 *
 * Upcalls run inside the functions that make progress: weft_poll, weft_wait and all that wait.
 * An upcall must return normally. It may call weft_send, weft_try_send, weft_multicast (which
 * return WEFT_BUSY there instead of waiting), and functions that never wait; functions that
 * wait return WEFT_UPCALL. A request, set, group or communicator that the interrupted call uses
 * is not freed or tested by an upcall: WEFT_ARGUMENT.
 *
 * Memory passed to a function belongs to weft until the function has returned. Neither an upcall
 * nor a signal handler may leave a function of weft by longjmp, by an exception or by the end of
 * its thread (pthread_exit, pthread_cancel): later packets, and other processes of the host,
 * would read and write that memory.
 *
 * A signal handler must not call functions of weft: set a variable there, and call them from the
 * program. A call inside another one that the signal has interrupted changes nothing and returns
 * WEFT_SIGNAL, without a text for weft_last_error.
 *
 * A job belongs to the process that joined it: in a child made by fork all functions that need
 * other ranks, or make progress, return WEFT_PEER, and weft_last_error says so. weft_finish frees
 * the handle there, and returns the same.
 *
 * With WEFT_RECEIPT=watchdog a thread of weft makes progress for a program that has called
 * nothing for WEFT_WATCHDOG_US, and upcalls run in that thread too, beside the program's
 * computation: data that both use must be atomic or locked by the program. Functions take a lock
 * then. weft_wait returns at once if the watchdog has made progress since the last weft_wait or
 * weft_poll. One job of a process can have a watchdog. */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_OK 0         /* success */
#define WEFT_BUSY -1      /* no room now: try again after weft_poll or weft_wait */
#define WEFT_PEER -2      /* a rank failed; weft_last_error names it */
#define WEFT_REFUSED -3   /* refused, mostly by the other side: key, bounds, rights, memory */
#define WEFT_ARGUMENT -4  /* an argument is wrong; weft_last_error says which one */
#define WEFT_TOO_LONG -5  /* longer than a packet (weft_packet_max), or than there is room for */
#define WEFT_TOO_MANY -6  /* too many: packets kept, regions or groups; too much memory */
#define WEFT_NO_AGENT -7  /* an agent is chosen, and none serves this process */
#define WEFT_INIT -8      /* the job could not be joined */
#define WEFT_PANIC -9     /* a fault in weft itself */
#define WEFT_THREAD -10   /* called from another thread than weft_init, and from no upcall */
#define WEFT_UPCALL -11   /* not to be called from an upcall, as it waits */
#define WEFT_CANCELLED -12 /* a receive was cancelled before it matched a message */
#define WEFT_SIGNAL -13   /* called by a signal handler that interrupted another call */

#define WEFT_ANY -1          /* any rank */
#define WEFT_TREE_DEFAULT -1 /* the tree of WEFT_TREE */
#define WEFT_TREE_FLAT 0     /* the sender sends to every other member */
#define WEFT_TREE_CHAIN 1    /* each member sends to the next one */
#define WEFT_TREE_BINARY 2   /* each member sends to at most two others */
#define WEFT_TREE_BINOMIAL 3 /* the number of reached members doubles every step */
#define WEFT_INT8 0          /* values that are combined: int8_t */
#define WEFT_UINT8 1         /* uint8_t */
#define WEFT_INT16 2         /* int16_t */
#define WEFT_UINT16 3        /* uint16_t */
#define WEFT_INT32 4         /* int32_t */
#define WEFT_UINT32 5        /* uint32_t */
#define WEFT_INT64 6         /* int64_t */
#define WEFT_UINT64 7        /* uint64_t */
#define WEFT_FLOAT 8         /* float */
#define WEFT_DOUBLE 9        /* double */
#define WEFT_FLOAT16 10      /* 16 bits of IEEE 754; added and multiplied as float, then rounded */
#define WEFT_BFLOAT16 11     /* 16 bits with the exponent of float, combined in the same way */
#define WEFT_BOOL 12         /* bytes that are 0 or not; for all ranks only */
#define WEFT_COMPLEX_FLOAT 13 /* two float: sum, product and average */
#define WEFT_COMPLEX_DOUBLE 14 /* two double, likewise */
#define WEFT_SUM 0           /* how they are combined: added; integers wrap */
#define WEFT_PRODUCT 1       /* multiplied; integers wrap */
#define WEFT_MIN 2           /* the smallest */
#define WEFT_MAX 3           /* the largest */
#define WEFT_AND 4           /* bits that all have; integers only, as the next two */
#define WEFT_OR 5            /* bits that one of them has */
#define WEFT_XOR 6           /* bits that an odd number of them has */
#define WEFT_AVERAGE 7       /* the sum, divided by the number of ranks; no integers */
#define WEFT_NAMES_NEAREST 0 /* an owner of this host, if there is one; otherwise by turns */
#define WEFT_NAMES_TURN 1    /* one of all owners, by turns */
#define WEFT_NAMES_UNIQUE 1  /* a claim excludes other owners */
#define WEFT_NAMES_ON_HOST 2 /* it is seen on its host alone */
#define WEFT_NAMES_MESSAGES 4 /* its owner takes messages (weft_names_next) */
#define WEFT_NAMES_PUBLISHED 1 /* events: a name is there */
#define WEFT_NAMES_WITHDRAWN 2 /* a name is gone: the cause says why */
#define WEFT_NAMES_ALL 3     /* the names that there were have all been told */
#define WEFT_NAMES_MISSED 4  /* len events were missed; the differences follow, then ..._ALL */
#define WEFT_NAMES_TIMEOUT 5 /* the time of the subscription is over */
#define WEFT_NAMES_LOST 6    /* others ended the claim number: the cause says why */
#define WEFT_NAMES_MESSAGE 7 /* a message to the claim number: data and len */
#define WEFT_NAMES_RETURNED 8 /* the message number, sent before, came back: the cause says why */
#define WEFT_TO_ONE 1        /* to one member of a group, by turns */
#define WEFT_TO_EACH 2       /* to all members that have an instance */
#define WEFT_TO_ALL 3        /* to all other members */
#define WEFT_MEMBER_JOINED 1 /* events: a member is there */
#define WEFT_MEMBER_LEFT 2   /* a member is gone: the cause says why */
#define WEFT_MEMBER_ALL 3    /* the members that there were have all been told */
#define WEFT_MEMBER_MESSAGE 4 /* a message of a member: sent_to, data and len */
#define WEFT_MEMBER_SETTLED 5 /* all receivers of the message number have it, or are gone */
#define WEFT_MEMBER_RETURNED 6 /* the message number did not reach a member: the cause says why */
#define WEFT_MEMBER_SLOW 7   /* a member has taken no messages for waited_us */
#define WEFT_MEMBER_PUT_OUT 8 /* a member took none for so long that it is put out */
#define WEFT_BY_HOST 0       /* ranks forward */
#define WEFT_BY_AGENT 1      /* agents forward */

typedef struct weft_job weft_job;
typedef struct weft_packet weft_packet;
typedef struct weft_buffer weft_buffer;
typedef struct weft_group weft_group;

typedef struct weft_request weft_request;
typedef struct weft_message weft_message;
typedef struct weft_set weft_set;
typedef struct weft_comm weft_comm;
typedef struct weft_names weft_names;
typedef struct weft_names_watch weft_names_watch;
typedef struct weft_member weft_member;

/* The result of a message: its sender (-1: nothing was received), its tag, its length when sent,
 * and the code of the operation: WEFT_OK, or WEFT_TOO_LONG (the first part is in the memory),
 * WEFT_CANCELLED, WEFT_PEER, WEFT_REFUSED. For a collective operation that failed the sender is the
 * rank of the communicator that failed, or -1. */
typedef struct weft_status {
    int source;
    uint32_t tag;
    size_t len;
    int code;
} weft_status;

/* An owner of a name: type and instances, user and process, 1 if it is on this host, the number of
 * its host, its endpoint (0: none), the name as it is typed, and its socket address (empty: none).
 * Of the sender of a message only user, process and host are set. */
typedef struct weft_owner {
    uint32_t type, lower, upper, user, process;
    int here;
    uint64_t host, endpoint;
    char name[96], address[64];
} weft_owner;

/* An event of names. Its number is that of the claim (WEFT_NAMES_LOST, WEFT_NAMES_MESSAGE), of the
 * message (WEFT_NAMES_RETURNED), or its own in its subscription, from 1 without gaps. */
typedef struct weft_names_event {
    int kind;
    uint64_t number;
    weft_owner owner;
    char cause[160];
    const void *data;
    size_t len;
} weft_names_event;

/* A member of a group of names, for messages to it. Two are the same member if their bytes are. */
typedef struct weft_member_id {
    uint64_t host, claim, life[2];
} weft_member_id;

/* An event of a group: the member that it is about, with its name as long as it is there, and what
 * its kind has. */
typedef struct weft_member_event {
    int kind, sent_to;
    uint64_t number;
    weft_member_id id;
    weft_owner owner;
    int64_t waited_us;
    char cause[160];
    const void *data;
    size_t len;
} weft_member_event;

/* An upcall: the job, the packet, and the context that was set with it. */
typedef void (*weft_upcall)(weft_job *job, weft_packet *packet, void *context);

/* Returns the meaning of a code. */
const char *weft_strerror(int code);
/* Returns details of the last call of this thread that failed, valid until the next one that
 * fails; for a failed rank its number, host, link, interface and addresses, the reason, and the
 * next step for the user. */
const char *weft_last_error(void);

/* Joins the job this process was started in and stores its handle. */
int weft_init(weft_job **job);
/* Sends queued packets and leaves the job: its handle, kept packets and groups end with it. */
int weft_finish(weft_job *job);
/* Return the number of this process in the job, and the number of processes. */
int weft_rank(const weft_job *job);
int weft_size(const weft_job *job);
/* Makes progress and calls upcalls; returns 1 if anything happened, else 0. */
int weft_poll(weft_job *job);
/* Makes progress as weft_poll does, and waits until something happens: at most timeout_us
 * microseconds, forever if timeout_us is negative. */
int weft_wait(weft_job *job, int64_t timeout_us);
/* Lets a program wait for other descriptors too: weft_wait_fd returns one that is readable when
 * weft_poll may have work. The job owns it: do not read or close it. Before each sleep on it
 * (poll, epoll) call weft_prepare_wait, which returns 1, or 0: do not sleep, there is work for
 * weft_poll. After each sleep call weft_finish_wait, whatever ended the sleep, and weft_poll
 * until that returns 0. Under a watchdog all three return WEFT_REFUSED. examples/poll.c */
int weft_wait_fd(weft_job *job);
int weft_prepare_wait(weft_job *job);
int weft_finish_wait(weft_job *job);
/* Returns when every rank has called it. */
int weft_barrier(weft_job *job);
/* Makes a choice for one rank, and for no other; the other choices stay. "reliability" (none,
 * gbn, selective, agent) and "mtu" (bytes): before anything is sent to it. "transfer" (auto,
 * copy, gather, rcpy): for data sent to it and fetched from it from then on. "fetch_add" (host,
 * agent, kernel): the server of this rank's additions to counters there; for the own rank, the
 * place of counters made from then on. */
int weft_choose(weft_job *job, int rank, const char *name, const char *value);

/* Sets an upcall for the packets of a handler. Set handlers before others send: before the first
 * barrier. */
int weft_handle(weft_job *job, uint16_t number, weft_upcall upcall, void *context);
/* Return the rank that sent a packet (of a multicast, the root), its argument and its bytes. */
int weft_packet_source(const weft_packet *packet);
uint32_t weft_packet_argument(const weft_packet *packet);
const void *weft_packet_data(const weft_packet *packet, size_t *len);
/* Keeps the packet of a running upcall and stores its new handle; WEFT_TOO_MANY: copy it. */
int weft_packet_keep(weft_packet *packet, weft_packet **kept);
/* Releases a kept packet: its memory, and its sender's credit. */
int weft_packet_release(weft_packet *kept);

/* Returns the longest packet to a rank, in bytes. */
int weft_packet_max(const weft_job *job, int rank);
/* Sends a packet; the memory is free when this returns. The second never waits. */
int weft_send(weft_job *job, int rank, uint16_t handler, uint32_t argument, const void *data,
              size_t len);
int weft_try_send(weft_job *job, int rank, uint16_t handler, uint32_t argument, const void *data,
                  size_t len);
/* Sends a packet straight from the program's memory; returns when it is sent or queued. The
 * memory must not change until it is returned, in the order in which it became free:
 * weft_returned stores its address and returns 1, or 0 while none is free, and makes progress.
 * weft_flush waits for all of it; weft_returned then does not name it. While a rank has not
 * acknowledged earlier packets, packets leave in trains, the last with the next call that makes
 * progress. While thousands of addresses wait for weft_returned, weft_send_from returns
 * WEFT_TOO_MANY. */
int weft_send_from(weft_job *job, int rank, uint16_t handler, uint32_t argument, const void *data,
                   size_t len);
int weft_returned(weft_job *job, const void **data);
int weft_flush(weft_job *job);
/* Queues packets for a handler to be received, instead of an upcall; receives the next one, of a
 * rank or of WEFT_ANY: sender, argument and length are stored where the pointer is not null. A
 * packet longer than the memory is lost: WEFT_TOO_LONG. Packets that are not received take memory
 * and do not block those for other mailboxes, until half of WEFT_UNEXPECTED_MAX is full of packets
 * of one rank. More of its packets wait at that rank then: weft_try_send returns WEFT_BUSY there,
 * and a receive that waits for one behind them ends with WEFT_PEER on both sides after
 * WEFT_PEER_TIMEOUT_MS, with their number and bytes in weft_last_error. */
int weft_mailbox(weft_job *job, uint16_t number);
int weft_receive(weft_job *job, int rank, uint16_t number, void *data, size_t len, int *source,
                 uint32_t *argument, size_t *got);
/* Allocates memory for a packet: its handle, and the address for the bytes. Sending frees it,
 * also if that fails, except with WEFT_ARGUMENT and WEFT_THREAD. */
int weft_buffer_alloc(weft_job *job, size_t len, weft_buffer **buffer, void **data);
int weft_buffer_send(weft_job *job, int rank, uint16_t handler, uint32_t argument,
                     weft_buffer *buffer);
int weft_buffer_free(weft_buffer *buffer);

/* Makes multicast group id of some ranks, including this one, and stores its handle. All members
 * call it with the same id and ranks in the same order. Freeing the handle does not end the
 * group. */
int weft_group_make(weft_job *job, uint16_t id, const int *ranks, size_t count,
                    weft_group **group);
int weft_group_free(weft_group *group);
int weft_group_packet_max(const weft_group *group);
/* Sends a packet to all other members over a tree. At a member with a mailbox of that number it
 * waits for weft_receive, and until then holds the group's credit: a member that receives nothing
 * is slow (weft_group_slow). */
int weft_multicast(weft_group *group, int tree, uint16_t handler, uint32_t argument,
                   const void *data, size_t len);

/* Returns the number of members that have had no room for longer than WEFT_WARN_AFTER_MS
 * although packets wait for them here, and stores the ranks of the first `count`. Each member
 * reports those that it sends to itself. */
int weft_group_slow(const weft_group *group, int *ranks, size_t count);
/* Notes that this rank waits for packets of a member: until the same number of calls of
 * weft_group_unexpect, or until the handle is freed, the silence of that member and of those
 * that may forward its packets to here is noticed, and ends the group for all members. Without
 * it a rank notices the silence of those only that it has sent packets to. A member that leaves
 * in good order is not reported: its packets may still be in flight. WEFT_PEER: the group has
 * failed. */
int weft_group_expect(weft_group *group, int rank);
int weft_group_unexpect(weft_group *group, int rank);
/* Returns WEFT_PEER once a member failed, which weft_last_error names; else WEFT_OK. weft_wait
 * returns when that happens. examples/expect.c */
int weft_group_failed(const weft_group *group);
/* Returns the present forwarder of this rank's multicasts over a tree: with WEFT_MULTICAST=agent
 * it is WEFT_BY_AGENT once all members have joined at their agents; the first packet asks for
 * that. */
int weft_forwarded_by(const weft_group *group, int tree);

/* Makes a counter here, reads it, adds to one at a rank; ends one made here, and with it its
 * part of the agent's quota. */
int weft_counter(weft_job *job, uint64_t value, uint64_t *key);
int weft_counter_value(const weft_job *job, uint64_t key, uint64_t *value);
int weft_fetch_add(weft_job *job, int rank, uint64_t key, uint64_t n, uint64_t *old);
int weft_counter_end(weft_job *job, uint64_t key);

/* Lets ranks that have the key copy to this memory at any time; ends that. WEFT_ARGUMENT: not all
 * of it is mapped now. Memory must stay mapped and writable, at the same place, until
 * weft_unexport has returned. Copies to parts that the program has unmapped or made read-only
 * are refused at the rank that copies (WEFT_REFUSED), and harm nobody, unless a thread unmaps
 * them during a call of weft. Other memory that is mapped in their place would be written to. */
int weft_export(weft_job *job, void *memory, size_t len, uint64_t *key);
int weft_unexport(weft_job *job, uint64_t key);
/* Exports zeroed memory of weft, which exists until weft_unexport: ranks of this host map that
 * memory (from 64 KiB on), and copy to it without a system call. WEFT_TOO_MANY: the machine does
 * not have so much, or there are too many exports. */
int weft_export_new(weft_job *job, size_t len, void **memory, uint64_t *key);
/* Copies bytes to memory that a rank exported: they have arrived when this returns. If it fails,
 * some of them may have. */
int weft_rcpy(weft_job *job, int rank, uint64_t key, uint64_t offset, const void *data,
              size_t len);
/* Stores a counter of this rank by name, from the start of the job: "rcpy_hits" and
 * "rcpy_misses" (pages that were copied with a translation available, and without),
 * "rcpy_redirects", "rcpy_evictions", "rcpy_invalidations"; "multicasts", "agent_multicasts",
 * "forwarded", "slow_members", "kernel_adds" and the others of PacketStats in Rust. */
int weft_stat(const weft_job *job, const char *name, uint64_t *value);

/* Messages: they have any length, and a tag of 32 bits, and are received in any order of tags. Two
 * messages of one rank that match the same receive arrive in the order in which they were sent. A
 * receive accepts the messages of a rank, or of WEFT_ANY, whose tag is `tag` in all bits but those
 * of `ignore`: 0 compares all, ~0 none. Rust programs of the same job exchange them by
 * `Group::send` and `recv`. A request is an operation that was started: every function that makes
 * progress continues it, and it owns the memory that it was given until weft_test, weft_wait_any,
 * weft_wait_all or weft_set_wait has reported its end. */

/* Sends a message: its memory is free when this returns. It may wait for the receive. */
int weft_msg_send(weft_job *job, int rank, uint32_t tag, const void *data, size_t len);
/* Receives a message into len bytes of memory; stores its status where that is not null. A
 * longer message leaves its first part: WEFT_TOO_LONG. From WEFT_ANY it returns WEFT_PEER once
 * for each rank that fails meanwhile, and always when no other rank remains. */
int weft_msg_recv(weft_job *job, int rank, uint32_t tag, uint32_t ignore, void *data, size_t len,
                  weft_status *status);
/* Start a send or a receive without waiting: store a request, which owns the memory until it has
 * ended. A request of weft_msg_issend ends only when the message has matched a receive. */
int weft_msg_isend(weft_job *job, int rank, uint32_t tag, const void *data, size_t len,
                   weft_request **request);
int weft_msg_issend(weft_job *job, int rank, uint32_t tag, const void *data, size_t len,
                    weft_request **request);
int weft_msg_irecv(weft_job *job, int rank, uint32_t tag, uint32_t ignore, void *data, size_t len,
                   weft_request **request);
/* Probes for a message that has arrived and that no receive has taken: returns 1 and its status,
 * or 0 after a round of progress. WEFT_PEER: there is none, and the rank has failed. */
int weft_msg_probe(weft_job *job, int rank, uint32_t tag, uint32_t ignore, weft_status *status);
/* Probes for a message as weft_msg_probe does, and claims that message: other receives and probes
 * do not find it any more. weft_msg_take and weft_msg_itake receive it, and end its handle. */
int weft_msg_claim(weft_job *job, int rank, uint32_t tag, uint32_t ignore, weft_message **message,
                   weft_status *status);
int weft_msg_take(weft_message *message, void *data, size_t len, weft_status *status);
int weft_msg_itake(weft_message *message, void *data, size_t len, weft_request **request);

/* Tests a request: if it has ended, returns 1, stores its status where that is not null, and
 * sets the request to null; else returns 0, after a round of progress. A null request counts as
 * ended. For a failed request it returns the code. */
int weft_test(weft_request **request, weft_status *status);
/* Waits until one of count requests has ended; stores its index and status, and sets the entry
 * to null. Null entries are ignored; without any other it returns WEFT_ARGUMENT. */
int weft_wait_any(weft_request **requests, size_t count, size_t *at, weft_status *status);
/* Waits until all of count requests have ended; stores count statuses where that is not null,
 * and sets the entries to null. Returns WEFT_OK, or the code of the first that failed. */
int weft_wait_all(weft_request **requests, size_t count, weft_status *statuses);
/* Cancels a receive that has not matched a message: it ends with WEFT_CANCELLED, or as without
 * this call. Sends and collective operations go on. The program still has to wait for the
 * request. */
int weft_cancel(weft_request *request);
/* A set of requests, for many of them: each costs the same, however many there are. The set owns
 * a request that is added, and keeps the program's context for it; weft_test and the waits above
 * refuse it from then on. weft_set_wait waits until one has ended, at most timeout_us
 * microseconds, forever if that is negative: it returns 1, its context and status; or 0, if none
 * did or the set is empty. weft_set_free cancels receives that have not matched a message; sends
 * continue from copies, and collective operations without their results. */
int weft_set_make(weft_job *job, weft_set **set);
int weft_set_add(weft_set *set, weft_request *request, void *context);
int weft_set_wait(weft_set *set, int64_t timeout_us, void **context, weft_status *status);
int weft_set_free(weft_set *set);

/* Collective operations: all ranks of a communicator call the same ones in the same order. Each has
 * a form that waits for the end, and one that stores a request, which ends like those of messages;
 * the program can wait for both kinds together. The bytes to send are copied when the function is
 * called; the request owns the memory for results until it has ended. Several operations may be
 * under way. If a rank that is needed has failed, the others get WEFT_PEER, with its number in the
 * communicator in the status, and with its name and the cause in weft_last_error. If a rank that is
 * needed is in another operation, or in the same with another root, type, operation, tree or list
 * of ranks, or with fewer or more values to combine, the others get WEFT_ARGUMENT, and
 * weft_last_error says what differs. A rank that needs nothing of the others, as a root that has
 * sent its bytes, may not learn of it. Rust programs of the same job take part by `Group`. */

/* Makes a communicator. The first is of all ranks of the job, and its operations count with
 * weft_barrier; the second is of some ranks, this one included, numbered from 0 in the order given.
 * All of these pass the same ranks in the same order (their first operation fails otherwise), and
 * an id from 1 on that no other of their communicators has.
 * The handle ends with the job, or with weft_comm_free; operations under way then go on. */
int weft_comm_all(weft_job *job, weft_comm **comm);
int weft_comm_make(weft_job *job, uint16_t id, const int *ranks, size_t count, weft_comm **comm);
int weft_comm_free(weft_comm *comm);
/* Return the number of this process in a communicator, the number of its ranks, and the number that
 * one of its ranks has in the job, for messages and packets. */
int weft_comm_rank(const weft_comm *comm);
int weft_comm_size(const weft_comm *comm);
int weft_comm_job_rank(const weft_comm *comm, int rank);
/* Chooses the tree of broadcasts and reductions from now on, in place of that of WEFT_TREE; all
 * ranks choose the same. */
int weft_comm_tree(weft_comm *comm, int tree);
/* Returns when every rank has called it. */
int weft_comm_barrier(weft_comm *comm);
int weft_comm_ibarrier(weft_comm *comm, weft_request **request);
/* Copies the root's bytes to every rank. All ranks pass the same len: if the root's is longer, the
 * first part is stored, WEFT_TOO_LONG; if it is shorter, nothing is stored, WEFT_ARGUMENT. */
int weft_comm_broadcast(weft_comm *comm, int root, void *data, size_t len);
int weft_comm_ibroadcast(weft_comm *comm, int root, void *data, size_t len,
                         weft_request **request);
/* Combines the values of all ranks at the root, each with those of the same index. All ranks pass
 * the same count, type (WEFT_INT8 and so on) and operation (WEFT_SUM and so on). `result` may be
 * `data`; on the other ranks it may be null, and is not changed. */
int weft_comm_reduce(weft_comm *comm, int root, const void *data, void *result, size_t count,
                     int type, int op);
int weft_comm_ireduce(weft_comm *comm, int root, const void *data, void *result, size_t count,
                      int type, int op, weft_request **request);
/* Combines values as weft_comm_reduce does, with the result at every rank, and with the same bits
 * everywhere. */
int weft_comm_allreduce(weft_comm *comm, const void *data, void *result, size_t count, int type,
                        int op);
int weft_comm_iallreduce(weft_comm *comm, const void *data, void *result, size_t count, int type,
                         int op, weft_request **request);
/* Combines values as weft_comm_allreduce does, and gives each rank one block of the result: the
 * first counts[0] values to rank 0, the next counts[1] to rank 1, and so on. All ranks pass the
 * same counts. `result` holds this rank's block. */
int weft_comm_reduce_scatter(weft_comm *comm, const void *data, void *result, const size_t *counts,
                             int type, int op);
int weft_comm_ireduce_scatter(weft_comm *comm, const void *data, void *result,
                              const size_t *counts, int type, int op, weft_request **request);
/* Collects a message of every rank at the root: that of rank r at all + r * each, and its length in
 * lens[r], if lens is not null. Lengths may differ; of a message longer than `each` the first part
 * is stored: WEFT_TOO_LONG. On the other ranks `all`, `each` and `lens` are ignored. */
int weft_comm_gather(weft_comm *comm, int root, const void *data, size_t len, void *all,
                     size_t each, size_t *lens);
int weft_comm_igather(weft_comm *comm, int root, const void *data, size_t len, void *all,
                      size_t each, size_t *lens, weft_request **request);
/* Collects a message of every rank as weft_comm_gather does, at every rank. */
int weft_comm_allgather(weft_comm *comm, const void *data, size_t len, void *all, size_t each,
                        size_t *lens);
int weft_comm_iallgather(weft_comm *comm, const void *data, size_t len, void *all, size_t each,
                         size_t *lens, weft_request **request);
/* Sends each rank r the bytes at all + r * each of the root: lens[r] of them, or `each` if lens is
 * null. Stores them in `data`, and their number in `got` if that is not null; of more than len
 * bytes the first part: WEFT_TOO_LONG. On the other ranks `all`, `each` and `lens` are ignored. */
int weft_comm_scatter(weft_comm *comm, int root, const void *all, size_t each, const size_t *lens,
                      void *data, size_t len, size_t *got);
int weft_comm_iscatter(weft_comm *comm, int root, const void *all, size_t each,
                       const size_t *lens, void *data, size_t len, size_t *got,
                       weft_request **request);
/* Sends each rank r the bytes at data + r * each: lens[r] of them, or `each` if lens is null.
 * Stores those of rank r at all + r * each, and their number in got[r] if that is not null; of more
 * than `each` the first part: WEFT_TOO_LONG. */
int weft_comm_alltoall(weft_comm *comm, const void *data, const size_t *lens, void *all,
                       size_t *got, size_t each);
int weft_comm_ialltoall(weft_comm *comm, const void *data, const size_t *lens, void *all,
                        size_t *got, size_t each, weft_request **request);

/* Names: where the agent of this host is a member of a cluster (weftd --cluster), a program claims
 * a name, and others find it on all hosts and are told when it comes and goes. No job is needed. A
 * connection, and what is made with it, belongs to the thread that opened it; its claims end with
 * it and with the process. A name is WORD, WORD:INSTANCE or WORD:FIRST-LAST; a word that is a
 * number is the type itself. Waits last at most timeout_us microseconds, for ever if that is
 * negative. Functions fail with WEFT_NO_AGENT if there is no agent, or it has ended, and with
 * WEFT_REFUSED if it refuses. */

/* Connects to the agent of this host, that of WEFT_AGENT or the usual one, and stores the
 * connection. */
int weft_names_open(weft_names **names);
/* Ends the connection, and with it its claims. */
int weft_names_close(weft_names *names);
/* Claims a name that leads to a socket address (ADDRESS:PORT), or, where address is null, is a
 * mark that its owner is there. Flags are WEFT_NAMES_UNIQUE, ... or 0. Stores the claim's
 * number. */
int weft_names_claim(weft_names *names, const char *name, const char *address, int flags,
                     uint64_t *claim);
/* Claims a name that leads to this rank: others find its endpoint, and ranks of its job the rank
 * (weft_connect_name). */
int weft_names_claim_rank(weft_names *names, weft_job *job, const char *name, int flags,
                          uint64_t *claim);
/* Withdraws a claim. */
int weft_names_withdraw(weft_names *names, uint64_t claim);
/* Stores an owner of a name, WEFT_NAMES_NEAREST or WEFT_NAMES_TURN. Returns 1, or 0 if nobody has
 * it. The first call for a type subscribes to it; later ones send no message. */
int weft_names_find(weft_names *names, const char *name, int pick, weft_owner *owner);
/* Waits until a name has at least count owners (0: no wait), and stores the first room of them.
 * Returns how many there are: less than count, if the time is over. */
int weft_names_wait(weft_names *names, const char *name, size_t count, int64_t timeout_us,
                    weft_owner *owners, size_t room);
/* Sends a message of at most 66,000 bytes to an owner of a name, by turns, or to all of them. If it
 * does not come to all of these, the code is WEFT_REFUSED, and weft_last_error says why. */
int weft_names_send(weft_names *names, const char *name, int all, const void *data, size_t len);
/* Stores the number of the last message that was sent, which WEFT_NAMES_RETURNED names: an owner
 * may end after that, before it has taken the message. */
int weft_names_sent(weft_names *names, uint64_t *number);
/* Takes the next message to a name of this connection, the end of a claim by others, or a message
 * of this connection that came back. Returns 1, or 0 if none came in time. The data is valid until
 * the next call with the connection. */
int weft_names_next(weft_names *names, int64_t timeout_us, weft_names_event *event);
/* Descriptors that are readable when there may be an event, for the program's own poll(2): take all
 * events with timeout_us 0 first. They must not be read or closed. */
int weft_names_fd(weft_names *names);
int weft_names_watch_fd(weft_names_watch *watch);
/* Watches a name: first come the names that are there, then WEFT_NAMES_ALL, then each change; with
 * first_last only the first that comes and the last that goes. It ends after timeout_us (negative:
 * never) with WEFT_NAMES_TIMEOUT, and by weft_names_watch_free. */
int weft_names_watch_make(weft_names *names, const char *name, int first_last, int64_t timeout_us,
                          weft_names_watch **watch);
int weft_names_watch_next(weft_names_watch *watch, int64_t timeout_us, weft_names_event *event);
int weft_names_watch_free(weft_names_watch *watch);
/* Returns the rank of this job that has claimed a name by weft_names_claim_rank. */
int weft_connect_name(weft_job *job, weft_names *names, const char *name, int pick);

/* Groups of names: the members of a type see each other come and go, and send to one, any, some or
 * all others. Each takes the messages of another one once and in order. A member that takes none
 * holds up those that send to it, and is named to them. Functions fail as those of names, and with
 * WEFT_REFUSED once others have ended the membership; weft_last_error says why. */

/* Makes this process a member of the group of a name's type, with its instances, on a connection of
 * its own, and stores the membership. A member that takes nothing for slow_us (negative: 1 s) is
 * named, and after put_out_us (negative: never) put out. Address and flags are those of
 * weft_names_claim, without WEFT_NAMES_MESSAGES. */
int weft_member_join(weft_names *names, const char *name, const char *address, int flags,
                     int64_t slow_us, int64_t put_out_us, weft_member **member);
/* Ends a membership. Messages that are under way may not arrive: flush it before. */
int weft_member_leave(weft_member *member);
/* Takes the next event. Returns 1, or 0 if none came in time. First come the members that are
 * there beside this one, then WEFT_MEMBER_ALL, then what happens. The data is valid until the
 * next call with the membership. */
int weft_member_next(weft_member *member, int64_t timeout_us, weft_member_event *event);
/* Sends a message of at most 66,000 bytes to members: to WEFT_TO_ONE or WEFT_TO_EACH of those that
 * have an instance from first to last, or WEFT_TO_ALL others. Waits at most timeout_us until they
 * take messages; if one does not, the code is WEFT_REFUSED, and weft_last_error names it. Stores
 * the number of the message, by which events tell of it, if number is not null. */
int weft_member_send(weft_member *member, int to, uint32_t first, uint32_t last, const void *data,
                     size_t len, int64_t timeout_us, uint64_t *number);
/* Sends a message to the member of an event, as weft_member_send does. */
int weft_member_send_to(weft_member *member, const weft_member_id *id, const void *data, size_t len,
                        int64_t timeout_us, uint64_t *number);
/* Waits until all receivers of all messages of this member have them, or are gone; WEFT_REFUSED if
 * that takes longer. Events that come meanwhile are kept for weft_member_next. */
int weft_member_flush(weft_member *member, int64_t timeout_us);
/* A descriptor that is readable when there may be an event, as weft_names_fd. */
int weft_member_fd(weft_member *member);

#ifdef __cplusplus
}
#endif

#endif
