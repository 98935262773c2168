/* Every function of crl.h, and wrong calls of each: `crl CASE`. Compiled as C and as C++. */
#define _DEFAULT_SOURCE /* sigaction */
#include <crl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "node %u, line %d: not %s\n", crl_self_addr, __LINE__, #condition);    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Sources for TCP and UNIX name a group. */
#ifdef TCPUNIX
#define INIT() crl_init("group")
#else
#define INIT() crl_init()
#endif

/* Gives all nodes the name that node `root` has. */
static rid_t shared(rid_t mine, unsigned root)
{
    if (crl_self_addr == root)
        rgn_bcast_send(sizeof mine, &mine);
    else
        rgn_bcast_recv(sizeof mine, &mine);
    return mine;
}

/* Names, sizes, maps that nest, and memory that starts as zeroes. */
static void maps(void)
{
    for (unsigned size = 1; size < 100000; size = size * 7 + 1) {
        rid_t mine = rgn_create(size);
        rid_t name = shared(mine, crl_num_nodes - 1);
        unsigned char *copy = (unsigned char *)rgn_map(name);
        EXPECT((uintptr_t)copy % 16 == 0 && name != 0 && mine != 0);
        EXPECT(rgn_size(copy) == size && rgn_rid(copy) == name);
        EXPECT(rgn_map(name) == copy);
        rgn_start_read(copy);
        rgn_start_read(copy);
        EXPECT(copy[0] == 0 && copy[size - 1] == 0);
        rgn_end_read(copy);
        rgn_end_read(copy);
        rgn_unmap(copy);
        EXPECT(rgn_size(copy) == size);
        rgn_unmap(copy);
        rgn_barrier();
        /* Half of them are deleted by a node that is not their home. */
        if (crl_self_addr == (size % 2 ? 0 : crl_num_nodes - 1))
            rgn_delete(name);
        rgn_barrier();
    }
}

/* Each node adds to one counter many times; each sees what all have written. */
static void counts(void)
{
    rid_t name = shared(crl_self_addr == 0 ? rgn_create(2 * sizeof(long)) : 0, 0);
    long *count = (long *)rgn_map(name);
    for (int i = 0; i < 100; i++) {
        rgn_start_write(count);
        count[0] += 1;
        count[1] -= 1;
        rgn_end_write(count);
        rgn_start_read(count);
        EXPECT(count[0] == -count[1] && count[0] > i);
        rgn_end_read(count);
        if (i % 10 == 0)
            rgn_flush(count);
    }
    rgn_barrier();
    rgn_start_read(count);
    EXPECT(count[0] == 100 * (long)crl_num_nodes);
    rgn_end_read(count);
    rgn_barrier();
    /* A node that reads in a loop sees a change. */
    if (crl_self_addr == crl_num_nodes - 1) {
        rgn_start_write(count);
        count[0] = -1;
        rgn_end_write(count);
    }
    for (long seen = 0; seen != -1;) {
        rgn_start_read(count);
        seen = count[0];
        rgn_end_read(count);
    }
    rgn_unmap(count);
    rgn_barrier();
}

/* A read inside another one does not wait for a node that wants to write. */
static void nests(void)
{
    long *copy = (long *)rgn_map(shared(crl_self_addr == 0 ? rgn_create(sizeof(long)) : 0, 0));
    long *own = (long *)rgn_map(rgn_create(sizeof(long)));
    unsigned reader = 1 % crl_num_nodes;
    if (crl_self_addr == reader)
        rgn_start_read(copy);
    rgn_barrier();
    if (crl_self_addr == 0 && reader != 0) {
        rgn_start_write(copy);
        rgn_end_write(copy);
    }
    if (crl_self_addr == reader) {
        /* The end of each operation handles messages: the writer's request has come. */
        for (int i = 0; i < 20000; i++) {
            rgn_start_read(own);
            rgn_end_read(own);
        }
        rgn_start_read(copy);
        rgn_end_read(copy);
        rgn_end_read(copy);
    }
    rgn_barrier();
    rgn_unmap(own);
    rgn_unmap(copy);
}

