/* Two endpoints in one process, for the provider's tests. A failed check prints itself and ends the
 * program. */
#ifndef SIDES_H
#define SIDES_H

#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#define CHECK(ok)                                                                                  \
	do {                                                                                       \
		if (!(ok)) {                                                                       \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #ok);           \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#define NAME 48

struct side {
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	char name[NAME];
	/* The other side's number in this side's address vector. */
	fi_addr_t peer;
};

struct setup {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct side a, b;
};

static inline struct fi_info *hints_of(uint64_t caps)
{
	struct fi_info *hints = fi_allocinfo();

	CHECK(hints);
	hints->caps = caps;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("weft");
	return hints;
}

static inline void open_side(struct setup *s, struct side *side, enum fi_wait_obj wait)
{
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = wait };
	size_t len = NAME;

	CHECK(!fi_av_open(s->domain, &av, &side->av, NULL));
	CHECK(!fi_cq_open(s->domain, &cq, &side->cq, NULL));
	CHECK(!fi_endpoint(s->domain, s->info, &side->ep, NULL));
	CHECK(!fi_ep_bind(side->ep, &side->av->fid, 0));
	CHECK(!fi_ep_bind(side->ep, &side->cq->fid, FI_SEND | FI_RECV));
	CHECK(!fi_enable(side->ep));
	CHECK(!fi_getname(&side->ep->fid, side->name, &len));
	CHECK(len == NAME);
}

static inline void open_domain(struct setup *s, struct fi_info *hints)
{
	memset(s, 0, sizeof(*s));
	CHECK(!fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &s->info));
	fi_freeinfo(hints);
	CHECK(!fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
	CHECK(!fi_domain(s->fabric, s->info, &s->domain, NULL));
}

static inline void open_both(struct setup *s, enum fi_wait_obj wait)
{
	open_domain(s, hints_of(FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_SOURCE | FI_MULTI_RECV));
	open_side(s, &s->a, wait);
	open_side(s, &s->b, wait);
	CHECK(fi_av_insert(s->a.av, s->b.name, 1, &s->a.peer, 0, NULL) == 1);
	CHECK(fi_av_insert(s->b.av, s->a.name, 1, &s->b.peer, 0, NULL) == 1);
}

static inline void close_side(struct side *side)
{
	CHECK(!fi_close(&side->ep->fid));
	CHECK(!fi_close(&side->cq->fid));
	CHECK(!fi_close(&side->av->fid));
}

static inline void close_domain(struct setup *s)
{
	CHECK(!fi_close(&s->domain->fid));
	CHECK(!fi_close(&s->fabric->fid));
	fi_freeinfo(s->info);
}

static inline void close_both(struct setup *s)
{
	close_side(&s->a);
	close_side(&s->b);
	close_domain(s);
}

/* The next completion of one side, while both make progress; a negative error if it failed, with
 * details in `failure`. Fails after 20 seconds without one. */
static inline ssize_t next(struct setup *s, struct side *side, struct fi_cq_tagged_entry *entry,
			   fi_addr_t *source, struct fi_cq_err_entry *failure)
{
	struct side *other = side == &s->a ? &s->b : &s->a;
	time_t start = time(NULL);

	for (;;) {
		ssize_t n = fi_cq_readfrom(side->cq, entry, 1, source);

		if (n == 1)
			return 1;
		if (n == -FI_EAVAIL) {
			memset(failure, 0, sizeof(*failure));
			CHECK(fi_cq_readerr(side->cq, failure, 0) == 1);
			return -failure->err;
		}
		CHECK(n == -FI_EAGAIN);
		CHECK(fi_cq_read(other->cq, NULL, 0) <= 0);
		CHECK(time(NULL) - start < 20);
	}
}

static inline struct fi_cq_tagged_entry done(struct setup *s, struct side *side)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry failure;
	fi_addr_t source;

	CHECK(next(s, side, &entry, &source, &failure) == 1);
	return entry;
}

static inline struct fi_cq_err_entry failed(struct setup *s, struct side *side)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry failure;
	fi_addr_t source;

	CHECK(next(s, side, &entry, &source, &failure) < 0);
	return failure;
}

#endif
