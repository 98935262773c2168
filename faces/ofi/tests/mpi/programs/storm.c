/* Receives from any source, cancelled receives, probes, messages that are too long, synchronous
 * sends, many communicators, and data with holes. Any number of ranks from two. A second
 * argument: no synchronous sends to receivers that may take the message by a matched probe. */
#include "check.h"

static int rank, size, synchronous = 1;

/* Every rank sends to rank 0, which receives from any source; each sender's messages come in
 * order. */
static void from_anyone(int each)
{
    if (rank != 0) {
        for (int i = 0; i < each; i++) {
            int value[2] = {rank, i};
            if (i % 3 == 0 && synchronous)
                MPI_Ssend(value, 2, MPI_INT, 0, 7, MPI_COMM_WORLD);
            else
                MPI_Send(value, 2, MPI_INT, 0, 7, MPI_COMM_WORLD);
        }
    } else {
        int *next = calloc((size_t)size, sizeof *next);
        for (int n = 0; n < each * (size - 1); n++) {
            int value[2];
            MPI_Status status;
            if (n % 4 == 0) {
                MPI_Message message;
                MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
                MPI_Mrecv(value, 2, MPI_INT, &message, &status);
            } else if (n % 4 == 1) {
                MPI_Probe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &status);
                int from = status.MPI_SOURCE;
                MPI_Recv(value, 2, MPI_INT, from, 7, MPI_COMM_WORLD, &status);
                CHECK(value[0] == from);
            } else {
                MPI_Recv(value, 2, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            }
            CHECK(status.MPI_SOURCE == value[0]);
            CHECK(value[1] == next[value[0]]++);
        }
        free(next);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Of many receives, half are cancelled while messages for the others come in. Each is either
   cancelled or has its message, and no message is lost. */
static void cancelled(int rounds)
{
    enum { N = 64 };
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int round = 0; round < rounds; round++) {
        MPI_Request in[N], out[N];
        int got[N], value[N];
        for (int i = 0; i < N; i++) {
            got[i] = -1;
            value[i] = rank * 100000 + round * 100 + i;
            MPI_Irecv(&got[i], 1, MPI_INT, i % 2 ? MPI_ANY_SOURCE : from, i, comm, &in[i]);
        }
        for (int i = 0; i < N; i++)
            MPI_Isend(&value[i], 1, MPI_INT, to, i, comm, &out[i]);
        for (int i = 0; i < N; i += 2)
            MPI_Cancel(&in[i]);
        for (int i = 0; i < N; i++) {
            MPI_Status status;
            int was = 0;
            MPI_Wait(&in[i], &status);
            MPI_Test_cancelled(&status, &was);
            CHECK(!was || i % 2 == 0);
            if (was) {
                CHECK(got[i] == -1);
                MPI_Recv(&got[i], 1, MPI_INT, from, i, comm, MPI_STATUS_IGNORE);
            }
            CHECK(got[i] == from * 100000 + round * 100 + i);
        }
        MPI_Waitall(N, out, MPI_STATUSES_IGNORE);
    }
    MPI_Comm_free(&comm);
}

/* A message that does not fit gives an error, and the next one arrives. */
static void too_long(size_t sent)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    unsigned char *buf = malloc(sent + 64);
    if (rank == 0) {
        fill(buf, sent, 9);
        MPI_Send(buf, (int)sent, MPI_BYTE, 1, 1, comm);
        MPI_Send(buf, 48, MPI_BYTE, 1, 1, comm);
    } else if (rank == 1) {
        memset(buf, 0xee, sent + 64);
        int class, code = MPI_Recv(buf, 32, MPI_BYTE, 0, 1, comm, MPI_STATUS_IGNORE);
        CHECK(code != MPI_SUCCESS);
        MPI_Error_class(code, &class);
        CHECK(class == MPI_ERR_TRUNCATE);
        for (size_t i = 32; i < 64; i++)
            CHECK(buf[i] == 0xee);
        MPI_Status status;
        CHECK(MPI_Recv(buf, 64, MPI_BYTE, 0, 1, comm, &status) == MPI_SUCCESS);
        int count;
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK(count == 48 && filled(buf, 48, 9));
    }
    free(buf);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_free(&comm);
}