/* Functions of all nodes. */
static void together(void)
{
    double me = crl_self_addr, nodes = crl_num_nodes;
    EXPECT(rgn_reduce_dadd(me) == nodes * (nodes - 1) / 2);
    EXPECT(rgn_reduce_dmin(me - 1) == -1);
    EXPECT(rgn_reduce_dmax(me) == nodes - 1);
    for (int length = 0; length < 100000; length = length * 10 + 1) {
        char *data = (char *)malloc((size_t)length + 1);
        memset(data, crl_self_addr == 0 ? 7 : 0, (size_t)length + 1);
        if (crl_self_addr == 0)
            rgn_bcast_send(length, data);
        else
            rgn_bcast_recv(length, data);
        for (int i = 0; i < length; i++)
            EXPECT(data[i] == 7);
        free(data);
    }
}

#ifndef CRL_NULL
/* Makes the wrong call of a name, in a node that has one region mapped at `copy`. */
static void wrong(const char *call, rid_t name, char *copy)
{
    int number = 5;
    if (!strcmp(call, "create"))
        rgn_create(0);
    else if (!strcmp(call, "large"))
        rgn_create(300u << 20);
    else if (!strcmp(call, "huge"))
        rgn_create(0xffffffffu);
    else if (!strcmp(call, "map"))
        rgn_map(name + 99);
    else if (!strcmp(call, "no name"))
        rgn_map(0);
    else if (!strcmp(call, "delete"))
        rgn_delete(name);
    else if (!strcmp(call, "unmap"))
        rgn_unmap(copy + 1);
    else if (!strcmp(call, "unmap in use"))
        rgn_start_read(copy), rgn_unmap(copy);
    else if (!strcmp(call, "rid"))
        rgn_rid(&number);
    else if (!strcmp(call, "size"))
        rgn_size(NULL);
    else if (!strcmp(call, "read in write"))
        rgn_start_write(copy), rgn_start_read(copy);
    else if (!strcmp(call, "write in read"))
        rgn_start_read(copy), rgn_start_write(copy);
    else if (!strcmp(call, "end read"))
        rgn_start_write(copy), rgn_end_read(copy);
    else if (!strcmp(call, "end write"))
        rgn_end_write(copy);
    else if (!strcmp(call, "flush"))
        rgn_start_read(copy), rgn_flush(copy);
    else if (!strcmp(call, "init"))
        INIT();
    else if (!strcmp(call, "length"))
        rgn_bcast_send(-1, &number);
    else if (!strcmp(call, "null"))
        rgn_bcast_send(4, NULL);
    else if (!strcmp(call, "two send"))
        rgn_bcast_send(4, &number);
    else if (!strcmp(call, "nobody sends"))
        rgn_bcast_recv(4, &number);
    else if (!strcmp(call, "uneven"))
        crl_self_addr ? rgn_bcast_recv(3, &number) : rgn_bcast_send(4, &number);
    else if (!strcmp(call, "long"))
        rgn_bcast_send(300 << 20, &number);
    else if (!strcmp(call, "min and add"))
        crl_self_addr ? rgn_reduce_dmin(1) : rgn_reduce_dadd(1);
    else if (!strcmp(call, "barrier and max") && crl_self_addr)
        rgn_reduce_dmax(1);
    /* A node that has sent does not end the job before the others have said what is wrong. */
    rgn_barrier();
    fprintf(stderr, "node %u went on after %s\n", crl_self_addr, call);
    exit(3);
}

static void *reads(void *copy)
{
    rgn_start_read(copy);
    return NULL;
}

static void late(void)
{
    rgn_barrier();
}

static void calls(int number)
{
    (void)number;
    rgn_barrier();
}

static void leaves(int number)
{
    (void)number;
    exit(3);
}

/* Has signals come while node 0 waits. */
static void signalled(void (*handler)(int))
{
    struct itimerval often = {{0, 1000}, {0, 1000}};
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGALRM, &action, NULL);
    if (crl_self_addr != 0)
        pause();
    setitimer(ITIMER_REAL, &often, NULL);
    for (;;)
        rgn_barrier();
}

