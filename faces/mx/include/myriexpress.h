/*
 * myriexpress.h: the interface of Myrinet Express (MX) over weft. Messages have 64 match bits; an
 * endpoint is a number on a host.
 *
 * Compile with `pkg-config --cflags --libs myriexpress`; the guide is docs/guide/mx.md. Every
 * function may be called by several threads at once. A call in a signal handler that has
 * interrupted another call, and a call in a child made by fork, are refused with MX_BUSY. Handles
 * are numbers: one that is none, or whose object is gone, is refused.
 *
 * A function that fails calls a handler of errors, which by default ends the program. With
 * MX_ERRORS_RETURN the function returns the code.
 */
#ifndef MYRIEXPRESS_H
#define MYRIEXPRESS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MX_API 0x301
#define MX_HAS_ICONNECT_V2 1
#define MX_HAS_NET_TYPE 1

/* Wild cards of a board and of a number. */
#define MX_ANY_NIC 0xffffffffU
#define MX_ANY_ENDPOINT 0xffffffffU
/* All bits must match. */
#define MX_MATCH_MASK_NONE (~(uint64_t)0)
/* No end of a time in milliseconds. */
#define MX_INFINITE 0
/* Room for the name of a host, and of a counter. */
#define MX_MAX_HOSTNAME_LEN 80
#define MX_MAX_STR_LEN 128
#define MX_MAX_SEGMENTS 256
#define MX_CONTEXT_ID_BITS_MAX 16
#define MX_SIZEOF_ADDR 16
/* The halves of a number of 64 bits, for printing. */
#define MX_U32(x) ((uint32_t)((uint64_t)(x) >> 32))
#define MX_L32(x) ((uint32_t)(x))

/* Handles. They point to nothing. */
typedef struct mx_endpoint *mx_endpoint_t;
typedef struct mx_request *mx_request_t;

/* The address of an endpoint, as one endpoint of this process knows it. */
typedef struct {
    uint64_t stuff[MX_SIZEOF_ADDR / 8];
} mx_endpoint_addr_t;

/* Memory of a message: a message may have several parts. */
typedef void *mx_segment_ptr_t;
typedef struct {
    mx_segment_ptr_t segment_ptr;
    uint32_t segment_length;
} mx_segment_t;

/* The result of a function. */
typedef enum mx_return_code {
    MX_SUCCESS = 0, /* success */
    MX_BAD_BAD_BAD = 1, /* a fault in the library */
    MX_FAILURE = 2, /* failure */
    MX_ALREADY_INITIALIZED = 3, /* the library is initialized already */
    MX_NOT_INITIALIZED = 4, /* the library is not initialized */
    MX_NO_DEV = 5, /* no link can be opened */
    MX_NO_DRIVER = 6, /* no driver */
    MX_NO_PERM = 7, /* no permission */
    MX_BOARD_UNKNOWN = 8, /* there is no such board */
    MX_BAD_ENDPOINT = 9, /* the endpoint is not open, or the address is none of its own */
    MX_BAD_SEG_LIST = 10, /* the list of segments is null or misaligned */
    MX_BAD_SEG_MEM = 11, /* the memory of a segment is null */
    MX_BAD_SEG_CNT = 12, /* too many segments, or too many bytes */
    MX_BAD_REQUEST = 13, /* the request is none of this endpoint, or not of the right kind */
    MX_BAD_MATCH_MASK = 14, /* match bits outside of the mask */
    MX_NO_RESOURCES = 15, /* no resources are left */
    MX_BAD_ADDR_LIST = 16, /* the list of addresses is null */
    MX_BAD_ADDR_COUNT = 17, /* there is no address */
    MX_BAD_ROOT = 18, /* there is no such root */
    MX_NOT_COMPLETED = 19, /* an operation has not completed */
    MX_BUSY = 20, /* the number of the endpoint is taken */
    MX_BAD_INFO_KEY = 21, /* there is no such key */
    MX_BAD_INFO_VAL = 22, /* the place for the value is null or misaligned */
    MX_BAD_NIC = 23, /* the number of a network interface is wrong */
    MX_BAD_PARAM_LIST = 24, /* the list of parameters is null */
    MX_BAD_PARAM_NAME = 25, /* there is no such parameter */
    MX_BAD_PARAM_VAL = 26, /* the value of a parameter is wrong */
    MX_BAD_HOSTNAME_ARGS = 27, /* the name of the host, or the place for it, is null or too long */
    MX_HOST_NOT_FOUND = 28, /* there is no such host */
    MX_REQUEST_PENDING = 29, /* the request is pending */
    MX_TIMEOUT = 30, /* the time is over */
    MX_NO_MATCH = 31, /* no message matches */
    MX_BAD_ENDPOINT_ID = 32, /* endpoints have no such number */
    MX_CONNECTION_FAILED = 33, /* no endpoint is open there, or no way leads to it */
    MX_BAD_CONNECTION_KEY = 34, /* the endpoint has another key */
    MX_BAD_INFO_LENGTH = 35, /* the place for the value is too short */
    MX_NIC_NOT_FOUND = 36, /* there is no such network interface */
    MX_BAD_KERNEL_VERSION = 37, /* the driver has another version */
    MX_BAD_LIB_VERSION = 38, /* the program was built for another version of the interface */
    MX_NIC_DEAD = 39, /* the network interface is dead */
    MX_CANCEL_NOT_SUPPORTED = 40, /* a request of this kind cannot be cancelled */
    MX_CLOSE_IN_HANDLER = 41, /* a handler cannot close the endpoint that called it */
    MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK = 42, /* the mask does not cover the bits of the context */
    MX_NOT_SUPPORTED_WITH_CONTEXT_ID = 43 /* not supported with contexts */
} mx_return_t;

