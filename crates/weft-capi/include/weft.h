/* weft: message passing over plain Ethernet and shared memory.
 *
 * The packet interface of a rank of a job. A program is started by `weft run`, or by an mpiexec,
 * srun or prterun that speaks PMI-1 or PMIx. Compile with `pkg-config --cflags --libs weft`.
 *
 * Functions that return `int` answer a number of their own or WEFT_OK when they worked, and a
 * negative code when they did not: weft_strerror says what it means, weft_last_error says more. All
 * functions of a job are called by the thread that called weft_init, or by upcalls. Null pointers,
 * misaligned ones and handles that were freed are recognised as far as that can be done.
 *
 * Upcalls run inside the functions that make progress: weft_poll, weft_wait and all that wait. An
 * upcall must return normally. It may call weft_send, weft_try_send, weft_multicast (which answer
 * WEFT_BUSY there instead of waiting), and what is done at once; functions that always wait answer
 * WEFT_UPCALL.
 *
 * The memory that a function was given is weft's until the function has returned. Neither an upcall
 * nor a signal handler leaves a function of weft by longjmp, by an exception or by the end of its
 * thread (pthread_exit, pthread_cancel): packets that come later, and other processes of the host,
 * would read and write that memory.
 *
 * A job belongs to the process that joined it: in one made by fork all that needs others fails, and
 * says so.
 *
 * With WEFT_RECEIPT=watchdog a thread of weft makes progress for a program that has called nothing
 * for WEFT_WATCHDOG_US, and upcalls run in that thread too, beside what the program computes: what
 * both use is atomic, or the program locks it. Functions take a lock then. weft_wait returns at
 * once when the watchdog has taken something in since the last weft_wait or weft_poll. One job of a
 * process can have a watchdog.
 */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_OK 0         /* it worked */
#define WEFT_BUSY -1      /* no room now: try again after weft_poll or weft_wait */
#define WEFT_PEER -2      /* a rank failed; weft_last_error names it */
#define WEFT_REFUSED -3   /* refused by the other side: key, bounds or rights are wrong */
#define WEFT_ARGUMENT -4  /* an argument is wrong: a null or foreign pointer, no such rank */
#define WEFT_TOO_LONG -5  /* longer than a packet (weft_packet_max), or than there is room for */
#define WEFT_TOO_MANY -6  /* too many: packets kept, regions or groups */
#define WEFT_NO_AGENT -7  /* an agent is chosen, and none serves this process */
#define WEFT_INIT -8      /* the job could not be joined */
#define WEFT_PANIC -9     /* a fault in weft itself */
#define WEFT_THREAD -10   /* called from another thread than weft_init, and from no upcall */
#define WEFT_UPCALL -11   /* not to be called from an upcall, as it waits */
#define WEFT_CANCELLED -12 /* a receive was taken back before it met its message */

#define WEFT_ANY -1          /* any rank */
#define WEFT_TREE_DEFAULT -1 /* as WEFT_TREE says */
#define WEFT_TREE_FLAT 0     /* the sender talks to every other member */
#define WEFT_TREE_CHAIN 1    /* each member talks to the next one */
#define WEFT_TREE_BINARY 2   /* each member talks to at most two others */
#define WEFT_TREE_BINOMIAL 3 /* the number of reached members doubles every step */
#define WEFT_BY_HOST 0       /* ranks forward */
#define WEFT_BY_AGENT 1      /* agents forward */

typedef struct weft_job weft_job;
typedef struct weft_packet weft_packet;
typedef struct weft_buffer weft_buffer;
typedef struct weft_group weft_group;

typedef struct weft_request weft_request;
typedef struct weft_message weft_message;
typedef struct weft_set weft_set;

/* How a message came: who sent it (-1: nothing came), its tag, its length as it was sent, and how
 * the operation ended: WEFT_OK, or WEFT_TOO_LONG (the first part is in the memory), WEFT_CANCELLED,
 * WEFT_PEER, WEFT_REFUSED. */
typedef struct weft_status {
    int source;
    uint32_t tag;
    size_t len;
    int code;
} weft_status;