/* Makes a wrong call as somebody may who uses the library for the first time. */
static void first_try(const char *call, rid_t name, char *copy)
{
    pthread_t thread;
    if (!strcmp(call, "unmap twice"))
        rgn_unmap(copy), rgn_unmap(copy);
    else if (!strcmp(call, "no start"))
        rgn_end_read(copy);
    else if (!strcmp(call, "write twice"))
        rgn_start_write(copy), rgn_start_write(copy);
    else if (!strcmp(call, "end twice"))
        rgn_start_write(copy), rgn_end_write(copy), rgn_end_write(copy);
    else if (!strcmp(call, "read unmapped"))
        rgn_unmap(copy), rgn_start_read(copy);
    else if (!strcmp(call, "any number"))
        rgn_map(12345);
    else if (!strcmp(call, "an address"))
        rgn_map((rid_t)(uintptr_t)copy);
    else if (!strcmp(call, "delete twice"))
        rgn_unmap(copy), rgn_delete(name), rgn_delete(name);
    else if (!strcmp(call, "map deleted"))
        rgn_unmap(copy), rgn_delete(name), rgn_map(name);
    else if (!strcmp(call, "thread") && pthread_create(&thread, NULL, reads, copy) == 0)
        pthread_join(thread, NULL);
    else if (!strcmp(call, "at exit"))
        exit(0);
    else if (!strcmp(call, "handler"))
        signalled(calls);
    else if (!strcmp(call, "handler exits"))
        signalled(leaves);
    else if (!strcmp(call, "child exits") && fork() == 0)
        exit(0);
}

/* Node 0 deletes a region that node 1 has mapped, or has in its cache. */
static void deleted(const char *call, rid_t name, char *copy)
{
    rgn_start_read(copy);
    rgn_end_read(copy);
    rgn_barrier();
    if (crl_self_addr == 0 || !strcmp(call, "deleted in cache"))
        rgn_unmap(copy);
    rgn_barrier();
    if (crl_self_addr == 0)
        rgn_delete(name);
    rgn_barrier();
    if (crl_self_addr == 1 && !strcmp(call, "deleted and read"))
        rgn_start_read(copy);
    if (crl_self_addr == 1)
        rgn_map(name);
}

/* The home of a region ends in an operation. */
static void ends(char *copy)
{
    if (crl_self_addr == 0)
        rgn_start_write(copy);
    rgn_barrier();
    if (crl_self_addr == 0)
        exit(0);
    rgn_start_read(copy);
}

/* The home of a region ends: others are told. */
static void dies(void)
{
    void *copy = rgn_map(shared(rgn_create(8), 0));
    rgn_barrier();
    if (crl_self_addr == 0)
        _exit(0); /* A rank that is killed ends the others before they say so. */
    rgn_start_read(copy);
}
#endif

int main(int argc, char **argv)
{
    const char *call = argc > 1 ? argv[1] : "all";
#ifndef CRL_NULL
    if (!strcmp(call, "before"))
        rgn_barrier();
    if (!strcmp(call, "at exit"))
        atexit(late); /* late runs after the handler of crl_init. */
#endif
    INIT();
    if (!strcmp(call, "all")) {
        maps();
        counts();
        nests();
        together();
        rgn_barrier();
        if (crl_self_addr == 0)
            printf("%u nodes: all is right\n", crl_num_nodes);
        return 0;
    }
#ifndef CRL_NULL
    if (!strcmp(call, "dies"))
        dies();
    if (!strcmp(call, "fork") && fork() == 0)
        rgn_create(1);
    if (!strcmp(call, "fork")) {
        int status = 0;
        wait(&status);
        EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        rgn_barrier();
        exit(4);
    }
    rid_t name = shared(rgn_create(8), 0);
    char *copy = (char *)rgn_map(name);
    rgn_barrier();
    first_try(call, name, copy);
    if (!strncmp(call, "deleted", 7))
        deleted(call, name, copy);
    if (!strcmp(call, "ends"))
        ends(copy);
    wrong(call, name, copy);
#endif
    return 0;
}
