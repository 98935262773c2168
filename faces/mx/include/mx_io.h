/* Boards and the state of the mapper, which Open MPI looks for. */
#ifndef MX_IO_H
#define MX_IO_H

#include "myriexpress.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int mx_endpt_handle_t;
#define MX__INVALID_HANDLE (-1)

/* Hosts are in one network if the address of its mapper is the same. */
typedef struct {
    uint32_t board_number;
    uint8_t mapper_mac[6];
    uint16_t iport;
    uint32_t map_version;
    uint32_t num_hosts;
    uint32_t network_configured;
    uint32_t routes_valid;
    uint32_t level;
    uint32_t flags;
} mx_mapper_state_t;

mx_return_t mx_open_board(int board, mx_endpt_handle_t *handle);
mx_return_t mx__get_mapper_state(mx_endpt_handle_t handle, mx_mapper_state_t *state);
int mx__regcache_clean(void *at, size_t length);

#ifdef __cplusplus
}
#endif

#endif
