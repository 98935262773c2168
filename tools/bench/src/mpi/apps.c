/* Three applications of paper 004 as plain MPI programs, for `weft bench apps`: the same input, the
 * same arithmetic and so the same result as `weft app asp|qr|sor`, bit for bit.
 *
 * `apps asp|qr|sor SIZE` prints "weft-app SECONDS CHECKSUM" at rank 0. Compile without contraction
 * of multiplications and additions (-ffp-contract=off), which would change bits. */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void *room(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (memory == NULL) {
        fprintf(stderr, "no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

/* The generator and the hash of apps/common. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t next(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return mix(*state);
}

static uint32_t below(uint64_t *state, uint32_t bound)
{
    return (uint32_t)(((next(state) >> 32) * bound) >> 32);
}

static uint64_t digest(uint64_t place, uint64_t value)
{
    return mix(mix(place + 1) ^ value);
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* The first of this rank's `count` things, which are divided evenly, and the number of them. */
static int part(int of, int count, int *first)
{
    const int each = count / ranks, longer = count % ranks;
    *first = of * each + (of < longer ? of : longer);
    return each + (of < longer);
}

static void report(double seconds, uint64_t mine)
{
    uint64_t all;
    MPI_Reduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("weft-app %.9f %016llx\n", seconds, (unsigned long long)all);
}

/* All shortest paths: rows are distributed, and each step broadcasts one. */
static void asp(int n)
{
    const uint32_t unreachable = UINT32_MAX;
    int first, owner = 0, start;
    const int rows = part(rank, n, &first);
    uint32_t *cells = room((size_t)rows * n, sizeof *cells), *pivot = room(n, sizeof *pivot);
    for (size_t i = 0; i < (size_t)rows * n; i++)
        cells[i] = unreachable;
    for (int i = 0; i < rows; i++)
        cells[(size_t)i * n + first + i] = 0;
    uint64_t random = 1;
    for (int from = 0; n > 1 && from < n; from++) {
        for (int arc = 0; arc < 16; arc++) {
            const uint32_t other = below(&random, n - 1), to = other + (other >= (uint32_t)from);
            const uint32_t weight = 1 + below(&random, 100);
            if (from < first || from >= first + rows)
                continue;
            uint32_t *cell = &cells[(size_t)(from - first) * n + to];
            *cell = weight < *cell ? weight : *cell;
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double begun = MPI_Wtime();
    for (int k = 0; k < n; k++) {
        while (part(owner, n, &start) + start <= k)
            owner++;
        if (owner == rank)
            memcpy(pivot, &cells[(size_t)(k - first) * n], n * sizeof *pivot);
        MPI_Bcast(pivot, n, MPI_UINT32_T, owner, MPI_COMM_WORLD);
        for (int i = 0; i < rows; i++) {
            uint32_t *row = &cells[(size_t)i * n];
            const uint32_t via = row[k], most = unreachable - via;
            if (most == 0)
                continue;
            for (int j = 0; j < n; j++) {
                const uint32_t beyond = via + (pivot[j] < most ? pivot[j] : most);
                row[j] = beyond < row[j] ? beyond : row[j];
            }
        }
    }
    const double seconds = MPI_Wtime() - begun;
    uint64_t sum = 0;
    for (size_t i = 0; i < (size_t)rows * n; i++)
        sum += digest((uint64_t)first * n + i, cells[i]);
    report(seconds, sum);
}

enum { LANES = 8 };

/* The scalar product, summed in eight lanes. */
static double dot(const double *a, const double *b, int count)
{
    double l[LANES] = {0};
    int i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int lane = 0; lane < LANES; lane++)
            l[lane] += a[i + lane] * b[i + lane];
    for (int lane = 0; i < count; i++, lane++)
        l[lane] += a[i] * b[i];
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

typedef struct {
    int taken;
    double tau, norm, *values;
} column;

/* The better candidate: the larger norm, of equal ones the lower column. */
static void better(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const double *a = in;
    double *b = inout;
    (void)type;
    for (int i = 0; i < *count; i++, a += 2, b += 2)
        if (a[0] > b[0] || (a[0] == b[0] && a[1] < b[1]))
            memcpy(b, a, 2 * sizeof *b);
}

/* Makes the reflection of a column: its factor and its vector from the step's row on. */
static void reflect(column *c, int step, int n, double *message)
{
    double *left = &c->values[step];
    const double rest = dot(left + 1, left + 1, n - step - 1);
    c->taken = step;
    if (rest > 0.0) {
        const double norm = sqrt(left[0] * left[0] + rest);
        const double diagonal = left[0] >= 0.0 ? -norm : norm, divisor = left[0] - diagonal;
        c->tau = (diagonal - left[0]) / diagonal;
        for (int i = 1; i < n - step; i++)
            left[i] /= divisor;
        left[0] = diagonal;
    }
    message[0] = c->tau;
    memcpy(&message[1], left, (n - step) * sizeof *left);
    message[1] = 1.0;
}

/* The columns of this rank: column j belongs to rank j modulo their number. */
static column *columns(int n, int count)
{
    column *mine = room(count, sizeof *mine);
    double largest = 0.0;
    for (int pass = 0; pass < 2; pass++) {
        for (int j = 0; j < n; j++) {
            uint64_t random = mix(mix(1) ^ ((uint64_t)j + 1));
            column *c = j % ranks == rank ? &mine[j / ranks] : NULL;
            if (pass == 0 && c != NULL)
                *c = (column){-1, 0.0, 0.0, room(n, sizeof(double))};
            for (int i = 0; i < n; i++) {
                const double value = 2.0 * ((double)(next(&random) >> 11) * 0x1p-53) - 1.0;
                largest = fabs(value) > largest ? fabs(value) : largest;
                if (pass == 1 && c != NULL)
                    c->values[i] = value / exp2(floor(log2(largest)));
            }
            if (pass == 1 && c != NULL)
                c->norm = dot(c->values, c->values, n);
        }
    }
    return mine;
}

/* QR factors with column pivoting: a reduction finds each pivot, its owner broadcasts it. */
static void qr(int n)
{
    const int count = n / ranks + (rank < n % ranks);
    column *mine = columns(n, count);
    double *message = room(n + 1, sizeof *message);
    MPI_Datatype pair;
    MPI_Op best;
    MPI_Type_contiguous(2, MPI_DOUBLE, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(better, 1, &best);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begun = MPI_Wtime();
    for (int step = 0; step < n; step++) {
        double candidate[2] = {-1.0, n}, pivot[2];
        int one = 1;
        for (int i = 0; i < count; i++) {
            double own[2] = {mine[i].norm, rank + (double)i * ranks};
            if (mine[i].taken < 0)
                better(own, candidate, &one, &pair);
        }
        MPI_Allreduce(candidate, pivot, 1, pair, best, MPI_COMM_WORLD);
        const int at = (int)pivot[1];
        if (at % ranks == rank)
            reflect(&mine[at / ranks], step, n, message);
        MPI_Bcast(message, n - step + 1, MPI_DOUBLE, at % ranks, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) {
            double *left = &mine[i].values[step], *v = &message[1];
            if (mine[i].taken >= 0)
                continue;
            if (message[0] != 0.0) {
                const double factor = message[0] * dot(left, v, n - step);
                for (int k = 0; k < n - step; k++)
                    left[k] -= factor * v[k];
            }
            mine[i].norm = dot(left + 1, left + 1, n - step - 1);
        }
    }
    const double seconds = MPI_Wtime() - begun;
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) {
        uint64_t place = (uint64_t)(rank + (uint64_t)i * ranks) * (n + 2);
        sum += digest(place, (uint64_t)mine[i].taken) + digest(place + 1, bits_of(mine[i].tau));
        for (int k = 0; k < n; k++)
            sum += digest(place + 2 + k, bits_of(mine[i].values[k]));
    }
    report(seconds, sum);
}

/* The rows of this rank with one more above and below. Cells of one colour in a row are contiguous:
 * colour c has columns 2k + p, with p = (row + c) modulo 2, at k. */
typedef struct {
    int first, rows, n, half;
    double *cells[2];
} block;

static double *row_of(block *b, int colour, int local)
{
    return &b->cells[colour][(size_t)local * b->half];
}

static double heat(int col, int n)
{
    const int folded = col < n - 1 - col ? col : n - 1 - col;
    return 100.0 * sin(3.14159265358979323846 * folded / (n - 1));
}

/* Relaxes one colour in a row; returns the largest change. */
static double relax(block *b, int colour, int local, double omega)
{
    const int odd = (b->first + local + 1 + colour) % 2;
    const int start = odd ? 0 : 1, count = odd ? (b->n - 1) / 2 : (b->n - 2) / 2;
    double *row = row_of(b, colour, local) + start;
    const double *up = row_of(b, !colour, local - 1) + start;
    const double *down = row_of(b, !colour, local + 1) + start;
    const double *left = row_of(b, !colour, local) + start + odd - 1, *right = left + 1;
    double most = 0.0;
    for (int k = 0; k < count; k++) {
        const double old = row[k];
        row[k] = old + omega * (((up[k] + down[k]) + (left[k] + right[k])) * 0.25 - old);
        const double change = fabs(row[k] - old);
        most = change > most ? change : most;
    }
    return most;
}

static void exchange(block *b, int colour, int above, int below)
{
    MPI_Sendrecv(row_of(b, colour, 1), b->half, MPI_DOUBLE, above, 0,
                 row_of(b, colour, b->rows + 1), b->half, MPI_DOUBLE, below, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(row_of(b, colour, b->rows), b->half, MPI_DOUBLE, below, 1, row_of(b, colour, 0),
                 b->half, MPI_DOUBLE, above, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* The hash of SOR, which adds its constant first. */
static uint64_t hash(uint64_t x)
{
    return mix(x + 0x9e3779b97f4a7c15u);
}

static uint64_t digest_sor(block *b)
{
    uint64_t sum = 0;
    for (int local = 0; local <= b->rows + 1; local++) {
        const int row = b->first + local - 1, edge = row == 0 || row == b->n - 1;
        if ((local == 0 || local == b->rows + 1) && !edge)
            continue;
        for (int col = 0; col < b->n; col++) {
            const double value = row_of(b, (row + col) % 2, local)[col / 2];
            sum += hash(bits_of(value) ^ hash(((uint64_t)row << 32) + col));
        }
    }
    return sum;
}

/* Successive over-relaxation, red and black, with the borders of rows between neighbours. */
static void sor(int n)
{
    block b = {.n = n, .half = (n + 1) / 2};
    b.rows = part(rank, n - 2, &b.first);
    b.first++;
    for (int colour = 0; colour < 2; colour++)
        b.cells[colour] = room((size_t)(b.rows + 2) * b.half, sizeof(double));
    for (int col = 0; b.first == 1 && col < n; col++)
        row_of(&b, col % 2, 0)[col / 2] = heat(col, n);
    const double rho = cos(3.14159265358979323846 / (n - 1));
    const double omega = 2.0 / (1.0 + sqrt(1.0 - rho * rho));
    const int above = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    const int below_me = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    double largest = 1.0;
    MPI_Barrier(MPI_COMM_WORLD);
    const double begun = MPI_Wtime();
    for (int turn = 0; turn < 10000 && largest >= 1e-3; turn++) {
        double change = 0.0;
        for (int colour = 0; colour < 2; colour++) {
            for (int local = 1; local <= b.rows; local++) {
                const double one = relax(&b, colour, local, omega);
                change = one > change ? one : change;
            }
            exchange(&b, colour, above, below_me);
        }
        MPI_Allreduce(&change, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    }
    const double seconds = MPI_Wtime() - begun;
    report(seconds, digest_sor(&b));
}

int main(int count, char **words)
{
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int size = count == 3 ? atoi(words[2]) : 0;
    /* Each rank has a row at least. */
    if (size < ranks + 2) {
        fprintf(stderr, "usage: apps asp|qr|sor SIZE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    if (strcmp(words[1], "asp") == 0)
        asp(size);
    else if (strcmp(words[1], "qr") == 0)
        qr(size);
    else
        sor(size);
    MPI_Finalize();
    return 0;
}
