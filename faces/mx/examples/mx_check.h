/* Used by all examples: a call that must succeed, and a wait. */
#ifndef MX_CHECK_H
#define MX_CHECK_H

#include <myriexpress.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program unless a call returned this code. */
#define EXPECT(code, call) expect((int)(call), (int)(code), #call, __FILE__, __LINE__)
#define CHECK(call) EXPECT(MX_SUCCESS, call)

static inline void expect(int got, int code, const char *what, const char *file, int line)
{
    if (got == code)
        return;
    fprintf(stderr, "%s:%d: %s: %d and not %d\n", file, line, what, got, code);
    exit(1);
}

/* Waits until a request has completed; ends the program if it failed. */
static inline mx_status_t wait_for(mx_endpoint_t endpoint, mx_request_t *request)
{
    mx_status_t status;
    uint32_t result = 0;
    CHECK(mx_wait(endpoint, request, MX_INFINITE, &status, &result));
    EXPECT(1, result);
    EXPECT(MX_STATUS_SUCCESS, status.code);
    return status;
}

#endif