/* The result of a request. */
typedef enum mx_status_code {
    MX_STATUS_SUCCESS = 0, /* success */
    MX_STATUS_PENDING = 1, /* pending */
    MX_STATUS_BUFFERED = 2, /* buffered */
    MX_STATUS_REJECTED = 3, /* rejected */
    MX_STATUS_TIMEOUT = 4, /* the time of the request is over */
    MX_STATUS_TRUNCATED = 5, /* the message was longer than the memory of the receive */
    MX_STATUS_CANCELLED = 6, /* cancelled */
    MX_STATUS_ENDPOINT_UNKNOWN = 7, /* there is no such network interface */
    MX_STATUS_ENDPOINT_CLOSED = 8, /* the endpoint was closed, or is not open */
    MX_STATUS_ENDPOINT_UNREACHABLE = 9, /* the endpoint cannot be reached */
    MX_STATUS_BAD_SESSION = 10, /* the address is of a connection that has ended */
    MX_STATUS_BAD_KEY = 11, /* the endpoint has another key */
    MX_STATUS_BAD_ENDPOINT = 12, /* endpoints have no such number */
    MX_STATUS_BAD_RDMAWIN = 13, /* there is no such window */
    MX_STATUS_ABORTED = 14, /* aborted */
    MX_STATUS_EVENTQ_FULL = 15, /* the queue of events is full */
    MX_STATUS_NO_RESOURCES = 16 /* no resources are left */
} mx_status_code_t;

/*
 * The end of a request: source is the sender, or the endpoint that a send went to; msg_length the
 * length that was sent, xfer_length the bytes that were moved.
 */
typedef struct mx_status {
    mx_status_code_t code;
    mx_endpoint_addr_t source;
    uint64_t match_info;
    uint32_t msg_length;
    uint32_t xfer_length;
    void *context;
} mx_status_t;

/* A handler of errors: it gets a text and the code, and returns that of the function. */
typedef mx_return_t (*mx_error_handler_t)(char *text, mx_return_t code);

/*
 * Parameters of an endpoint. Contexts: so many bits of the match bits, from a shift on, name the
 * context of a message, and masks must cover them. The room for unexpected messages is a setting of
 * weft, WEFT_UNEXPECTED_MAX; the parameter changes nothing.
 */
typedef enum mx_param_key {
    MX_PARAM_ERROR_HANDLER = 0,
    MX_PARAM_UNEXP_QUEUE_MAX = 1,
    MX_PARAM_CONTEXT_ID = 2
} mx_param_key_t;
typedef struct {
    mx_param_key_t key;
    union {
        mx_error_handler_t error_handler;
        uint32_t unexp_queue_max;
        struct {
            uint8_t bits;
            uint8_t shift;
        } context_id;
    } val;
} mx_param_t;

