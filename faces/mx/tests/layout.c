/* Sizes, offsets and values of the interface, as MX and Open-MX have them. */
#include <mx_extensions.h>
#include <mx_io.h>
#include <stdio.h>

static int wrong;

static void check(const char *what, long got, long wanted)
{
    if (got == wanted)
        return;
    fprintf(stderr, "%s: %ld and not %ld\n", what, got, wanted);
    wrong = 1;
}

#define SIZE(type, wanted) check("sizeof " #type, (long)sizeof(type), wanted)
#define AT(type, field, wanted) check(#type "." #field, (long)offsetof(type, field), wanted)
#define IS(name, wanted) check(#name, (long)(name), wanted)

static void layouts(void)
{
    SIZE(mx_endpoint_addr_t, 16);
    SIZE(mx_segment_t, 16);
    AT(mx_segment_t, segment_length, 8);
    SIZE(mx_status_t, 48);
    AT(mx_status_t, code, 0);
    AT(mx_status_t, source, 8);
    AT(mx_status_t, match_info, 24);
    AT(mx_status_t, msg_length, 32);
    AT(mx_status_t, xfer_length, 36);
    AT(mx_status_t, context, 40);
    SIZE(mx_param_t, 16);
    AT(mx_param_t, val, 8);
    SIZE(mx_request_t, 8);
    SIZE(mx_endpoint_t, 8);
    SIZE(mx_return_t, 4);
    SIZE(mx_status_code_t, 4);
    SIZE(mx_mapper_state_t, 36);
    AT(mx_mapper_state_t, mapper_mac, 4);
    AT(mx_mapper_state_t, map_version, 12);
}

static void values(void)
{
    IS(MX_API, 0x301);
    IS(MX_BAD_REQUEST, 13);
    IS(MX_BUSY, 20);
    IS(MX_TIMEOUT, 30);
    IS(MX_CONNECTION_FAILED, 33);
    IS(MX_NOT_SUPPORTED_WITH_CONTEXT_ID, 43);
    IS(MX_STATUS_TRUNCATED, 5);
    IS(MX_STATUS_BAD_KEY, 11);
    IS(MX_STATUS_NO_RESOURCES, 16);
    IS(MX_LINE_SPEED, 16);
    IS(MX_PARAM_CONTEXT_ID, 2);
    IS(MX_RECV_FINISHED, 1);
    IS(MX_INFINITE, 0);
    IS(MX_U32((uint64_t)7 << 32), 7);
    check("MX_MATCH_MASK_NONE", MX_MATCH_MASK_NONE == UINT64_MAX, 1);
}

int main(void)
{
    layouts();
    values();
    if (MX_ERRORS_ARE_FATAL == MX_ERRORS_RETURN || MX_ERRORS_RETURN == NULL)
        wrong = 1;
    return wrong;
}