/* An upcall: the job, the packet, and the context it was set with. */
typedef void (*weft_upcall)(weft_job *job, weft_packet *packet, void *context);

/* What a code means. */
const char *weft_strerror(int code);
/* More about the last call of this thread that failed, valid until the next one that fails; of a
 * rank that failed its number, host, link, interface and addresses, why, and what to do. */
const char *weft_last_error(void);

/* Joins the job this process was started in and stores its handle. */
int weft_init(weft_job **job);
/* Sends what is queued and leaves the job: its handle, kept packets and groups end with it. */
int weft_finish(weft_job *job);
/* The number of this process in the job, and how many there are. */
int weft_rank(const weft_job *job);
int weft_size(const weft_job *job);
/* Takes in what has arrived and calls upcalls; 1 if anything happened, else 0. */
int weft_poll(weft_job *job);
/* The same, but waits at most timeout_us microseconds for it, forever if that is negative. */
int weft_wait(weft_job *job, int64_t timeout_us);
/* For programs that wait for other descriptors too: one that is readable when there may be
 * something for weft_poll. It is the job's: do not read or close it. Before each sleep on it (poll,
 * epoll) weft_prepare_wait answers 1, or 0: do not sleep, there is something for weft_poll. After a
 * sleep comes weft_finish_wait, whatever ended it, and weft_poll until that answers 0. Under a
 * watchdog all three answer WEFT_REFUSED. examples/poll.c */
int weft_wait_fd(weft_job *job);
int weft_prepare_wait(weft_job *job);
int weft_finish_wait(weft_job *job);
/* Returns when every rank has called it. */
int weft_barrier(weft_job *job);
/* Chooses for one rank, and for no other; what was chosen before for the other parts stays.
 * "reliability" (none, gbn, selective, agent) and "mtu" (bytes): before anything is sent to it.
 * "transfer" (auto, copy, gather, rcpy): for what is sent to it and fetched from it from then on.
 * "fetch_add" (host, agent, kernel): who serves what this rank adds to counters there; for the own
 * rank, where counters made from then on lie. */
int weft_choose(weft_job *job, int rank, const char *name, const char *value);

/* Has an upcall called with each packet for a handler. Set handlers before others send: before
 * the first barrier. */
int weft_handle(weft_job *job, uint16_t number, weft_upcall upcall, void *context);
/* The rank that sent a packet (of a multicast, the root), its argument and its bytes. */
int weft_packet_source(const weft_packet *packet);
uint32_t weft_packet_argument(const weft_packet *packet);
const void *weft_packet_data(const weft_packet *packet, size_t *len);
/* Keeps the packet of a running upcall and stores its new handle; WEFT_TOO_MANY: copy it. */
int weft_packet_keep(weft_packet *packet, weft_packet **kept);
/* Releases a kept packet: its memory, and its sender's credit. */
int weft_packet_release(weft_packet *kept);

/* The longest packet to a rank, bytes. */
int weft_packet_max(const weft_job *job, int rank);
/* Sends a packet; the memory is free when this returns. The second never waits. */
int weft_send(weft_job *job, int rank, uint16_t handler, uint32_t argument, const void *data,
              size_t len);
int weft_try_send(weft_job *job, int rank, uint16_t handler, uint32_t argument, const void *data,
                  size_t len);
/* Sends a packet from where it lies: returns when it is on its way or queued. The memory stays as
 * it is until it is given back, in the order in which it became free: weft_returned stores its
 * address and answers 1, or 0 while nothing is, and takes in what has arrived. weft_flush waits for
 * all of it, which weft_returned then does not name. While a rank has not acknowledged what went
 * before, packets leave in trains, the last with the next call that makes progress. Behind
 * thousands of addresses that nobody asked for it answers WEFT_TOO_MANY. */
int weft_send_from(weft_job *job, int rank, uint16_t handler, uint32_t argument, const void *data,
                   size_t len);