/* Keys of mx_get_info. */
typedef enum mx_get_info_key {
    MX_NIC_COUNT = 1,
    MX_NIC_IDS = 2,
    MX_MAX_NATIVE_ENDPOINTS = 3,
    MX_NATIVE_REQUESTS = 4,
    MX_COUNTERS_COUNT = 5,
    MX_COUNTERS_LABELS = 6,
    MX_COUNTERS_VALUES = 7,
    MX_PRODUCT_CODE = 8,
    MX_PART_NUMBER = 9,
    MX_SERIAL_NUMBER = 10,
    MX_PORT_COUNT = 11,
    MX_PIO_SEND_MAX = 12,
    MX_COPY_SEND_MAX = 13,
    MX_NUMA_NODE = 14,
    MX_NET_TYPE = 15,
    MX_LINE_SPEED = 16
} mx_get_info_key_t;
enum mx_net_type { MX_NET_MYRI = 0, MX_NET_ETHER = 1 };
typedef enum mx_line_speed {
    MX_SPEED_2G = 0,
    MX_SPEED_10G = 1,
    MX_SPEED_OPEN_MX = 2
} mx_line_speed_t;

/* The decision of a handler of unexpected messages. */
typedef enum mx_unexp_handler_action {
    MX_RECV_CONTINUE = 0,
    MX_RECV_FINISHED = 1
} mx_unexp_handler_action_t;

/*
 * A handler of unexpected messages. The data are NULL unless the message is short, at most 4096
 * bytes, and its sender does not wait for the match.
 */
typedef mx_unexp_handler_action_t (*mx_unexp_handler_t)(void *context, mx_endpoint_addr_t source,
                                                        uint64_t match_info, uint32_t length,
                                                        void *data_if_available);
typedef void (*mx_matching_callback_t)(void *context, uint64_t match_info, int length);

/* The predefined handlers of errors: one that ends the program, and one that returns the code. */
extern const mx_error_handler_t MX_ERRORS_ARE_FATAL;
extern const mx_error_handler_t MX_ERRORS_RETURN;

/*
 * Initializes the library. MX_BAD_LIB_VERSION: the program was compiled for another version;
 * MX_ALREADY_INITIALIZED.
 */
mx_return_t mx__init_api(int api);
#define mx_init() mx__init_api(MX_API)

/* Ends the use of the library, and closes its endpoints. */
mx_return_t mx_finalize(void);

/*
 * Sets the handler of errors, and returns the one before. It may be called before mx_init. With
 * NULL the default is set again: MX_ERRORS_ARE_FATAL, unless the environment has
 * MX_ERRORS_ARE_FATAL=0.
 */
mx_error_handler_t mx_set_error_handler(mx_error_handler_t handler);

/* Returns the text of a code. */
const char *mx_strerror(mx_return_t code);
const char *mx_strstatus(mx_status_code_t code);

/*
 * Opens an endpoint of a board under a number below 256, or the first free one. Endpoints connect
 * to it with the key.
 *
 * MX_BOARD_UNKNOWN; MX_BAD_ENDPOINT_ID; MX_BUSY: the number is taken; MX_NO_DEV: no link opens,
 * which the log explains; MX_NO_RESOURCES: 64 endpoints are open; MX_BAD_PARAM_LIST,
 * MX_BAD_PARAM_NAME, MX_BAD_PARAM_VAL.
 */
mx_return_t mx_open_endpoint(uint32_t board, uint32_t endpoint_id, uint32_t key,
                             mx_param_t *params, uint32_t params_count, mx_endpoint_t *endpoint);

/*
 * Closes an endpoint: what was sent arrives, its requests are gone, and other threads' calls fail.
 * MX_CLOSE_IN_HANDLER: the caller is its handler of unexpected messages.
 */
mx_return_t mx_close_endpoint(mx_endpoint_t endpoint);

/* Ends all calls that wait for the endpoint, with a result of 0. */
mx_return_t mx_wakeup(mx_endpoint_t endpoint);

/* Makes progress. Every call that tests or waits does, too. */
mx_return_t mx_progress(mx_endpoint_t endpoint);

/* Stops progress: nothing completes until it is enabled again. */
mx_return_t mx_disable_progression(mx_endpoint_t endpoint);
mx_return_t mx_reenable_progression(mx_endpoint_t endpoint);

/*
 * Sets the handler of messages that come before their receives, or none. It is called without a
 * lock, in calls of the program that make progress, once for each message, in their order. It may
 * post receives. After MX_RECV_CONTINUE the message goes to a receive that matches, now or later;
 * after MX_RECV_FINISHED it is dropped.
 */
