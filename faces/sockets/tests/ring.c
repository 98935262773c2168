/* A program that has the kernel read a connection by io_uring, and the library that makes the ring
 * for it, as liburing does: both make these calls by instructions of their own. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

int io_uring_setup(unsigned entries, struct io_uring_params *params);

static long call(long number, long a, long b, long c, long d)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = 0;
    register long r9 __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#ifdef LIBRARY

int io_uring_setup(unsigned entries, struct io_uring_params *params)
{
    return (int)call(SYS_io_uring_setup, entries, (long)params, 0, 0);
}

#else

enum { LEN = 1000, MANY = 300, SKIPPED = 77 };

static void check(int is_good, const char *what)
{
    if (!is_good) {
        fprintf(stderr, "%s failed\n", what);
        exit(1);
    }
}

/* Sends bytes to an echo, and reads them by the C library or past it. */
static void exchange(int fd, int round, int is_past)
{
    static char sent[LEN], got[LEN];
    int n = 0;
    memset(sent, 'a' + round % 26, LEN);
    check(send(fd, sent, LEN, 0) == LEN, "send");
    while (n < LEN) {
        long more = is_past ? call(SYS_recvfrom, fd, (long)(got + n), LEN - n, 0)
                            : recv(fd, got + n, LEN - n, 0);
        check(more > 0, "recv");
        n += (int)more;
    }
    check(memcmp(sent, got, LEN) == 0, "comparison");
}

static int made(int fd)
{
    if (fd < 0) {
        exit(SKIPPED);
    }
    return fd;
}

static int connected(const char *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_port = htons((unsigned short)atoi(port));
    check(connect(fd, (struct sockaddr *)&at, sizeof at) == 0, "connect");
    return fd;
}

int main(int argc, char **argv)
{
    struct io_uring_params params = {0};
    check(argc > 2, "arguments");
    int is_own = strcmp(argv[2], "own") == 0, waiting = 0;
    for (int earlier = 3; earlier < argc; earlier++) {
        int fd = connected(argv[earlier]);
        for (int i = 0; i < MANY; i++) {
            exchange(fd, i, 0);
        }
    }
    int fd = connected(argv[1]);
    if (is_own) {
        int ring = made((int)call(SYS_io_uring_setup, 8, (long)&params, 0, 0));
        size_t len = params.sq_off.array + params.sq_entries * sizeof(unsigned);
        check(mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING) !=
                  MAP_FAILED,
              "mmap");
    }
    for (int i = 0; i < MANY; i++) {
        exchange(fd, i, 0);
    }
    if (!is_own) {
        static char last[LEN], got[LEN];
        memset(last, 'z', LEN);
        check(send(fd, last, LEN, 0) == LEN, "send");
        while (waiting < LEN) {
            check(ioctl(fd, FIONREAD, &waiting) == 0, "FIONREAD");
        }
        made(io_uring_setup(8, &params));
        /* The kernel has them now. */
        check(call(SYS_recvfrom, fd, (long)got, LEN, MSG_DONTWAIT | MSG_PEEK) == LEN, "peek");
        check(call(SYS_recvfrom, fd, (long)got, LEN, MSG_DONTWAIT) == LEN, "recv past the library");
        check(memcmp(last, got, LEN) == 0, "comparison");
    }
    for (int i = 0; i < MANY; i++) {
        exchange(fd, i, 1);
    }
    return 0;
}

#endif
