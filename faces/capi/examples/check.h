/* Ends the program when a call fails. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
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

#endif