mx_return_t mx_register_unexp_handler(mx_endpoint_t endpoint, mx_unexp_handler_t handler,
                                      void *context);

/* Stores the address of the endpoint itself, which is connected to itself. */
mx_return_t mx_get_endpoint_addr(mx_endpoint_t endpoint, mx_endpoint_addr_t *addr);

/*
 * Stores the network interface and the number of an endpoint. The session differs where an endpoint
 * was opened anew.
 */
mx_return_t mx_decompose_endpoint_addr(mx_endpoint_addr_t addr, uint64_t *nic_id,
                                       uint32_t *endpoint_id);
mx_return_t mx_decompose_endpoint_addr2(mx_endpoint_addr_t addr, uint64_t *nic_id,
                                        uint32_t *endpoint_id, uint32_t *session_id);

/* Keeps a pointer of the program with an address; sources in statuses are the same address. */
mx_return_t mx_set_endpoint_addr_context(mx_endpoint_addr_t addr, void *context);
mx_return_t mx_get_endpoint_addr_context(mx_endpoint_addr_t addr, void **context);

/*
 * Connects to an endpoint, and stores its address. Its program need not be in a call.
 *
 * MX_NIC_NOT_FOUND; MX_BAD_ENDPOINT_ID; MX_CONNECTION_FAILED: no endpoint is open there, or no way
 * leads to it; MX_BAD_CONNECTION_KEY; MX_TIMEOUT.
 */
mx_return_t mx_connect(mx_endpoint_t endpoint, uint64_t nic_id, uint32_t endpoint_id, uint32_t key,
                       uint32_t timeout_ms, mx_endpoint_addr_t *addr);

/*
 * Starts a request to connect. The address is the source in its status; the codes of mx_connect are
 * statuses then.
 */
mx_return_t mx_iconnect(mx_endpoint_t endpoint, uint64_t nic_id, uint32_t endpoint_id, uint32_t key,
                        uint64_t match_info, void *context, mx_request_t *request);

/*
 * Ends the connection with an endpoint: sends that have not completed end with
 * MX_STATUS_ENDPOINT_UNREACHABLE, messages without a receive are dropped, and sends to the address
 * end with MX_STATUS_BAD_SESSION until it is connected again.
 */
mx_return_t mx_disconnect(mx_endpoint_t endpoint, mx_endpoint_addr_t addr);

/*
 * Starts a send of a message, whose segments stay unchanged until the request completes. Without a
 * place for the request (NULL) it is forgotten. mx_isend completes when the memory is free again,
 * mx_issend when a receive has matched the message.
 *
 * MX_BAD_SEG_CNT: more than 256, or 4 GiB; MX_BAD_SEG_LIST, MX_BAD_SEG_MEM: NULL; MX_BAD_ENDPOINT:
 * the address is none of this endpoint; MX_NO_RESOURCES: too many requests.
 */
mx_return_t mx_isend(mx_endpoint_t endpoint, mx_segment_t *segments, uint32_t segments_count,
                     mx_endpoint_addr_t dest, uint64_t match_info, void *context,
                     mx_request_t *request);
mx_return_t mx_issend(mx_endpoint_t endpoint, mx_segment_t *segments, uint32_t segments_count,
                      mx_endpoint_addr_t dest, uint64_t match_info, void *context,
                      mx_request_t *request);

/*
 * Starts a receive of the oldest message with (match bits & mask) == match_info. A longer message
 * is cut: MX_STATUS_TRUNCATED.
 *
 * MX_BAD_MATCH_MASK: match_info has bits outside of the mask; MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK:
 * the mask does not cover the context; others as of mx_isend.
 */
mx_return_t mx_irecv(mx_endpoint_t endpoint, mx_segment_t *segments, uint32_t segments_count,
                     uint64_t match_info, uint64_t match_mask, void *context,
                     mx_request_t *request);

/*
 * Stores the status of a request and frees it, if it has completed: the result is 1 and the handle
 * NULL then. mx_wait waits for that; its result is 0 if the time is over or mx_wakeup was called.
 * MX_BAD_REQUEST: the handle is none of the endpoint.
 */
mx_return_t mx_test(mx_endpoint_t endpoint, mx_request_t *request, mx_status_t *status,
                    uint32_t *result);
mx_return_t mx_wait(mx_endpoint_t endpoint, mx_request_t *request, uint32_t timeout_ms,
                    mx_status_t *status, uint32_t *result);