int weft_returned(weft_job *job, const void **data);
int weft_flush(weft_job *job);
/* Has packets for a handler wait to be received, instead of an upcall; receives the next one, of
 * a rank or of WEFT_ANY: sender, argument and length are stored where that is not null. One that
 * is longer than the memory is lost: WEFT_TOO_LONG. Packets that nobody receives take memory
 * (WEFT_UNEXPECTED_MAX) and hide none that is received from another mailbox. */
int weft_mailbox(weft_job *job, uint16_t number);
int weft_receive(weft_job *job, int rank, uint16_t number, void *data, size_t len, int *source,
                 uint32_t *argument, size_t *got);
/* Memory for a packet: its handle, and where to write the bytes. Sending frees it, also when that
 * fails, except with WEFT_ARGUMENT and WEFT_THREAD. */
int weft_buffer_alloc(weft_job *job, size_t len, weft_buffer **buffer, void **data);
int weft_buffer_send(weft_job *job, int rank, uint16_t handler, uint32_t argument,
                     weft_buffer *buffer);
int weft_buffer_free(weft_buffer *buffer);

/* Makes multicast group id of some ranks, this one included, and stores its handle. All members
 * do so with the same id and ranks in the same order. Freeing the handle does not end the group. */
int weft_group_make(weft_job *job, uint16_t id, const int *ranks, size_t count,
                    weft_group **group);
int weft_group_free(weft_group *group);
int weft_group_packet_max(const weft_group *group);
/* Sends a packet to all other members over a tree. */
int weft_multicast(weft_group *group, int tree, uint16_t handler, uint32_t argument,
                   const void *data, size_t len);

/* Members that have had no room for longer than WEFT_WARN_AFTER_MS although packets wait for them
 * here: stores the first `count` of their ranks, and answers how many there are. Each member tells
 * of those that it sends to itself. */
int weft_group_slow(const weft_group *group, int *ranks, size_t count);
/* This rank waits for packets of a member: until as many weft_group_unexpect, or until the handle
 * is freed, the silence of that member and of those that may forward its packets to here is
 * noticed, and ends the group for all members. Without it a rank notices the silence of those only
 * that it has sent packets to. One that leaves in good order is not missed: what it sent may still
 * be on its way. WEFT_PEER: the group has failed. */
int weft_group_expect(weft_group *group, int rank);
int weft_group_unexpect(weft_group *group, int rank);
/* WEFT_PEER once a member failed, which weft_last_error names; else WEFT_OK. weft_wait returns when
 * that happens. examples/expect.c */
int weft_group_failed(const weft_group *group);
/* Who forwards what this rank multicasts over a tree now: with WEFT_MULTICAST=agent WEFT_BY_AGENT
 * once all members have joined at their agents, for which the first packet asks. */
int weft_forwarded_by(const weft_group *group, int tree);

/* Makes a counter here, reads it, adds to one at a rank; ends one made here, and with it what it
 * took of the agent's quota. */
int weft_counter(weft_job *job, uint64_t value, uint64_t *key);
int weft_counter_value(const weft_job *job, uint64_t key, uint64_t *value);
int weft_fetch_add(weft_job *job, int rank, uint64_t key, uint64_t n, uint64_t *old);
int weft_counter_end(weft_job *job, uint64_t key);

/* Lets ranks that are told the key copy to this memory at any time; ends that. */
int weft_export(weft_job *job, void *memory, size_t len, uint64_t *key);
int weft_unexport(weft_job *job, uint64_t key);
/* The same with zeroed memory of weft's, there until weft_unexport: ranks of this host map it (from
 * 64 KiB on), and copy to it without a system call. */
int weft_export_new(weft_job *job, size_t len, void **memory, uint64_t *key);
/* Copies bytes to memory that a rank exported: they are there when this returns. */
int weft_rcpy(weft_job *job, int rank, uint64_t key, uint64_t offset, const void *data,
              size_t len);
/* A counter of this rank by name, from the start of the job: "rcpy_hits" and "rcpy_misses" (pages
 * that were copied with a translation at hand, and without), "rcpy_redirects", "rcpy_evictions",
 * "rcpy_invalidations"; "multicasts", "agent_multicasts", "forwarded", "slow_members",
 * "kernel_adds" and the others of PacketStats in Rust. */
