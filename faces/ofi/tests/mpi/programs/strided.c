/* Messages and remote memory that are written to memory with gaps: `strided HOW`. Not every MPI
 * does all of it over libfabric, so the program reports success or failure and does not abort. */
#include "check.h"

enum { MOST = 20000 };

static const char *how;
static int sent[MOST], places[2 * MOST];

static int is(const char *word)
{
    return !strcmp(how, word);
}

/* True if the elements have the numbers, and the gaps are unchanged. */
static int landed(int count)
{
    for (int i = 0; i < count; i++)
        if (places[2 * i] != i + 1 || places[2 * i + 1] != -1)
            return 0;
    return 1;
}

static void unpack(MPI_Message *message, int count, MPI_Datatype spread)
{
    MPI_Status status;
    int room, length, at = 0;
    MPI_Pack_size(count, MPI_INT, MPI_COMM_WORLD, &room);
    char *packed = malloc((size_t)room);
    MPI_Mrecv(packed, room, MPI_PACKED, message, &status);
    MPI_Get_count(&status, MPI_PACKED, &length);
    MPI_Unpack(packed, length, &at, places, 1, spread, MPI_COMM_WORLD);
    free(packed);
}

static void receive(int count, MPI_Datatype spread)
{
    MPI_Message message;
    MPI_Status status;
    if (is("recv")) {
        MPI_Probe(0, count, MPI_COMM_WORLD, &status);
        MPI_Recv(places, 1, spread, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
        return;
    }
    MPI_Mprobe(0, count, MPI_COMM_WORLD, &message, &status);
    if (is("mrecv")) {
        MPI_Mrecv(places, 1, spread, &message, &status);
    } else if (is("imrecv")) {
        MPI_Request request;
        MPI_Imrecv(places, 1, spread, &message, &request);
        MPI_Wait(&request, &status);
    } else {
        CHECK(is("unpack"));
        unpack(&message, count, spread);
    }
}

static void get(MPI_Win window, int count, MPI_Datatype spread)
{
    if (is("get")) {
        MPI_Get(places, 1, spread, 0, 0, count, MPI_INT, window);
        MPI_Win_flush(0, window);
    } else {
        MPI_Request request;
        CHECK(is("rget") || is("flush"));
        MPI_Rget(places, 1, spread, 0, 0, count, MPI_INT, window, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (is("flush"))
            MPI_Win_flush(0, window);
    }
}

int main(int argc, char **argv)
{
    static const int counts[] = { 2, 100, 3000, MOST };
    int rank, well = 1, *memory;
    MPI_Win window;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    CHECK(argc > 1);
    how = argv[1];
    int remote = is("get") || is("rget") || is("flush");
    MPI_Win_allocate(sizeof(sent), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    for (int i = 0; i < MOST; i++)
        memory[i] = sent[i] = i + 1;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 4; i++) {
        MPI_Datatype spread;
        MPI_Type_vector(counts[i], 1, 2, MPI_INT, &spread);
        MPI_Type_commit(&spread);
        memset(places, 0xff, sizeof(places));
        if (rank == 0 && !remote)
            MPI_Send(sent, counts[i], MPI_INT, 1, counts[i], MPI_COMM_WORLD);
        if (rank == 1 && !remote) {
            receive(counts[i], spread);
            well &= landed(counts[i]);
        }
        if (rank == 1 && remote) {
            MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
            get(window, counts[i], spread);
            well &= landed(counts[i]);
            MPI_Win_unlock(0, window);
        }
        MPI_Type_free(&spread);
    }
    MPI_Win_free(&window);
    MPI_Bcast(&well, 1, MPI_INT, 1, MPI_COMM_WORLD);
    if (rank == 0)
        printf("strided: %s\n", well ? "right" : "wrong");
    MPI_Finalize();
    return 0;
}
