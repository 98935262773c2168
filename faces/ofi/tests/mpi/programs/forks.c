/* Children of a process that uses MPI: system(), and fork() with work in the child. */
#include "check.h"
#include <sys/wait.h>
#include <unistd.h>

static int rank, size;

static void talk(unsigned seed)
{
    enum { LEN = 100000 };
    static unsigned char out[LEN], in[LEN];
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    fill(out, LEN, seed + (unsigned)rank);
    MPI_Sendrecv(out, LEN, MPI_BYTE, to, 1, in, LEN, MPI_BYTE, from, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    CHECK(filled(in, LEN, seed + (unsigned)from));
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (unsigned i = 0; i < 10; i++) {
        talk(i);
        CHECK(system("true") == 0);
        talk(i + 100);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            /* The heap works; the child uses nothing of MPI, and every second child runs the
             * handlers of exit(). */
            char *p = malloc(100000);
            memset(p, 1, 100000);
            free(p);
            if (i % 2)
                _exit(7);
            exit(7);
        }
        talk(i + 200);
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        talk(i + 300);
    }
    passed("forks");
    MPI_Finalize();
    return 0;
}