/*
 * Stores the status of the oldest request that has completed and whose match bits match, and frees
 * that request. Its handle is of no use afterwards.
 */
mx_return_t mx_test_any(mx_endpoint_t endpoint, uint64_t match_info, uint64_t match_mask,
                        mx_status_t *status, uint32_t *result);
mx_return_t mx_wait_any(mx_endpoint_t endpoint, uint32_t timeout_ms, uint64_t match_info,
                        uint64_t match_mask, mx_status_t *status, uint32_t *result);

/* Stores the handle of the oldest request that has completed, and leaves it for mx_test. */
mx_return_t mx_ipeek(mx_endpoint_t endpoint, mx_request_t *request, uint32_t *result);
mx_return_t mx_peek(mx_endpoint_t endpoint, uint32_t timeout_ms, mx_request_t *request,
                    uint32_t *result);

/* Looks for a message that matches and that no receive has taken, and leaves it. */
mx_return_t mx_iprobe(mx_endpoint_t endpoint, uint64_t match_info, uint64_t match_mask,
                      mx_status_t *status, uint32_t *result);
mx_return_t mx_probe(mx_endpoint_t endpoint, uint32_t timeout_ms, uint64_t match_info,
                     uint64_t match_mask, mx_status_t *status, uint32_t *result);

/* The result is 1 if the memory of a send can be used again. MX_BAD_REQUEST: it is no send. */
mx_return_t mx_ibuffered(mx_endpoint_t endpoint, mx_request_t *request, uint32_t *result);

/* Stores the program's pointer of a request. */
mx_return_t mx_context(mx_request_t *request, void **context);

/*
 * Cancels a receive that no message has matched, or a request to connect without an answer: the
 * result is 1 and the request gone. MX_CANCEL_NOT_SUPPORTED: it is a send.
 */
mx_return_t mx_cancel(mx_endpoint_t endpoint, mx_request_t *request, uint32_t *result);

/* Forgets a request: it goes on, and no call sees its end. */
mx_return_t mx_forget(mx_endpoint_t endpoint, mx_request_t *request);

/*
 * Sets the time after which a request ends with MX_STATUS_TIMEOUT unless it has completed; with a
 * NULL request, that of all requests that begin later. A receive that has matched goes on.
 */
mx_return_t mx_set_request_timeout(mx_endpoint_t endpoint, mx_request_t request,
                                   uint32_t milli_seconds);

/*
 * Stores a property. The endpoint may be NULL; MX_NUMA_NODE has the number of a board as its input
 * then. MX_BAD_INFO_KEY; MX_BAD_INFO_VAL: NULL; MX_BAD_INFO_LENGTH: the room is too short.
 */
mx_return_t mx_get_info(mx_endpoint_t endpoint, mx_get_info_key_t key, void *in_val,
                        uint32_t in_len, void *out_val, uint32_t out_len);

/*
 * Translates between names of boards, as host:0, numbers of boards of this host, and numbers of
 * network interfaces. MX_HOST_NOT_FOUND, MX_NIC_NOT_FOUND, MX_BOARD_UNKNOWN, MX_BAD_HOSTNAME_ARGS.
 */
mx_return_t mx_hostname_to_nic_id(char *hostname, uint64_t *nic_id);
mx_return_t mx_nic_id_to_hostname(uint64_t nic_id, char *hostname);
mx_return_t mx_board_number_to_nic_id(uint32_t board, uint64_t *nic_id);
mx_return_t mx_nic_id_to_board_number(uint64_t nic_id, uint32_t *board);

/* Functions that MX declares and never had: they fail with MX_FAILURE. */
mx_return_t mx_register_unexp_callback(mx_endpoint_t endpoint, mx_matching_callback_t callback,
                                       void *context);
mx_return_t mx_iput(mx_endpoint_t endpoint, void *local, uint32_t length, mx_endpoint_addr_t dest,
                    uint64_t remote, void *context, mx_request_t *request);
mx_return_t mx_iget(mx_endpoint_t endpoint, void *local, uint32_t length, mx_endpoint_addr_t dest,
                    uint64_t remote, void *context, mx_request_t *request);
mx_return_t mx_buffered(mx_endpoint_t endpoint, mx_request_t *request, uint32_t timeout_ms,
                        uint32_t *result);

#ifdef __cplusplus
}
#endif

#endif
