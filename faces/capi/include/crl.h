/* crl.h: coherent regions with the C interface of CRL 1.0 (the C Region Library of Johnson,
 * Kaashoek and Wallach, 1995), over weft.
 *
 * A region is memory of any size that the nodes of a job read and write in turn. A node maps it,
 * and puts each use between rgn_start_read and rgn_end_read, or rgn_start_write and rgn_end_write:
 * an operation. Several nodes read, or one writes; all operations are sequentially consistent.
 * Each node is one process with one thread, a rank that `weft run` or another launcher started.
 * Compile with `pkg-config --cflags --libs weft`.
 *
 * A node answers the requests of others while it is in a function of this file that waits, and at
 * the end of each operation. Where two nodes each hold what the other wants, they wait for ever; a
 * long wait is told (WEFT_WARN_AFTER_MS). A wrong call, or the failure of a node, ends the program
 * (abort) with the reason on the standard error. At exit a process leaves its job: all nodes call
 * rgn_barrier before, since the regions that a node has made end with it.
 *
 * With CRL_NULL defined, the functions are those of one node and need no library: rgn_create
 * allocates memory, and an operation does nothing. Times of a sequential program are taken so. */
#ifndef CRL_H
#define CRL_H

#include <stddef.h>
#include <stdint.h>

/* The name of a region, the same on all nodes; 0 is none. Programs send it, and store it in
 * regions. Errors and logs also print it as HOME:NUMBER: it is (HOME + 1) * 2^40 + NUMBER. */
typedef uint64_t rid_t;

#ifndef CRL_NULL

#ifdef __cplusplus
extern "C" {
#endif

/* The number of this node, from 0, and the number of nodes. crl_init sets them. */
extern unsigned crl_self_addr;
extern unsigned crl_num_nodes;

/* Joins the job: the first function that a program calls. */
void crl_init(void);

/* Does what crl_init does. The name of a group, which CRL over PVM took, is not used. */
void crl_init_group(const char *group);

/* Makes a region of so many bytes, which are 0; its home is this node. It has 268435392 bytes
 * (256 MiB less 64) at most, and one at least. */
rid_t rgn_create(unsigned size);

/* Deletes a region, from any node that has not mapped it: waits until no operation uses it, and
 * until all nodes that have mapped it know. From then on its name and its copies are refused. */
void rgn_delete(rid_t region);

/* Maps a region, and returns the address of this node's copy, which is aligned to 16 bytes.
 * Each map of a region has its rgn_unmap; in between the address is the same. */
void *rgn_map(rid_t region);

/* Ends one map of a region. The copy stays in a cache while there is room. */
void rgn_unmap(void *copy);

/* Returns the name of a mapped region. */
rid_t rgn_rid(void *copy);

/* Returns the size of a mapped region in bytes. */
unsigned rgn_size(void *copy);

/* Begins an operation that reads: waits until this node has a copy, and no node writes. Reads of
 * one region nest. */
void rgn_start_read(void *copy);

/* Ends an operation that reads. */
void rgn_end_read(void *copy);

/* Begins an operation that writes: waits until no other node has a copy. This node must not be
 * in another operation on the region. */
void rgn_start_write(void *copy);

/* Ends the operation that writes. */
void rgn_end_write(void *copy);

/* Gives this node's copy back to the home of the region, so that others find it there. The node
 * must not be in an operation on it. */
void rgn_flush(void *copy);

/* Returns when all nodes have called it. Functions of all nodes, which are this one and those
 * below, are called by all in the same order. Nodes that call different ones end with both
 * names. */
void rgn_barrier(void);

/* Sends bytes to all other nodes, each of which calls rgn_bcast_recv with the same length. */
void rgn_bcast_send(int length, void *data);

/* Receives the bytes of the one node that calls rgn_bcast_send. */
void rgn_bcast_recv(int length, void *data);

/* Return the sum, the least and the greatest of the numbers of all nodes, the same bits on all. */
double rgn_reduce_dadd(double mine);
double rgn_reduce_dmin(double mine);
double rgn_reduce_dmax(double mine);

#ifdef __cplusplus
}
#endif

#else /* CRL_NULL: one node without a library. */

#include <stdlib.h>

#define crl_self_addr 0u
#define crl_num_nodes 1u
#define crl_init() ((void)0)
#define crl_init_group(group) ((void)(group))

/* The bytes before a region, which hold its size. */
#define CRL_NULL_HEAD 16

static inline rid_t rgn_create(unsigned size)
{
    char *memory = (char *)calloc(1, CRL_NULL_HEAD + (size_t)size);
    if (!memory)
        abort();
    *(unsigned *)(void *)memory = size;
    return (rid_t)(uintptr_t)(memory + CRL_NULL_HEAD);
}

#define rgn_map(region) ((void *)(uintptr_t)(region))
#define rgn_delete(region) free((char *)rgn_map(region) - CRL_NULL_HEAD)
#define rgn_unmap(copy) ((void)(copy))
#define rgn_rid(copy) ((rid_t)(uintptr_t)(copy))
#define rgn_size(copy) (*(unsigned *)(void *)((char *)(copy) - CRL_NULL_HEAD))
#define rgn_start_read(copy) ((void)(copy))
#define rgn_end_read(copy) ((void)(copy))
#define rgn_start_write(copy) ((void)(copy))
#define rgn_end_write(copy) ((void)(copy))
#define rgn_flush(copy) ((void)(copy))
#define rgn_barrier() ((void)0)
#define rgn_bcast_send(length, data) ((void)(length), (void)(data))
#define rgn_bcast_recv(length, data) ((void)(length), (void)(data))
#define rgn_reduce_dadd(mine) (mine)
#define rgn_reduce_dmin(mine) (mine)
#define rgn_reduce_dmax(mine) (mine)

#endif

/* Sources for CRL over TCP and UNIX, which define TCPUNIX, give crl_init the name of a group. */
#ifdef TCPUNIX
#undef crl_init
#define crl_init(group) crl_init_group(group)
#endif

#endif
