/* The programs of `weft bench migrate`: ranks that send to rank 0 until a file exists, messages
   back and forth, and a process that only has memory. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 4096, BURST = 8 };
static char buffer[1 << 20];
/* Read by nobody, which no compiler may know: else it leaves the memory empty. */
static unsigned long *volatile kept;

/* Memory of which no two pages are equal. */
static void fill(long megabytes) {
    size_t words = (size_t)megabytes << 17;
    unsigned long *all = malloc(words * 8 + 8), value = 1;
    for (size_t i = 0; i < words; i++) {
        value = value * 6364136223846793005ul + 1442695040888963407ul;
        all[i] = value;
    }
    all[words] = 0;
    kept = all;
}

/* Peers send bursts, and wait for the answer to each: 1 ends them. */
static void fan(int rank, int size, const char *stop) {
    int left = size - 1, answer = 0;
    int *count = calloc(size, sizeof *count);
    if (rank == 0) printf("runs\n");
    fflush(stdout);
    while (rank == 0 && left > 0) {
        MPI_Status status;
        MPI_Recv(buffer, BYTES, MPI_CHAR, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status);
        if (++count[status.MPI_SOURCE] % BURST != 0) continue;
        answer = access(stop, F_OK) == 0;
        left -= answer;
        MPI_Send(&answer, 1, MPI_INT, status.MPI_SOURCE, 2, MPI_COMM_WORLD);
    }
    while (rank != 0 && !answer) {
        for (int i = 0; i < BURST; i++)
            MPI_Send(buffer, BYTES, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
        MPI_Recv(&answer, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        usleep(1000);
    }
}

static void back_and_forth(int rank, int bytes, int rounds) {
    double best = 1e9;
    for (int turn = 0; turn < 5; turn++) {
        double since = MPI_Wtime();
        for (int i = 0; i < rounds; i++) {
            if (rank == 0) MPI_Send(buffer, bytes, MPI_CHAR, 1, 3, MPI_COMM_WORLD);
            MPI_Recv(buffer, bytes, MPI_CHAR, 1 - rank, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1) MPI_Send(buffer, bytes, MPI_CHAR, 0, 3, MPI_COMM_WORLD);
        }
        double each = (MPI_Wtime() - since) / rounds / 2;
        if (each < best) best = each;
    }
    if (rank == 0) printf("us %.4f\n", best * 1e6);
}

int main(int argc, char **argv) {
    int rank, size;
    if (argc == 3 && strcmp(argv[1], "memory") == 0) {
        fill(atol(argv[2]));
        printf("runs\n");
        fflush(stdout);
        for (;;) pause();
    }
    if (argc != 4) return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strcmp(argv[1], "fan") == 0) {
        if (rank == 0) fill(atol(argv[3]));
        MPI_Barrier(MPI_COMM_WORLD);
        fan(rank, size, argv[2]);
    } else {
        back_and_forth(rank, atoi(argv[2]), atoi(argv[3]));
    }
    MPI_Finalize();
    return 0;
}
