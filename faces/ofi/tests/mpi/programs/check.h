/* Shared by the test programs: a check that ends the job, and bytes that depend on their offset. */
#ifndef CHECK_H
#define CHECK_H
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                              \
    do {                                                                         \
        if (!(what)) {                                                           \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);   \
            MPI_Abort(MPI_COMM_WORLD, 3);                                        \
        }                                                                        \
    } while (0)

static inline unsigned char byte_at(size_t i, unsigned seed)
{
    return (unsigned char)((i * 2654435761u + seed * 40503u) >> 13);
}

static inline void fill(unsigned char *p, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        p[i] = byte_at(i, seed);
}

static inline int filled(const unsigned char *p, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++)
        if (p[i] != byte_at(i, seed))
            return 0;
    return 1;
}

/* Rank 0 prints this once, after everything else went well. */
static inline void passed(const char *name)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%s: passed\n", name);
        fflush(stdout);
    }
}
#endif
