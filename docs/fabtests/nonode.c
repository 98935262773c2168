/* Loaded before libfabric (LD_PRELOAD), for ubertest.
 *
 * The program ubertest asks fi_getinfo for an interface by the host's name and a port, and then
 * exchanges the endpoints' names over a socket of its own. weft's endpoints have no ports: they are
 * found by the exchanged names alone. And it divides a buffer by rounded weights, which sum up to
 * the right length for up to four pieces only: sixteen bytes in eight become seventeen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <rdma/fabric.h>

int fi_getinfo(uint32_t version, const char *node, const char *service, uint64_t flags,
	       const struct fi_info *hints, struct fi_info **info)
{
	typeof(fi_getinfo) *real = dlsym(RTLD_NEXT, "fi_getinfo");
	int ret = real(version, NULL, NULL, flags & ~FI_SOURCE, hints, info);

	(void)node, (void)service;
	for (struct fi_info *i = ret ? NULL : *info; i; i = i->next)
		i->tx_attr->iov_limit = i->tx_attr->rma_iov_limit = i->rx_attr->iov_limit = 4;
	return ret;
}
