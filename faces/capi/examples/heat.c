/* Heat in a rod, with the regions of crl.h: `weft run -n 4 heat [CELLS [STEPS]]`.
 *
 * The rod is cut into one block of cells for each node. A block has two regions, one for even steps
 * and one for odd ones: its node reads its block and the neighbours' of one step, and writes the
 * next. The result is the same on any number of nodes; compiled with -DCRL_NULL, without a library,
 * the program is the sequential one. */
#include <crl.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns the first cell of a block. */
static unsigned first_of(unsigned block, unsigned cells)
{
    return (unsigned)((uint64_t)block * cells / crl_num_nodes);
}

/* Returns the cell of the names of all blocks in which a block's region of a step is. */
static unsigned place(unsigned block, unsigned step)
{
    return 2 * block + step % 2;
}

/* Writes a block's next step: each cell takes a quarter of each neighbour. */
static void relax(const rid_t *names, unsigned step, unsigned cells)
{
    unsigned me = crl_self_addr, last = crl_num_nodes - 1;
    unsigned length = first_of(me + 1, cells) - first_of(me, cells);
    double *now = (double *)rgn_map(names[place(me, step)]);
    double *next = (double *)rgn_map(names[place(me, step + 1)]);
    double left = 0, right = 0;
    if (me > 0) {
        double *block = (double *)rgn_map(names[place(me - 1, step)]);
        rgn_start_read(block);
        left = block[rgn_size(block) / sizeof(double) - 1];
        rgn_end_read(block);
        rgn_unmap(block);
    }
    if (me < last) {
        double *block = (double *)rgn_map(names[place(me + 1, step)]);
        rgn_start_read(block);
        right = block[0];
        rgn_end_read(block);
        rgn_unmap(block);
    }
    rgn_start_read(now);
    rgn_start_write(next);
    for (unsigned i = 0; i < length; i++) {
        double before = i > 0 ? now[i - 1] : left;
        double after = i + 1 < length ? now[i + 1] : right;
        next[i] = before / 4 + now[i] / 2 + after / 4;
    }
    rgn_end_write(next);
    rgn_end_read(now);
    rgn_unmap(next);
    rgn_unmap(now);
}

int main(int argc, char **argv)
{
    unsigned cells = argc > 1 ? (unsigned)atoi(argv[1]) : 1000;
    unsigned steps = argc > 2 ? (unsigned)atoi(argv[2]) : 100;
    crl_init();
    if (cells < crl_num_nodes) {
        fprintf(stderr, "a node has at least one cell\n");
        return 1;
    }
    unsigned me = crl_self_addr, nodes = crl_num_nodes;
    unsigned length = first_of(me + 1, cells) - first_of(me, cells);

    /* Node 0 makes a region for the names of all blocks, and each node writes its own there. */
    rid_t table = 0;
    if (me == 0) {
        table = rgn_create(2 * nodes * (unsigned)sizeof(rid_t));
        rgn_bcast_send(sizeof table, &table);
    } else {
        rgn_bcast_recv(sizeof table, &table);
    }
    rid_t *names = (rid_t *)rgn_map(table);
    rgn_start_write(names);
    for (unsigned step = 0; step < 2; step++)
        names[place(me, step)] = rgn_create(length * (unsigned)sizeof(double));
    double *block = (double *)rgn_map(names[place(me, 0)]);
    rgn_end_write(names);

    /* The first half of the rod is hot. */
    rgn_start_write(block);
    for (unsigned i = 0; i < length; i++)
        block[i] = first_of(me, cells) + i < cells / 2 ? 100 : 0;
    rgn_end_write(block);
    rgn_unmap(block);
    rgn_barrier();

    rgn_start_read(names);
    for (unsigned step = 0; step < steps; step++) {
        relax(names, step, cells);
        rgn_barrier();
    }
    block = (double *)rgn_map(names[place(me, steps)]);
    rgn_start_read(block);
    double most = block[0], least = block[0];
    for (unsigned i = 0; i < length; i++) {
        most = block[i] > most ? block[i] : most;
        least = block[i] < least ? block[i] : least;
    }
    rgn_end_read(block);
    rgn_unmap(block);
    rgn_end_read(names);
    most = rgn_reduce_dmax(most);
    least = rgn_reduce_dmin(least);
    if (me == 0)
        printf("%u cells after %u steps: %.17g to %.17g\n", cells, steps, least, most);
    rgn_unmap(names);
    rgn_barrier();
    return 0;
}
