/* MPI without MPI_Init: sessions, two at a time, and again when all have ended. */
#include "check.h"

#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)
static MPI_Session begin(MPI_Comm *comm, const char *name)
{
    MPI_Session session;
    MPI_Group group;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, name, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, comm);
    MPI_Group_free(&group);
    return session;
}

static void talk(MPI_Comm comm)
{
    int rank, size, sum = 0, got = -1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 1, &got, 1, MPI_INT,
                 (rank + size - 1) % size, 1, comm, MPI_STATUS_IGNORE);
    if (sum != size * (size - 1) / 2 || got != (rank + size - 1) % size) {
        fprintf(stderr, "sum %d, got %d of %d ranks\n", sum, got, size);
        MPI_Abort(comm, 3);
    }
}

int main(int argc, char **argv)
{
    MPI_Comm first, second;
    int rank, rounds = argc > 1 ? atoi(argv[1]) : 1;
    for (int round = 0; round < rounds; round++) {
        MPI_Session one = begin(&first, "first"), two = begin(&second, "second");
        talk(first);
        talk(second);
        MPI_Comm_rank(first, &rank);
        MPI_Comm_free(&first);
        MPI_Session_finalize(&one);
        talk(second);
        MPI_Comm_free(&second);
        MPI_Session_finalize(&two);
    }
    printf("sessions %d: passed\n", rank);
    return 0;
}
#else
int main(void)
{
    printf("sessions: this MPI has none\n");
    return 0;
}
#endif
