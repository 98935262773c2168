/* Collective operations until one fails: the ranks print its error and abort. Prints when it has
 * begun. */
#include "round.h"

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (long i = 0;; i++) {
        collective_round(rank, i);
        if (i == 100 && rank == 0) {
            printf("endless: under way\n");
            fflush(stdout);
        }
    }
}
