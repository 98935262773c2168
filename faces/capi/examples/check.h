/* Ends the program when a call fails, and reads the clock. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <weft.h>

static inline int check(int code, const char *what)
{
    if (code < 0) {
        fprintf(stderr, "%s: %s: %s\n", what, weft_strerror(code), weft_last_error());
        exit(1);
    }
    return code;
}

#define CHECK(call) check((call), #call)

/* Returns the time in seconds. */
static inline double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

#endif
