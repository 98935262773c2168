/* Used by all examples: a call that must succeed, memory, addresses. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vipl.h>

/* Ends the program unless a call returned this code. */
#define EXPECT(code, call) expect(call, code, #call, __FILE__, __LINE__)
#define CHECK(call) EXPECT(VIP_SUCCESS, call)

static inline void expect(VIP_RETURN got, VIP_RETURN code, const char *what, const char *file,
                          int line)
{
    if (got == code)
        return;
    fprintf(stderr, "%s:%d: %s: %d and not %d\n", file, line, what, (int)got, (int)code);
    exit(1);
}

/* An address with room for its bytes. */
typedef union {
    VIP_NET_ADDRESS of;
    unsigned char room[128];
} net_address;

/* Returns the address of a host and a discriminator. */
static inline net_address address_of(const VIP_UINT8 *host, VIP_UINT16 host_len,
                                     const char *discriminator)
{
    net_address at;
    memset(&at, 0, sizeof at);
    at.of.HostAddressLen = host_len;
    at.of.DiscriminatorLen = (VIP_UINT16)strlen(discriminator);
    memcpy(at.of.HostAddress, host, host_len);
    memcpy(at.of.HostAddress + host_len, discriminator, at.of.DiscriminatorLen);
    return at;
}

/* Returns memory that begins where a descriptor may. */
static inline void *aligned(size_t len)
{
    void *at = NULL;
    if (posix_memalign(&at, VIP_DESCRIPTOR_ALIGNMENT, len) != 0)
        exit(1);
    memset(at, 0, len);
    return at;
}

#endif
