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

/* Each list in the order of its values. */
static const long returns[] = {
    MX_SUCCESS, MX_BAD_BAD_BAD, MX_FAILURE, MX_ALREADY_INITIALIZED, MX_NOT_INITIALIZED,
    MX_NO_DEV, MX_NO_DRIVER, MX_NO_PERM, MX_BOARD_UNKNOWN, MX_BAD_ENDPOINT, MX_BAD_SEG_LIST,
    MX_BAD_SEG_MEM, MX_BAD_SEG_CNT, MX_BAD_REQUEST, MX_BAD_MATCH_MASK, MX_NO_RESOURCES,
    MX_BAD_ADDR_LIST, MX_BAD_ADDR_COUNT, MX_BAD_ROOT, MX_NOT_COMPLETED, MX_BUSY,
    MX_BAD_INFO_KEY, MX_BAD_INFO_VAL, MX_BAD_NIC, MX_BAD_PARAM_LIST, MX_BAD_PARAM_NAME,
    MX_BAD_PARAM_VAL, MX_BAD_HOSTNAME_ARGS, MX_HOST_NOT_FOUND, MX_REQUEST_PENDING, MX_TIMEOUT,
    MX_NO_MATCH, MX_BAD_ENDPOINT_ID, MX_CONNECTION_FAILED, MX_BAD_CONNECTION_KEY,
    MX_BAD_INFO_LENGTH, MX_NIC_NOT_FOUND, MX_BAD_KERNEL_VERSION, MX_BAD_LIB_VERSION,
    MX_NIC_DEAD, MX_CANCEL_NOT_SUPPORTED, MX_CLOSE_IN_HANDLER,
    MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK, MX_NOT_SUPPORTED_WITH_CONTEXT_ID,
};
static const long statuses[] = {
    MX_STATUS_SUCCESS, MX_STATUS_PENDING, MX_STATUS_BUFFERED, MX_STATUS_REJECTED,
    MX_STATUS_TIMEOUT, MX_STATUS_TRUNCATED, MX_STATUS_CANCELLED, MX_STATUS_ENDPOINT_UNKNOWN,
    MX_STATUS_ENDPOINT_CLOSED, MX_STATUS_ENDPOINT_UNREACHABLE, MX_STATUS_BAD_SESSION,
    MX_STATUS_BAD_KEY, MX_STATUS_BAD_ENDPOINT, MX_STATUS_BAD_RDMAWIN, MX_STATUS_ABORTED,
    MX_STATUS_EVENTQ_FULL, MX_STATUS_NO_RESOURCES,
};
/* From 1 on. */
static const long keys[] = {
    MX_NIC_COUNT, MX_NIC_IDS, MX_MAX_NATIVE_ENDPOINTS, MX_NATIVE_REQUESTS, MX_COUNTERS_COUNT,
    MX_COUNTERS_LABELS, MX_COUNTERS_VALUES, MX_PRODUCT_CODE, MX_PART_NUMBER, MX_SERIAL_NUMBER,
    MX_PORT_COUNT, MX_PIO_SEND_MAX, MX_COPY_SEND_MAX, MX_NUMA_NODE, MX_NET_TYPE, MX_LINE_SPEED,
};

#define LIST(list, first)                                             \
    for (long i = 0; i < (long)(sizeof list / sizeof *list); i++)     \
        check(#list, list[i], first + i)

static void values(void)
{
    LIST(returns, 0);
    LIST(statuses, 0);
    LIST(keys, 1);
    IS(MX_API, 0x301);
    IS(MX_PARAM_ERROR_HANDLER, 0);
    IS(MX_PARAM_UNEXP_QUEUE_MAX, 1);
    IS(MX_PARAM_CONTEXT_ID, 2);
    IS(MX_NET_MYRI, 0);
    IS(MX_NET_ETHER, 1);
    IS(MX_SPEED_2G, 0);
    IS(MX_SPEED_10G, 1);
    IS(MX_SPEED_OPEN_MX, 2);
    IS(MX_RECV_CONTINUE, 0);
    IS(MX_RECV_FINISHED, 1);
    IS(MX_INFINITE, 0);
    IS(MX_ANY_NIC, 0xffffffffL);
    IS(MX_ANY_ENDPOINT, 0xffffffffL);
    IS(MX_MAX_HOSTNAME_LEN, 80);
    IS(MX_MAX_STR_LEN, 128);
    IS(MX_MAX_SEGMENTS, 256);
    IS(MX_CONTEXT_ID_BITS_MAX, 16);
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