int weft_stat(const weft_job *job, const char *name, uint64_t *value);

/* Messages: of any length, with a tag of 32 bits, received in any order of tags. Two messages of
 * one rank that match the same receive arrive in the order in which they were sent. A receive takes
 * the messages of a rank, or of WEFT_ANY, whose tag is `tag` in all bits but those of `ignore`: 0
 * compares all, ~0 none. Rust programs of the same job exchange them by `Group::send` and `recv`.
 *
 * Sends a message: its memory is free when this returns. It may wait for the receive. */
int weft_msg_send(weft_job *job, int rank, uint32_t tag, const void *data, size_t len);
/* Receives a message into len bytes of memory; stores its status where that is not null. One that
 * is longer leaves its first part: WEFT_TOO_LONG. From WEFT_ANY it answers WEFT_PEER once for each
 * rank that fails meanwhile, and always when no other rank remains. */
int weft_msg_recv(weft_job *job, int rank, uint32_t tag, uint32_t ignore, void *data, size_t len,
                  weft_status *status);
/* The same without waiting: store a request, and the memory is the request's until that has ended.
 * weft_msg_issend ends only when the message has met its receive. */
int weft_msg_isend(weft_job *job, int rank, uint32_t tag, const void *data, size_t len,
                   weft_request **request);
int weft_msg_issend(weft_job *job, int rank, uint32_t tag, const void *data, size_t len,
                    weft_request **request);
int weft_msg_irecv(weft_job *job, int rank, uint32_t tag, uint32_t ignore, void *data, size_t len,
                   weft_request **request);
/* Looks for a message that has come and that no receive has taken: 1 and its status, or 0 after a
 * round of progress. WEFT_PEER: there is none, and the rank has failed. */
int weft_msg_probe(weft_job *job, int rank, uint32_t tag, uint32_t ignore, weft_status *status);
/* As weft_msg_probe, and takes the message: other receives and probes do not find it any more.
 * weft_msg_take and weft_msg_itake receive it, and end its handle. */
int weft_msg_claim(weft_job *job, int rank, uint32_t tag, uint32_t ignore, weft_message **message,
                   weft_status *status);
int weft_msg_take(weft_message *message, void *data, size_t len, weft_status *status);
int weft_msg_itake(weft_message *message, void *data, size_t len, weft_request **request);

/* Whether a request has ended: 1, its status is stored where that is not null, and the request
 * becomes null; or 0, after a round of progress. A null request has ended. A failed request
 * answers its code. */
int weft_test(weft_request **request, weft_status *status);
/* Waits until one of count requests has ended; stores its place and status, and the entry becomes
 * null. Null entries are left out; with no others it answers WEFT_ARGUMENT. */
int weft_wait_any(weft_request **requests, size_t count, size_t *at, weft_status *status);
/* Waits until all of count requests have ended; stores count statuses where that is not null, and
 * the entries become null. Answers WEFT_OK, or the code of the first that failed. */
int weft_wait_all(weft_request **requests, size_t count, weft_status *statuses);
/* Takes a receive back that has not met its message: it ends with WEFT_CANCELLED, or as if this had
 * not been called. A send goes on. The request is still to be waited for. */
int weft_cancel(weft_request *request);
/* A set of requests, for many of them: each costs the same, however many there are. A request that
 * is added, with what the program knows it by, is the set's. weft_set_wait waits until one has
 * ended, at most timeout_us microseconds, forever if that is negative: 1, its context and status;
 * or 0, when none did or none is in the set. weft_set_free takes receives back that have not met
 * their messages; sends go on from copies. */
int weft_set_make(weft_job *job, weft_set **set);
int weft_set_add(weft_set *set, weft_request *request, void *context);
int weft_set_wait(weft_set *set, int64_t timeout_us, void **context, weft_status *status);
int weft_set_free(weft_set *set);

#ifdef __cplusplus
}
#endif

#endif
