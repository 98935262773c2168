/* Used by the tests: a line about progress, requests, and short cuts. */
#ifndef COMMON_H
#define COMMON_H

#include "mx_check.h"
#include <mx_extensions.h>
#include <mx_io.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRUE(condition) EXPECT(1, !!(condition))
#define ALL MX_MATCH_MASK_NONE
#define ANY_BITS 0

static inline void moment(void)
{
    const struct timespec time = {0, 2000000};
    nanosleep(&time, NULL);
}

/* Returns byte i of a message with a number. */
static inline char byte_of(uint32_t number, size_t i)
{
    return (char)(number * 31 + i * 7 + i / 251);
}

static inline void fill(char *at, size_t len, uint32_t number)
{
    for (size_t i = 0; i < len; i++)
        at[i] = byte_of(number, i);
}

static inline void check_bytes(const char *at, size_t len, uint32_t number)
{
    for (size_t i = 0; i < len; i++)
        if (at[i] != byte_of(number, i)) {
            fprintf(stderr, "byte %zu of message %u is wrong\n", i, (unsigned)number);
            exit(1);
        }
}

static inline mx_request_t isend(mx_endpoint_t ep, mx_endpoint_addr_t to, uint64_t match, void *at,
                                 uint32_t len, void *context)
{
    mx_segment_t segment = {at, len};
    mx_request_t request;
    CHECK(mx_isend(ep, &segment, 1, to, match, context, &request));
    return request;
}

static inline mx_request_t irecv(mx_endpoint_t ep, uint64_t match, uint64_t mask, void *at,
                                 uint32_t len, void *context)
{
    mx_segment_t segment = {at, len};
    mx_request_t request;
    CHECK(mx_irecv(ep, &segment, 1, match, mask, context, &request));
    return request;
}

/* Waits until a request has completed. */
static inline mx_status_t ended(mx_endpoint_t ep, mx_request_t *request)
{
    mx_status_t status;
    uint32_t result = 0;
    CHECK(mx_wait(ep, request, MX_INFINITE, &status, &result));
    EXPECT(1, result);
    TRUE(*request == NULL);
    return status;
}

static inline int same(mx_endpoint_addr_t a, mx_endpoint_addr_t b)
{
    return a.stuff[0] == b.stuff[0] && a.stuff[1] == b.stuff[1];
}

static inline mx_endpoint_t opened(uint32_t number, uint32_t key)
{
    mx_endpoint_t ep;
    CHECK(mx_open_endpoint(0, number, key, NULL, 0, &ep));
    return ep;
}

static inline mx_endpoint_addr_t own(mx_endpoint_t ep)
{
    mx_endpoint_addr_t addr;
    CHECK(mx_get_endpoint_addr(ep, &addr));
    return addr;
}

/* Returns the number of the server's network interface: of this host, or of TEST_SERVER. */
static inline uint64_t server_nic(void)
{
    char *name = getenv("TEST_SERVER"), here[] = "localhost";
    uint64_t id;
    CHECK(mx_hostname_to_nic_id(name != NULL ? name : here, &id));
    return id;
}

static inline uint64_t nic(void)
{
    uint64_t id;
    CHECK(mx_board_number_to_nic_id(0, &id));
    return id;
}

#endif
