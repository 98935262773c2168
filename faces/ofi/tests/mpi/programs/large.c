/* One message of more than 2 GiB between two ranks, of blocks of 1 MiB, there and back. */
#include "check.h"

int main(int argc, char **argv)
{
    const size_t block = 1 << 20;
    int rank, blocks = argc > 1 ? atoi(argv[1]) : 2049;
    size_t len = (size_t)blocks * block;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Datatype type;
    MPI_Type_contiguous((int)block, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    unsigned char *buf = malloc(len);
    CHECK(buf != NULL);
    if (rank == 0) {
        /* Words that depend on their offset: quicker to make than bytes. */
        for (size_t i = 0; i < len / 8; i++)
            ((unsigned long *)buf)[i] = i * 0x9e3779b97f4a7c15ul;
        MPI_Send(buf, blocks, type, 1, 0, MPI_COMM_WORLD);
        memset(buf, 0, len);
        MPI_Recv(buf, blocks, type, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == 1) {
        MPI_Status status;
        MPI_Count count;
        memset(buf, 0, len);
        MPI_Recv(buf, blocks, type, 0, 0, MPI_COMM_WORLD, &status);
        MPI_Get_elements_x(&status, MPI_BYTE, &count);
        CHECK((size_t)count == len);
    }
    for (size_t i = 0; i < len / 8; i++)
        CHECK(((unsigned long *)buf)[i] == i * 0x9e3779b97f4a7c15ul);
    if (rank == 1)
        MPI_Send(buf, blocks, type, 0, 1, MPI_COMM_WORLD);
    MPI_Type_free(&type);
    free(buf);
    passed("large");
    MPI_Finalize();
    return 0;
}