/* A receive never gets a message of another communicator. */
static void communicators(int n)
{
    MPI_Comm *comm = malloc((size_t)n * sizeof *comm);
    MPI_Request *request = malloc((size_t)n * sizeof *request);
    int *got = malloc((size_t)n * sizeof *got);
    int *value = malloc((size_t)n * sizeof *value);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int i = 0; i < n; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]);
    for (int i = 0; i < n; i++) {
        value[i] = rank * n + i;
        MPI_Isend(&value[i], 1, MPI_INT, to, 0, comm[i], &request[i]);
    }
    for (int i = n - 1; i >= 0; i--) {
        MPI_Recv(&got[i], 1, MPI_INT, MPI_ANY_SOURCE, 0, comm[i], MPI_STATUS_IGNORE);
        CHECK(got[i] == from * n + i);
    }
    MPI_Waitall(n, request, MPI_STATUSES_IGNORE);
    for (int i = 0; i < n; i++)
        MPI_Comm_free(&comm[i]);
    free(comm);
    free(request);
    free(got);
    free(value);
}

/* Every third byte of a matrix goes to every second of another. */
static void holes(int count)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Datatype third, second;
    MPI_Type_vector(count, 1, 3, MPI_BYTE, &third);
    MPI_Type_vector(count, 1, 2, MPI_BYTE, &second);
    MPI_Type_commit(&third);
    MPI_Type_commit(&second);
    size_t sent = (size_t)count * 3, got = (size_t)count * 2;
    unsigned char *out = malloc(sent), *in = malloc(got);
    fill(out, sent, (unsigned)rank);
    memset(in, 0xaa, got);
    MPI_Sendrecv(out, 1, third, to, 3, in, 1, second, from, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (size_t i = 0; i < (size_t)count; i++) {
        CHECK(in[2 * i] == byte_at(3 * i, (unsigned)from));
        CHECK(in[2 * i + 1] == 0xaa);
    }
    free(out);
    free(in);
    MPI_Type_free(&third);
    MPI_Type_free(&second);
}

/* Few long pieces, which an MPI may pass to the provider as they are. */
static void long_pieces(void)
{
    enum { N = 5, LEN = 40000, STRIDE = 50000 };
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Datatype type;
    MPI_Type_vector(N, LEN, STRIDE, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    unsigned char *out = malloc(N * STRIDE), *in = malloc(N * STRIDE);
    fill(out, N * STRIDE, (unsigned)rank + 50);
    memset(in, 0, N * STRIDE);
    MPI_Request request[2];
    MPI_Irecv(in, 1, type, from, 4, MPI_COMM_WORLD, &request[0]);
    MPI_Issend(out, 1, type, to, 4, MPI_COMM_WORLD, &request[1]);
    MPI_Waitall(2, request, MPI_STATUSES_IGNORE);
    for (size_t i = 0; i < N * STRIDE; i++)
        if (i % STRIDE < LEN)
            CHECK(in[i] == byte_at(i, (unsigned)from + 50));
        else
            CHECK(in[i] == 0);
    free(out);
    free(in);
    MPI_Type_free(&type);
}

/* Two halves of the ranks exchange messages over an intercommunicator. */
static void across(void)
{
    MPI_Comm half, inter;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 11, &inter);
    int there, sum = 0, expected = 0, one = rank;
    MPI_Comm_remote_size(inter, &there);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter);
    for (int r = 1 - rank % 2; r < size; r += 2)
        expected += r;
    CHECK(sum == expected && there == (size + rank % 2) / 2);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    int much = argc > 1 ? atoi(argv[1]) : 1;
    synchronous = argc < 3;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size >= 2);
    from_anyone(200 * much);
    cancelled(10 * much);
    too_long(100);
    too_long(20000);
    too_long(3 << 20);
    communicators(60);
    holes(1000);
    holes(200000);
    long_pieces();
    across();
    passed("storm");
    MPI_Finalize();
    return 0;
}
