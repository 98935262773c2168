/* Processes started by others, and processes that find each other by a port. `spawn TIMES
 * [multiple | threads]`. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 2 };

/* Number of spawns of each thread, and the program. */
static int times;
static char *program;

static void talk(MPI_Comm inter, int parents)
{
    MPI_Comm all;
    int rank, size, sum = 0;
    MPI_Intercomm_merge(inter, !parents, &all);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    for (int i = 0; i < 20; i++) {
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all);
        CHECK(sum == size * (size - 1) / 2);
    }
    enum { LEN = 200000 };
    unsigned char *out = malloc(LEN), *in = malloc(LEN);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    fill(out, LEN, (unsigned)rank);
    MPI_Sendrecv(out, LEN, MPI_BYTE, to, 1, in, LEN, MPI_BYTE, from, 1, all, MPI_STATUS_IGNORE);
    CHECK(filled(in, LEN, (unsigned)from));
    free(out);
    free(in);
    MPI_Comm_free(&all);
}

static void talk_and_part(MPI_Comm *children)
{
    talk(*children, 1);
    MPI_Comm_disconnect(children);
}

/* The variables of `weft mpi` reach spawned ranks too. */
static void child(MPI_Comm *parent, int argc, char **argv)
{
    const char *provider = getenv("FI_PROVIDER");
    CHECK(provider && !strcmp(provider, "weft") && getenv("FI_PROVIDER_PATH"));
    if (argc > 1) {
        /* Each of several programs has its own arguments. */
        int number, *first;
        int found;
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &first, &found);
        number = atoi(argv[1]);
        CHECK(!found || *first == number);
    }
    talk(*parent, 0);
    MPI_Comm_disconnect(parent);
}

static void spawn_multiple(void)
{
    char *programs[2] = { program, program };
    char *one[2] = { "0", NULL }, *two[2] = { "1", NULL };
    char **words[2] = { one, two };
    int numbers[2] = { 1, 2 };
    MPI_Info infos[2] = { MPI_INFO_NULL, MPI_INFO_NULL };
    MPI_Comm children;
    int codes[3] = { -1, -1, -1 };
    MPI_Comm_spawn_multiple(2, programs, words, numbers, infos, 0, MPI_COMM_WORLD, &children,
                            codes);
    for (int i = 0; i < 3; i++)
        CHECK(codes[i] == MPI_SUCCESS);
    talk_and_part(&children);
}

static void *spawn_alone(void *unused)
{
    for (int i = 0; i < times; i++) {
        MPI_Comm children;
        MPI_Comm_spawn(program, MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &children,
                       MPI_ERRCODES_IGNORE);
        talk_and_part(&children);
    }
    return unused;
}

/* Several threads of one rank spawn at a time. */
static void spawn_by_threads(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, spawn_alone, NULL));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void spawn(void)
{
    MPI_Comm children;
    MPI_Comm_spawn(program, MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children,
                   MPI_ERRCODES_IGNORE);
    talk_and_part(&children);
}

/* The two halves of the ranks connect again by a port. */
static void meet(int rank)
{
    MPI_Comm half, inter;
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    if (rank == 0)
        MPI_Open_port(MPI_INFO_NULL, port);
    MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank % 2 == 0)
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter);
    else
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter);
    talk(inter, rank % 2 == 0);
    MPI_Comm_disconnect(&inter);
    MPI_Comm_free(&half);
    if (rank == 0)
        MPI_Close_port(port);
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    const char *how = argc > 2 ? argv[2] : "";
    int threads = !strcmp(how, "threads"), given, rank, size;
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &given);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        child(&parent, argc, argv);
        MPI_Finalize();
        return 0;
    }
    times = argc > 1 ? atoi(argv[1]) : 2;
    program = argv[0];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (threads) {
        CHECK(given == MPI_THREAD_MULTIPLE);
        spawn_by_threads();
    }
    for (int i = 0; i < times && !threads; i++) {
        if (!strcmp(how, "multiple"))
            spawn_multiple();
        else
            spawn();
    }
    if (size >= 2)
        meet(rank);
    passed("spawn");
    MPI_Finalize();
    return 0;
}
