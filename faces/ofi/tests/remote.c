/* Remote memory and atomic operations over the provider, as an application of libfabric sees
 * them: two processes, made by fork before anything else; they exchange names and turns over a
 * pair of sockets. The second process is the target: it answers turns and makes progress
 * meanwhile.
 *
 * Every failed check ends the program and prints its line. A waiting process yields: there may
 * be fewer cores than processes. */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define SIZE (8 << 20)
enum { KEY = 11, READ_ONLY = 12, ALL = 13, NO_SUCH = 99, NAME = 48 };

static int origin;
static int turns;
static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *ep, *second;
static struct fid_cq *txcq, *rxcq;
static struct fid_cntr *writes, *reads;
static struct fid_av *av;
static struct fid_mr *mr, *ro, *all;
static fi_addr_t self, peer, peer2;
static unsigned char *mem, *local;
static uint64_t peer_mem;

#define CHECK(what)                                                                    \
	do {                                                                           \
		if (!(what)) {                                                         \
			fprintf(stderr, "%s, line %d: not so: %s\n",                   \
				origin ? "origin" : "target", __LINE__, #what);        \
			exit(1);                                                       \
		}                                                                      \
	} while (0)
#define OK(call)                                                                       \
	do {                                                                           \
		long ret_ = (call);                                                    \
		if (ret_) {                                                            \
			fprintf(stderr, "%s, line %d: %s: %s\n",                       \
				origin ? "origin" : "target", __LINE__, #call,         \
				fi_strerror((int)-ret_));                              \
			exit(1);                                                       \
		}                                                                      \
	} while (0)
#define AGAIN(call)                                                                    \
	do {                                                                           \
		long again_;                                                           \
		while ((again_ = (call)) == -FI_EAGAIN)                                  \
			fi_cq_read(txcq, NULL, 0), sched_yield();                      \
		OK(again_);                                                            \
	} while (0)

static void put(const void *buf, size_t len)
{
	CHECK(write(turns, buf, len) == (ssize_t)len);
}

static void get(void *buf, size_t len)
{
	size_t got = 0;

	while (got < len) {
		struct pollfd p = { turns, POLLIN, 0 };
		struct fi_cq_data_entry e;

		if (poll(&p, 1, 0) == 1) {
			ssize_t n = read(turns, (char *)buf + got, len - got);
			CHECK(n > 0);
			got += (size_t)n;
		} else {
			CHECK(fi_cq_read(txcq, &e, 1) == -FI_EAGAIN);
			sched_yield();
		}
	}
}

/* Both wait for each other, and make progress meanwhile. */
static void meet(void)
{
	char c = 'x';

	put(&c, 1);
	get(&c, 1);
}

/* Waits for the other side outside of the provider, without progress. */
static void away(void)
{
	char c;

	CHECK(read(turns, &c, 1) == 1);
}

/* Both meet, then one is absent. The other goes on once the absent one makes no progress any
 * more, which it may do while it waits to meet. */
static void part(int leaves)
{
	char c = 'x';

	meet();
	if (leaves) {
		put(&c, 1);
		away();
	} else {
		get(&c, 1);
	}
}

/* The next completion of an operation of this process; its error number if it failed. */
static int completion(void *context, uint64_t flags)
{
	struct fi_cq_data_entry e = { 0 };
	long ret;

	while ((ret = fi_cq_read(txcq, &e, 1)) == -FI_EAGAIN)
		sched_yield();
	if (ret == -FI_EAVAIL) {
		struct fi_cq_err_entry f = { 0 };
		CHECK(fi_cq_readerr(txcq, &f, 0) == 1);
		CHECK(f.op_context == context);
		CHECK(f.flags == flags);
		return f.err;
	}
	CHECK(ret == 1);
	CHECK(e.op_context == context);
	CHECK(e.flags == flags);
	return 0;
}

static struct fid_ep *endpoint(fi_addr_t *other)
{
	struct fid_ep *e;
	unsigned char name[NAME], theirs[NAME];
	size_t len = sizeof(name);
	fi_addr_t own;

	OK(fi_endpoint(domain, info, &e, NULL));
	OK(fi_ep_bind(e, &av->fid, 0));
	OK(fi_ep_bind(e, &txcq->fid, FI_SEND));
	OK(fi_ep_bind(e, &rxcq->fid, FI_RECV));
	OK(fi_ep_bind(e, &writes->fid, FI_WRITE));
	OK(fi_ep_bind(e, &reads->fid, FI_READ));
	OK(fi_enable(e));
	OK(fi_getname(&e->fid, name, &len));
	CHECK(len == NAME);
	CHECK(fi_av_insert(av, name, 1, &own, 0, NULL) == 1);
	if (!ep)
		self = own;
	put(name, NAME);
	get(theirs, NAME);
	CHECK(fi_av_insert(av, theirs, 1, other, 0, NULL) == 1);
	return e;
}

static void start(void)
{
	struct fi_info *hints = fi_allocinfo();
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_DATA };
	struct fi_cntr_attr cntr = { .events = FI_CNTR_EVENTS_COMP };
	struct fi_av_attr avs = { .type = FI_AV_TABLE };
	uint64_t both = FI_REMOTE_READ | FI_REMOTE_WRITE, where;

	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_FENCE | FI_DIRECTED_RECV |
		      FI_MULTI_RECV;
	if (getenv("EVENTS"))
		hints->caps |= FI_RMA_EVENT;
	hints->fabric_attr->prov_name = strdup("weft");
	if (getenv("AUTO"))
		hints->domain_attr->data_progress = FI_PROGRESS_AUTO;
	if (getenv("ONE_THREAD"))
		hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->tx_attr->msg_order = FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW |
				    FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW | FI_ORDER_WAW |
				    FI_ORDER_RAW;
	OK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	CHECK(info->caps & FI_RMA && info->caps & FI_ATOMIC && info->caps & FI_REMOTE_WRITE);
	OK(fi_fabric(info->fabric_attr, &fabric, NULL));
	OK(fi_domain(fabric, info, &domain, NULL));
	OK(fi_cq_open(domain, &cq, &txcq, NULL));
	OK(fi_cq_open(domain, &cq, &rxcq, NULL));
	OK(fi_cntr_open(domain, &cntr, &writes, NULL));
	OK(fi_cntr_open(domain, &cntr, &reads, NULL));
	OK(fi_av_open(domain, &avs, &av, NULL));
	mem = calloc(1, SIZE);
	local = calloc(1, SIZE);
	ep = endpoint(&peer);
	/* One region before the second endpoint is opened, one after. */
	OK(fi_mr_reg(domain, mem, SIZE, both, 0, KEY, 0, &mr, NULL));
	second = endpoint(&peer2);
	OK(fi_mr_reg(domain, mem, 4096, FI_REMOTE_READ, 0, READ_ONLY, 0, &ro, NULL));
	OK(fi_mr_reg(domain, NULL, SIZE_MAX, both, 0, ALL, 0, &all, NULL));
	where = (uint64_t)(uintptr_t)mem;
	put(&where, 8);
	get(&peer_mem, 8);
	fi_freeinfo(hints);
}

static void finish(void)
{
	meet();
	OK(fi_close(&ep->fid));
	OK(fi_close(&second->fid));
	if (mr)
		OK(fi_close(&mr->fid));
	OK(fi_close(&ro->fid));
	OK(fi_close(&all->fid));
	OK(fi_close(&txcq->fid));
	OK(fi_close(&rxcq->fid));
	OK(fi_close(&writes->fid));
	OK(fi_close(&reads->fid));
	OK(fi_close(&av->fid));
	OK(fi_close(&domain->fid));
	OK(fi_close(&fabric->fid));
	fi_freeinfo(info);
}

static void pattern(unsigned char *at, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		at[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

static int is_pattern(const unsigned char *at, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		if (at[i] != (unsigned char)(i * 7 + i / 251 + seed))
			return 0;
	return 1;
}

static const size_t lengths[] = { 0, 1, 8, 4095, 4096, 70000, SIZE - 64 };
enum { LENGTHS = sizeof(lengths) / sizeof(*lengths) };

/* The bytes of a write have arrived when it completes: the target checks them without progress
 * before. */
static void case_write(void)
{
	for (unsigned i = 0; i < LENGTHS; i++) {
		size_t len = lengths[i];

		if (origin) {
			pattern(local, len, i);
			AGAIN(fi_write(ep, local, len, NULL, peer, 32, KEY, local));
			CHECK(!completion(local, FI_RMA | FI_WRITE));
			meet();
			memset(local, 0, len);
			AGAIN(fi_read(ep, local, len, NULL, peer, 32, KEY, local));
			CHECK(!completion(local, FI_RMA | FI_READ));
			CHECK(is_pattern(local, len, i));
		} else {
			meet();
			CHECK(is_pattern(mem + 32, len, i));
			CHECK(mem[31] == 0 && mem[32 + len] == 0);
		}
		meet();
		if (!origin)
			memset(mem, 0, SIZE);
		meet();
	}
	if (origin) {
		CHECK(fi_cntr_read(writes) == LENGTHS);
		CHECK(fi_cntr_read(reads) == LENGTHS);
	}
}

/* To the peer's second endpoint, by the address in memory, and to this process itself. */
static void case_everywhere(void)
{
	if (origin) {
		pattern(local, 5000, 3);
		AGAIN(fi_write(second, local, 5000, NULL, peer2, peer_mem + 100, ALL, NULL));
		CHECK(!completion(NULL, FI_RMA | FI_WRITE));
		AGAIN(fi_read(ep, local + 8192, 5000, NULL, peer2, 100, KEY, NULL));
		CHECK(!completion(NULL, FI_RMA | FI_READ));
		CHECK(is_pattern(local + 8192, 5000, 3));
		AGAIN(fi_write(ep, local, 5000, NULL, self, 7, KEY, NULL));
		CHECK(!completion(NULL, FI_RMA | FI_WRITE));
		CHECK(is_pattern(mem + 7, 5000, 3));
		uint64_t one = 1, old = 77;
		AGAIN(fi_fetch_atomic(ep, &one, 1, NULL, &old, NULL, self,
				      (uint64_t)(uintptr_t)(mem + 8192), ALL, FI_UINT64, FI_SUM,
				      NULL));
		CHECK(!completion(NULL, FI_ATOMIC | FI_READ));
		CHECK(old == 0 && mem[8192] == 1);
	}
	meet();
	if (!origin)
		CHECK(is_pattern(mem + 100, 5000, 3));
}

static void case_pieces(void)
{
	if (origin) {
		struct iovec iov[3] = { { local, 100 }, { local + 300, 5000 }, { local + 6000, 7 } };
		struct fi_rma_iov there[2] = { { 1000, 4107, KEY }, { 9000, 1000, KEY } };
		struct fi_msg_rma msg = { iov, NULL, 3, peer, there, 2, &msg, 0x1234 };
		uint64_t done = fi_cntr_read(writes);

		pattern(local, 8000, 1);
		AGAIN(fi_writemsg(ep, &msg, FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA));
		CHECK(!completion(&msg, FI_RMA | FI_WRITE));
		CHECK(fi_cntr_read(writes) == done + 1);
		memset(local, 0, 8000);
		AGAIN(fi_readmsg(ep, &msg, 0));
		CHECK(!completion(&msg, FI_RMA | FI_READ));
		CHECK(is_pattern(local, 100, 1));
		CHECK(local[300] == (unsigned char)(300 * 7 + 1 + 1));
		CHECK(local[6006] == (unsigned char)(6006 * 7 + 6006 / 251 + 1));
		CHECK(local[100] == 0 && local[299] == 0 && local[5300] == 0);
		there[1].len--;
		CHECK(fi_writemsg(ep, &msg, 0) == -FI_EINVAL);
		meet();
	} else {
		struct fi_cq_data_entry e;
		while (fi_cq_read(rxcq, &e, 1) == -FI_EAGAIN)
			sched_yield();
		CHECK(e.flags == (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
		CHECK(e.data == 0x1234 && e.len == 5107);
		CHECK(is_pattern(mem + 1000, 100, 1));
		meet();
	}
}

/* Data for the target's queue: all eight bytes, or four alone. */
static uint64_t data_of(uint64_t i)
{
	return i % 5 == 4 ? i : (i + 1) << 32 | (uint32_t)~i;
}

/* Data for the target's queue comes after the bytes; injected buffers are free at once. */
static void case_data(void)
{
	enum { TIMES = 400 };
	if (origin) {
		unsigned char small[64];
		for (unsigned i = 0; i < TIMES; i++) {
			struct iovec iov = { small, 64 };
			struct fi_rma_iov where = { i * 64, 64, KEY };
			struct fi_msg_rma m = { &iov, NULL, 1, peer, &where, 1, NULL, data_of(i) };

			memset(small, (int)i, sizeof(small));
			if (i % 3 == 0)
				AGAIN(fi_inject_writedata(ep, small, 64, data_of(i), peer, i * 64, KEY));
			else if (i % 3 == 1)
				AGAIN(fi_writedata(ep, small, 64, NULL, data_of(i), peer, i * 64, KEY,
						   NULL));
			else
				AGAIN(fi_writemsg(ep, &m, FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE));
			if (i % 3)
				CHECK(!completion(NULL, FI_RMA | FI_WRITE));
			memset(small, 255, sizeof(small));
		}
		AGAIN(fi_inject_writedata(ep, small, 64, 1, peer, SIZE - 1, KEY));
		CHECK(completion(NULL, FI_RMA | FI_WRITE) == FI_EACCES);
	} else {
		for (unsigned i = 0; i < TIMES; i++) {
			struct fi_cq_data_entry e;
			long ret;
			while ((ret = fi_cq_read(rxcq, &e, 1)) == -FI_EAGAIN)
				sched_yield();
			CHECK(ret == 1 && e.data == data_of(i) && e.len == 64);
			CHECK(mem[i * 64] == (i & 255) && mem[i * 64 + 63] == (i & 255));
		}
	}
	meet();
	/* A refused write is not reported. */
	struct fi_cq_data_entry e;
	CHECK(fi_cq_read(rxcq, &e, 1) == -FI_EAGAIN);
}

static void case_refused(void)
{
	if (origin) {
		uint64_t v = 5, old = 5;
		AGAIN(fi_write(ep, local, 8, NULL, peer, 0, NO_SUCH, &v));
		CHECK(completion(&v, FI_RMA | FI_WRITE) == FI_EACCES);
		AGAIN(fi_read(ep, local, 9, NULL, peer, SIZE - 8, KEY, &v));
		CHECK(completion(&v, FI_RMA | FI_READ) == FI_EACCES);
		AGAIN(fi_write(ep, local, 8, NULL, peer, UINT64_MAX - 3, KEY, &v));
		CHECK(completion(&v, FI_RMA | FI_WRITE) == FI_EACCES);
		AGAIN(fi_write(ep, local, 8, NULL, peer, 0, READ_ONLY, &v));
		CHECK(completion(&v, FI_RMA | FI_WRITE) == FI_EACCES);
		AGAIN(fi_read(ep, local, 8, NULL, peer, 0, READ_ONLY, &v));
		CHECK(!completion(&v, FI_RMA | FI_READ));
		AGAIN(fi_atomic(ep, &v, 1, NULL, peer, 0, NO_SUCH, FI_UINT64, FI_SUM, &v));
		CHECK(completion(&v, FI_ATOMIC | FI_WRITE) == FI_ENOKEY);
		AGAIN(fi_atomic(ep, &v, 1, NULL, peer, SIZE - 7, KEY, FI_UINT64, FI_SUM, &v));
		CHECK(completion(&v, FI_ATOMIC | FI_WRITE) == FI_EACCES);
		AGAIN(fi_fetch_atomic(ep, &v, 1, NULL, &old, NULL, peer, 0, READ_ONLY, FI_UINT64,
				      FI_SUM, &v));
		CHECK(completion(&v, FI_ATOMIC | FI_READ) == FI_EACCES);
		AGAIN(fi_fetch_atomic(ep, NULL, 1, NULL, &old, NULL, peer, 0, READ_ONLY, FI_UINT64,
				      FI_ATOMIC_READ, &v));
		CHECK(!completion(&v, FI_ATOMIC | FI_READ));
		CHECK(old == 0);
		CHECK(fi_cntr_readerr(writes) >= 4 && fi_cntr_readerr(reads) >= 2);
	}
	meet();
	if (!origin)
		for (int i = 0; i < 64; i++)
			CHECK(mem[i] == 0);
}

/* A region closed during a read: the read ends, with success or refused. */
static void case_closed(void)
{
	if (origin) {
		for (int i = 0; i < 8; i++)
			AGAIN(fi_read(ep, local, SIZE, NULL, peer, 0, KEY, local));
		meet();
		for (int i = 0; i < 8; i++) {
			int error = completion(local, FI_RMA | FI_READ);
			CHECK(!error || error == FI_EACCES);
		}
		AGAIN(fi_read(ep, local, 8, NULL, peer, 0, KEY, local));
		CHECK(completion(local, FI_RMA | FI_READ) == FI_EACCES);
	} else {
		char c = 'x';
		put(&c, 1);
		CHECK(read(turns, &c, 1) == 1);
		fi_cq_read(txcq, NULL, 0);
		OK(fi_close(&mr->fid));
		mr = NULL;
	}
	meet();
}

/* Closing one of two keys of the same memory leaves the other. */
static void case_twice(void)
{
	struct fid_mr *two[2];

	if (!origin)
		for (int i = 0; i < 2; i++)
			OK(fi_mr_reg(domain, mem, 4096, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 20 + i, 0,
				     &two[i], NULL));
	meet();
	if (origin) {
		for (unsigned i = 0; i < 2; i++) {
			pattern(local, 64, i);
			AGAIN(fi_write(ep, local, 64, NULL, peer, 64 * i, 20 + i, local));
			CHECK(!completion(local, FI_RMA | FI_WRITE));
		}
	}
	meet();
	if (!origin) {
		CHECK(is_pattern(mem, 64, 0) && is_pattern(mem + 64, 64, 1));
		OK(fi_close(&two[0]->fid));
	}
	meet();
	if (origin) {
		AGAIN(fi_write(ep, local, 64, NULL, peer, 128, 20, local));
		CHECK(completion(local, FI_RMA | FI_WRITE) == FI_EACCES);
		AGAIN(fi_write(ep, local, 64, NULL, peer, 128, 21, local));
		CHECK(!completion(local, FI_RMA | FI_WRITE));
	}
	meet();
	if (!origin) {
		CHECK(is_pattern(mem + 128, 64, 1));
		OK(fi_close(&two[1]->fid));
	}
}

/* The error of an operation on a peer that may be gone; 0 if it went well. */
static int error_of(long started, void *context)
{
	struct fi_cq_data_entry e;
	struct fi_cq_err_entry f = { 0 };
	long ret;

	OK(started);
	while ((ret = fi_cq_read(txcq, &e, 1)) == -FI_EAGAIN)
		sched_yield();
	if (ret == 1)
		return 0;
	CHECK(ret == -FI_EAVAIL && fi_cq_readerr(txcq, &f, 0) == 1);
	CHECK(f.op_context == context && f.err != 0);
	return f.err;
}

/* Registered memory whose pages its owner takes away without closing the region: every operation
 * on it ends with an error. Where the kernel copies, it says so; where the owner's process does, it
 * dies of it, as a process of its own access would. */
static void case_vanished(void)
{
	enum { GONE = 22, BYTES = 1 << 20 };
	static const size_t sizes[] = { 8, 70000, BYTES };
	struct fid_mr *gone = NULL;
	uint64_t v = 5, old = 5;

	if (!origin) {
		void *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		CHECK(at != MAP_FAILED);
		OK(fi_mr_reg(domain, at, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, GONE, 0, &gone,
			     NULL));
		CHECK(!mprotect(at, BYTES, PROT_NONE));
		CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
		meet();
		for (;;)
			fi_cq_read(txcq, NULL, 0), sched_yield();
	}
	meet();
	for (unsigned i = 0; i < 3; i++) {
		int error;

		error = error_of(fi_write(ep, local, sizes[i], NULL, peer, 0, GONE, local), local);
		CHECK(error == FI_EACCES || error == FI_ECONNRESET);
		error = error_of(fi_read(ep, local, sizes[i], NULL, peer, 0, GONE, local), local);
		CHECK(error == FI_EACCES || error == FI_ECONNRESET);
	}
	CHECK(error_of(fi_fetch_atomic(ep, &v, 1, NULL, &old, NULL, peer, 0, GONE, FI_UINT64, FI_SUM,
				       &v), &v));
	exit(0);
}

#define TYPES(X)                                                                       \
	X(int8_t, FI_INT8) X(uint8_t, FI_UINT8) X(int16_t, FI_INT16) X(uint16_t, FI_UINT16)    \
	X(int32_t, FI_INT32) X(uint32_t, FI_UINT32) X(int64_t, FI_INT64)                   \
	X(uint64_t, FI_UINT64) X(float, FI_FLOAT) X(double, FI_DOUBLE)

/* Sum, maximum, fetch and compare of seven elements of each type; the target checks the results. */
#define OPERATE(T, type)                                                               \
	{                                                                              \
		T v[7], old[7], cmp[7];                                                \
		for (int i = 0; i < 7; i++)                                            \
			v[i] = (T)(i + 1);                                             \
		AGAIN(fi_atomic(ep, v, 7, NULL, peer, at, KEY, type, FI_SUM, v));      \
		CHECK(!completion(v, FI_ATOMIC | FI_WRITE));                           \
		AGAIN(fi_inject_atomic(ep, v, 7, peer, at, KEY, type, FI_SUM));        \
		for (int i = 0; i < 7; i++)                                            \
			v[i] = (T)5;                                                   \
		AGAIN(fi_fetch_atomic(ep, v, 7, NULL, old, NULL, peer, at, KEY, type,  \
				      FI_MAX, v));                                     \
		CHECK(!completion(v, FI_ATOMIC | FI_READ));                            \
		for (int i = 0; i < 7; i++)                                            \
			CHECK(old[i] == (T)(2 * i + 2));                               \
		for (int i = 0; i < 7; i++)                                            \
			cmp[i] = (T)(i == 3 ? 8 : 99), v[i] = (T)33;                   \
		AGAIN(fi_compare_atomic(ep, v, 7, NULL, cmp, NULL, old, NULL, peer, at, \
					KEY, type, FI_CSWAP, v));                      \
		CHECK(!completion(v, FI_ATOMIC | FI_READ));                            \
		for (int i = 0; i < 7; i++)                                            \
			CHECK(old[i] == (T)(2 * i + 2 < 5 ? 5 : 2 * i + 2));           \
		at += 128;                                                             \
	}
#define LOOK(T, type)                                                                  \
	{                                                                              \
		T *v = (T *)(mem + at);                                                \
		for (int i = 0; i < 7; i++)                                            \
			CHECK(v[i] == (T)(i == 3 ? 33 : 2 * i + 2 < 5 ? 5 : 2 * i + 2)); \
		at += 128;                                                             \
	}

static void case_atomic(void)
{
	uint64_t at = 0;

	if (origin) {
		TYPES(OPERATE)
		meet();
	} else {
		meet();
		TYPES(LOOK)
	}
	meet();
}

static void case_valid(void)
{
	int valid = 0;

	for (int op = 0; op < FI_ATOMIC_OP_LAST; op++) {
		for (int type = 0; type < FI_DATATYPE_LAST; type++) {
			size_t count = 0;
			struct fi_atomic_attr attr = { 0 };
			int is = !fi_atomicvalid(ep, type, op, &count);
			CHECK(is == !fi_query_atomic(domain, type, op, &attr, 0));
			CHECK(!is || (attr.count == count && count * attr.size >= 16384));
			int fetch = !fi_fetch_atomicvalid(ep, type, op, &count);
			CHECK(fetch == !fi_query_atomic(domain, type, op, &attr, FI_FETCH_ATOMIC));
			int swap = !fi_compare_atomicvalid(ep, type, op, &count);
			CHECK(swap == !fi_query_atomic(domain, type, op, &attr, FI_COMPARE_ATOMIC));
			CHECK(fetch || !is);
			valid += is + fetch + swap;
		}
	}
	CHECK(valid > 200);
	uint64_t v = 0;
	CHECK(fi_atomic(ep, &v, 1, NULL, peer, 0, KEY, FI_UINT64, FI_CSWAP, NULL) ==
	      -FI_EOPNOTSUPP);
	CHECK(fi_atomic(ep, local, 1 << 20, NULL, peer, 0, KEY, FI_UINT64, FI_SUM, NULL) ==
	      -FI_EMSGSIZE);
	CHECK(fi_atomic(ep, &v, 0, NULL, peer, 0, KEY, FI_UINT64, FI_SUM, NULL) == -FI_EINVAL);
	meet();
}

static void case_atomic_pieces(void)
{
	if (origin) {
		uint32_t v[6] = { 1, 2, 3, 4, 5, 6 }, old[6] = { 9, 9, 9, 9, 9, 9 }, cmp[6] = { 0 };
		struct fi_ioc iov[2] = { { v, 2 }, { v + 2, 4 } };
		struct fi_ioc res[3] = { { old, 1 }, { old + 1, 3 }, { old + 4, 2 } };
		struct fi_ioc with[1] = { { cmp, 6 } };
		struct fi_rma_ioc there[2] = { { 64, 5, KEY }, { 640, 1, KEY } };
		struct fi_msg_atomic msg = { iov, NULL, 2, peer, there, 2, FI_UINT32, FI_SUM, &msg, 0 };

		AGAIN(fi_atomicmsg(ep, &msg, FI_INJECT));
		CHECK(!completion(&msg, FI_ATOMIC | FI_WRITE));
		AGAIN(fi_fetch_atomicmsg(ep, &msg, res, NULL, 3, 0));
		CHECK(!completion(&msg, FI_ATOMIC | FI_READ));
		for (unsigned i = 0; i < 6; i++)
			CHECK(old[i] == i + 1);
		for (unsigned i = 0; i < 6; i++)
			cmp[i] = 2 * (i + 1);
		msg.op = FI_CSWAP_LE;
		AGAIN(fi_compare_atomicmsg(ep, &msg, with, NULL, 1, res, NULL, 3, 0));
		CHECK(!completion(&msg, FI_ATOMIC | FI_READ));
		AGAIN(fi_atomicv(ep, iov, NULL, 2, peer, 64, KEY, FI_UINT32, FI_BXOR, &msg));
		CHECK(!completion(&msg, FI_ATOMIC | FI_WRITE));
		meet();
	} else {
		meet();
		uint32_t *v = (uint32_t *)(mem + 64);
		for (unsigned i = 0; i < 5; i++)
			CHECK(v[i] == 0);
		CHECK(v[5] == 6 && *(uint32_t *)(mem + 640) == 6);
	}
	meet();
}

/* Writes, atomic operations and reads of the same bytes, all posted at once. */
static void case_order(void)
{
	enum { ROUNDS = 120 };
	static uint64_t val[ROUNDS], old[ROUNDS], got[ROUNDS], one = 1;

	if (origin) {
		unsigned done = 0, errors = 0;
		for (unsigned i = 0; i < ROUNDS; i++) {
			val[i] = 1000 * i;
			AGAIN(fi_write(ep, &val[i], 8, NULL, peer, 8, KEY, NULL));
			AGAIN(fi_inject_atomic(ep, &one, 1, peer, 8, KEY, FI_UINT64, FI_SUM));
			AGAIN(fi_fetch_atomic(ep, &one, 1, NULL, &old[i], NULL, peer, 8, KEY,
					      FI_UINT64, FI_SUM, NULL));
		}
		AGAIN(fi_read(ep, &got[0], 8, NULL, peer, 8, KEY, NULL));
		while (done < 2 * ROUNDS + 1 && !errors) {
			struct fi_cq_data_entry e;
			long ret = fi_cq_read(txcq, &e, 1);
			done += ret == 1;
			errors += ret != 1 && ret != -FI_EAGAIN;
		}
		CHECK(!errors);
		for (unsigned i = 0; i < ROUNDS; i++)
			CHECK(old[i] == 1000 * i + 1);
		CHECK(got[0] == 1000 * (ROUNDS - 1) + 2);
	}
	meet();
	/* A message after a write arrives after the write's bytes. */
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (origin) {
			memset(local, (int)i + 1, 20000);
			AGAIN(fi_write(ep, local, 20000, NULL, peer, 4096, KEY, NULL));
			AGAIN(fi_tinject(ep, &i, 4, peer, i));
			CHECK(!completion(NULL, FI_RMA | FI_WRITE));
		} else {
			struct fi_cq_data_entry e;
			unsigned n;
			AGAIN(fi_trecv(ep, &n, 4, NULL, peer, i, 0, NULL));
			while (fi_cq_read(rxcq, &e, 1) == -FI_EAGAIN)
				sched_yield();
			unsigned char first = mem[4096], last = mem[24095];
			/* Later writes may have arrived meanwhile, but none before the read is missing. */
			CHECK((unsigned char)(first - (i + 1)) < 128);
			CHECK((unsigned char)(last - (i + 1)) < 128);
		}
	}
	meet();
}

/* A fenced operation starts after all that were posted before it have ended. The caller only
 * tries again: it reads no queue meanwhile. */
static void case_fence(void)
{
	enum { ROUNDS = 20, LONG = 1 << 20 };
	static uint64_t one = 1, old;
	struct fi_cq_data_entry e;
	unsigned done = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct iovec iov = { &i, sizeof(i) }, bytes = { local + LONG, LONG };
		struct fi_rma_iov there = { LONG, LONG, KEY };
		struct fi_msg_tagged msg = { &iov, NULL, 1, peer, i, 0, NULL, 0 };
		struct fi_msg_rma write = { &bytes, NULL, 1, peer, &there, 1, NULL, 0 };
		struct fi_ioc operand = { &one, 1 }, result = { &old, 1 };
		struct fi_rma_ioc counter = { 2 * LONG, 1, KEY };
		struct fi_msg_atomic atomic = { &operand, NULL, 1,	  peer, &counter,
						1,	  FI_UINT64, FI_SUM, NULL, 0 };

		if (origin) {
			unsigned before = done;

			pattern(local, LONG, i);
			/* The next write must not be done before the read, nor the message before either. */
			pattern(local + LONG, LONG, i + 100);
			AGAIN(fi_write(ep, local, LONG, NULL, peer, LONG, KEY, NULL));
			while (fi_readmsg(ep, &(struct fi_msg_rma){ &(struct iovec){ local + 2 * LONG,
								    LONG }, NULL, 1, peer, &there,
								    1, NULL, 0 },
					  FI_FENCE | FI_COMPLETION) == -FI_EAGAIN)
				sched_yield();
			while (fi_writemsg(ep, &write, FI_FENCE | FI_COMPLETION) == -FI_EAGAIN)
				sched_yield();
			while (fi_fetch_atomicmsg(ep, &atomic, &result, NULL, 1,
						  FI_FENCE | FI_COMPLETION) == -FI_EAGAIN)
				sched_yield();
			while (fi_tsendmsg(ep, &msg, FI_FENCE | FI_COMPLETION) == -FI_EAGAIN)
				sched_yield();
			/* All but the message have ended. */
			while (done < before + 5) {
				long ret = fi_cq_read(txcq, &e, 1);
				CHECK(ret == 1 || ret == -FI_EAGAIN);
				done += ret == 1;
			}
			CHECK(is_pattern(local + 2 * LONG, LONG, i));
			CHECK(old == i);
		} else {
			unsigned n;

			AGAIN(fi_trecv(ep, &n, sizeof(n), NULL, peer, i, 0, NULL));
			while (fi_cq_read(rxcq, &e, 1) == -FI_EAGAIN)
				sched_yield();
			CHECK(n == i && is_pattern(mem + LONG, LONG, i + 100));
			CHECK(*(uint64_t *)(mem + 2 * LONG) == i + 1);
		}
		meet();
	}
	/* A send that the target has not received yet delays the fenced operation. */
	if (origin) {
		AGAIN(fi_tsend(ep, local, LONG, NULL, peer, 1000, NULL));
		for (int i = 0; i < 100; i++)
			CHECK(fi_writemsg(ep, &(struct fi_msg_rma){ &(struct iovec){ local, 8 }, NULL, 1,
						peer, &(struct fi_rma_iov){ 0, 8, KEY }, 1, NULL, 0 },
					  FI_FENCE) == -FI_EAGAIN);
		meet();
		CHECK(!completion(NULL, FI_TAGGED | FI_SEND));
	} else {
		meet();
		AGAIN(fi_trecv(ep, mem, LONG, NULL, peer, 1000, 0, NULL));
		while (fi_cq_read(rxcq, &e, 1) == -FI_EAGAIN)
			sched_yield();
	}
	meet();
}

/* More atomic operations than may be in progress, from and to both processes. */
static void case_many(void)
{
	enum { TIMES = 5000 };
	static uint64_t old[TIMES];
	uint64_t one = 1;
	unsigned done = 0, asked = 0;
	long ret;

	while (done < TIMES) {
		struct fi_cq_data_entry e[16];
		if (asked < TIMES) {
			ret = fi_fetch_atomic(ep, &one, 1, NULL, &old[asked], NULL, peer, 512, KEY,
					      FI_UINT64, FI_SUM, NULL);
			CHECK(!ret || ret == -FI_EAGAIN);
			asked += !ret;
			if (!ret)
				continue;
		}
		ret = fi_cq_read(txcq, e, 16);
		CHECK(ret > 0 || ret == -FI_EAGAIN);
		done += ret > 0 ? (unsigned)ret : 0;
		if (ret < 0)
			sched_yield();
	}
	for (unsigned i = 0; i < TIMES; i++)
		CHECK(old[i] == i);
	meet();
	CHECK(*(uint64_t *)(mem + 512) == TIMES);
}

/* The target dies: operations on it fail, and none waits for ever. */
static void case_death(void)
{
	if (!origin) {
		meet();
		raise(SIGKILL);
	}
	uint64_t v = 1, old;
	/* The two sides exchange a first packet. */
	AGAIN(fi_write(ep, local, 8, NULL, peer, 0, KEY, NULL));
	CHECK(!completion(NULL, FI_RMA | FI_WRITE));
	meet();
	for (int i = 0; i < 3; i++) {
		long ret;
		while ((ret = fi_fetch_atomic(ep, &v, 1, NULL, &old, NULL, peer, 0, KEY, FI_UINT64,
					      FI_SUM, &v)) == -FI_EAGAIN)
			sched_yield();
		error_of(ret, &v);
	}
	exit(0);
}

/* The target dies while a process that waits for its answer sleeps. */
static void case_asleep(void)
{
	uint64_t one = 1, old, before = fi_cntr_read(reads);

	/* The two sides exchange a first packet. */
	if (origin) {
		AGAIN(fi_write(ep, local, 8, NULL, peer, 0, KEY, NULL));
		CHECK(!completion(NULL, FI_RMA | FI_WRITE));
	}
	meet();
	if (!origin) {
		alarm(1);
		for (;;)
			pause();
	}
	AGAIN(fi_fetch_atomic(ep, &one, 1, NULL, &old, NULL, peer, 0, KEY, FI_UINT64, FI_SUM, &one));
	CHECK(fi_cntr_wait(reads, before + 1, 60000) == -FI_EAVAIL);
	CHECK(completion(&one, FI_ATOMIC | FI_READ));
	exit(0);
}

/* The next failure of a receive. */
static struct fi_cq_err_entry failed_receive(void)
{
	struct fi_cq_data_entry e;
	struct fi_cq_err_entry f = { 0 };
	long ret;

	while ((ret = fi_cq_read(rxcq, &e, 1)) == -FI_EAGAIN)
		sched_yield();
	CHECK(ret == -FI_EAVAIL && fi_cq_readerr(rxcq, &f, 0) == 1);
	return f;
}

static void offer(size_t at, fi_addr_t from, void *context)
{
	struct iovec iov = { mem + at, 4096 };
	struct fi_msg msg = { &iov, NULL, 1, from, context, 0 };

	OK(fi_recvmsg(ep, &msg, FI_MULTI_RECV));
}

/* The target dies: receives of its messages that wait after a buffer for many fail. Messages
 * that it had sent before are received, and the buffer, which takes messages of all, stays. */
static void case_behind(void)
{
	static int context[4];
	struct fi_cq_data_entry e;
	struct fi_cq_err_entry f;
	char c = 'x';

	/* The two sides exchange a first packet. */
	if (origin) {
		AGAIN(fi_write(ep, local, 8, NULL, peer, 0, KEY, NULL));
		CHECK(!completion(NULL, FI_RMA | FI_WRITE));
	}
	meet();
	if (!origin) {
		AGAIN(fi_send(ep, &c, 1, NULL, peer, &c));
		CHECK(!completion(&c, FI_MSG | FI_SEND));
		meet();
		raise(SIGKILL);
	}
	offer(0, FI_ADDR_UNSPEC, context);
	OK(fi_recv(ep, mem + 4096, 8, NULL, peer, context + 1));
	offer(8192, peer, context + 2);
	while (fi_cq_read(rxcq, &e, 1) != 1)
		sched_yield();
	CHECK(e.op_context == context && e.len == 1 && mem[0] == 'x');
	meet();
	f = failed_receive();
	CHECK(f.op_context == context + 1 && f.err != FI_ECANCELED);
	CHECK(f.flags == (FI_RECV | FI_MSG));
	f = failed_receive();
	CHECK(f.op_context == context + 2 && f.err != FI_ECANCELED);
	CHECK(f.flags == (FI_RECV | FI_MSG | FI_MULTI_RECV));
	/* This receive is posted later. */
	OK(fi_recv(ep, mem + 4096, 8, NULL, peer, context + 3));
	CHECK(failed_receive().op_context == context + 3);
	OK(fi_cancel(&ep->fid, context));
	f = failed_receive();
	CHECK(f.op_context == context && f.err == FI_ECANCELED);
	exit(0);
}

/* Counters of peers' operations on memory here, of the endpoint and of the region. */
static void case_events(void)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct fid_cntr *written, *read_, *of_region;
	struct fid_ep *e;
	uint64_t v = 1, old;
	fi_addr_t to;

	OK(fi_cntr_open(domain, &attr, &written, NULL));
	OK(fi_cntr_open(domain, &attr, &read_, NULL));
	OK(fi_cntr_open(domain, &attr, &of_region, NULL));
	OK(fi_ep_bind(ep, &written->fid, FI_REMOTE_WRITE));
	OK(fi_ep_bind(ep, &read_->fid, FI_REMOTE_READ));
	OK(fi_mr_bind(mr, &of_region->fid, FI_REMOTE_WRITE));
	meet();
	e = ep;
	to = peer;
	if (origin) {
		for (int i = 0; i < 3; i++) {
			AGAIN(fi_write(e, local, 64, NULL, to, 0, KEY, NULL));
			CHECK(!completion(NULL, FI_RMA | FI_WRITE));
		}
		AGAIN(fi_read(e, local, 64, NULL, to, 0, KEY, NULL));
		CHECK(!completion(NULL, FI_RMA | FI_READ));
		AGAIN(fi_read(e, local, 64, NULL, to, 0, READ_ONLY, NULL));
		CHECK(!completion(NULL, FI_RMA | FI_READ));
		AGAIN(fi_fetch_atomic(e, &v, 1, NULL, &old, NULL, to, 0, KEY, FI_UINT64, FI_SUM, NULL));
		CHECK(!completion(NULL, FI_ATOMIC | FI_READ));
		/* A refused operation is not counted. */
		AGAIN(fi_write(e, local, 64, NULL, to, 0, READ_ONLY, NULL));
		CHECK(completion(NULL, FI_RMA | FI_WRITE));
	} else {
		while (fi_cntr_read(written) < 4 || fi_cntr_read(read_) < 2)
			sched_yield();
		CHECK(fi_cntr_read(of_region) == 4);
	}
	meet();
	CHECK(fi_cntr_read(written) == (origin ? 0 : 4) && fi_cntr_read(read_) == (origin ? 0 : 2));
	OK(fi_close(&mr->fid));
	mr = NULL;
	OK(fi_close(&of_region->fid));
	OK(fi_close(&ep->fid));
	OK(fi_close(&second->fid));
	exit(0);
}

/* One side is absent: its messages arrive all the same, though frames are lost; and the other's
 * operations on its memory are executed. */
static void case_away(void)
{
	enum { MESSAGES = 300 };
	char c = 'x';

	if (origin) {
		for (int i = 0; i < MESSAGES; i++)
			AGAIN(fi_tinject(ep, &i, sizeof(i), peer, (uint64_t)i));
		away();
		memset(local, 7, 1 << 20);
		AGAIN(fi_write(ep, local, 1 << 20, NULL, peer, 0, KEY, local));
		CHECK(!completion(local, FI_RMA | FI_WRITE));
		AGAIN(fi_read(ep, local + SIZE / 2, 1 << 20, NULL, peer, 0, KEY, local));
		CHECK(!completion(local, FI_RMA | FI_READ));
		CHECK(!memcmp(local, local + SIZE / 2, 1 << 20));
		put(&c, 1);
		return;
	}
	for (int i = 0; i < MESSAGES; i++) {
		struct fi_cq_data_entry e;
		int got = -1;
		long ret;

		OK(fi_trecv(ep, &got, sizeof(got), NULL, FI_ADDR_UNSPEC, (uint64_t)i, 0, &got));
		while ((ret = fi_cq_read(rxcq, &e, 1)) == -FI_EAGAIN)
			sched_yield();
		CHECK(ret == 1 && got == i);
	}
	put(&c, 1);
	away();
}

/* The next completion of a receive. */
static void received(size_t len)
{
	struct fi_cq_data_entry e;
	long ret;

	while ((ret = fi_cq_read(rxcq, &e, 1)) == -FI_EAGAIN)
		sched_yield();
	CHECK(ret == 1 && e.len == len);
}

static void post(size_t len, int tagged)
{
	if (tagged)
		OK(fi_trecv(ep, mem, len, NULL, peer, 7, 0, NULL));
	else
		OK(fi_recv(ep, mem, len, NULL, peer, NULL));
}

/* Data of messages comes with them, whatever their length, form and order with their receive. */
static void case_message_data(void)
{
	static const size_t sizes[] = { 0, 8, 1000, 5000, 20000, 300000 };
	enum { SIZES = sizeof(sizes) / sizeof(*sizes), FORMS = 3 };

	CHECK(info->domain_attr->cq_data_size == 8);
	for (uint64_t i = 0; i < FORMS * 4 * SIZES; i++) {
		size_t len = sizes[i % SIZES];
		int tagged = i / SIZES % 2, late = i / (2 * SIZES) % 2;
		uint64_t form = i / (4 * SIZES), kind = tagged ? FI_TAGGED : FI_MSG;
		uint64_t how = FI_REMOTE_CQ_DATA | FI_COMPLETION | FI_DELIVERY_COMPLETE;
		struct iovec iov = { local, len };
		struct fi_msg m = { &iov, NULL, 1, peer, &how, data_of(i) };
		struct fi_msg_tagged t = { &iov, NULL, 1, peer, 7, 0, &how, data_of(i) };
		struct fi_cq_data_entry e;
		int injected = form == 0 && len <= info->tx_attr->inject_size;
		long ret;
		char c = 'x';

		if (!origin && !late)
			post(len, tagged);
		meet();
		if (origin) {
			if (injected && tagged)
				AGAIN(fi_tinjectdata(ep, local, len, data_of(i), peer, 7));
			else if (injected)
				AGAIN(fi_injectdata(ep, local, len, data_of(i), peer));
			else if (form < 2 && tagged)
				AGAIN(fi_tsenddata(ep, local, len, NULL, data_of(i), peer, 7, &how));
			else if (form < 2)
				AGAIN(fi_senddata(ep, local, len, NULL, data_of(i), peer, &how));
			else if (tagged)
				AGAIN(fi_tsendmsg(ep, &t, how));
			else
				AGAIN(fi_sendmsg(ep, &m, how));
			put(&c, 1);
			if (!injected)
				CHECK(!completion(&how, kind | FI_SEND));
			continue;
		}
		get(&c, 1);
		if (late)
			post(len, tagged);
		while ((ret = fi_cq_read(rxcq, &e, 1)) == -FI_EAGAIN)
			sched_yield();
		CHECK(ret == 1 && e.len == len && e.data == data_of(i));
		CHECK(e.flags == (kind | FI_RECV | FI_REMOTE_CQ_DATA));
	}
}

/* One side has begun to send or receive a long message, or gets a request for an atomic
 * operation, and computes. With SERVED a thread of its process answers the other side; else
 * nothing happens until its next call. */
static void case_computes(void)
{
	enum { LONG = 4 << 20 };
	int served = getenv("SERVED") != NULL;
	struct fi_cq_data_entry e;
	uint64_t one = 1, old = 77;
	char c = 'x';

	alarm(60);
	meet();
	for (uint64_t what = 0; what < 3; what++) {
		if (!origin) {
			pattern(local, LONG, 1);
			if (what == 0)
				AGAIN(fi_tsend(ep, local, LONG, NULL, peer, what, &c));
			if (what == 1)
				OK(fi_trecv(ep, mem, LONG, NULL, peer, what, 0, &c));
			put(&c, 1);
			away();
			if (what == 0)
				CHECK(!completion(&c, FI_TAGGED | FI_SEND));
			if (what == 1)
				received(LONG);
			CHECK(what != 1 || is_pattern(mem, LONG, 2));
			memset(mem, 0, 8);
			meet();
			continue;
		}
		get(&c, 1);
		pattern(local, LONG, 2);
		if (what == 0)
			OK(fi_trecv(ep, mem, LONG, NULL, peer, what, 0, &c));
		if (what == 1)
			AGAIN(fi_tsend(ep, local, LONG, NULL, peer, what, &c));
		if (what == 2)
			AGAIN(fi_fetch_atomic(ep, &one, 1, NULL, &old, NULL, peer, 0, KEY, FI_UINT64,
					      FI_SUM, &c));
		for (int n = 0; !served && n < 3000; n++) {
			CHECK(fi_cq_read(txcq, &e, 1) == -FI_EAGAIN);
			CHECK(fi_cq_read(rxcq, &e, 1) == -FI_EAGAIN);
		}
		if (!served)
			put(&c, 1);
		if (what == 0)
			received(LONG);
		else
			CHECK(!completion(&c, what == 1 ? FI_TAGGED | FI_SEND : FI_ATOMIC | FI_READ));
		CHECK(what != 0 || is_pattern(mem, LONG, 1));
		CHECK(what != 2 || old == 0);
		if (served)
			put(&c, 1);
		meet();
	}
}

/* A message sent with FI_DELIVERY_COMPLETE; the first of them from a copy. */
static void deliver(const void *from, size_t len, uint64_t tag, void *context)
{
	struct iovec iov = { (void *)from, len };
	struct fi_msg_tagged m = { &iov, NULL, 1, peer, tag, 0, context, 0 };

	AGAIN(fi_tsendmsg(ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE | (tag ? 0 : FI_INJECT)));
}

/* A message with FI_DELIVERY_COMPLETE, with tags and without, received already or not, has
 * arrived when it completes: not before its target has made progress. */
static void case_taken(void)
{
	static const size_t sizes[] = { 0, 8, 24, 1000, 4000, 16000 };
	enum { SIZES = sizeof(sizes) / sizeof(*sizes), ROOM = 16384 };
	struct fi_cq_data_entry e;
	unsigned char *at = local;
	char c = 'x';

	if (origin) {
		/* The two sides exchange a first packet. */
		AGAIN(fi_write(ep, local, 8, NULL, peer, 0, KEY, NULL));
		CHECK(!completion(NULL, FI_RMA | FI_WRITE));
		part(0);
		for (size_t i = 0; i < 2 * SIZES; i++, at += ROOM) {
			pattern(at, sizes[i % SIZES], (unsigned)i);
			deliver(at, sizes[i % SIZES], i, NULL);
		}
		struct fi_msg m = { &(struct iovec){ at, ROOM }, NULL, 1, peer, NULL, 0 };
		AGAIN(fi_sendmsg(ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE));
		for (int n = 0; n < 3000; n++)
			CHECK(fi_cq_read(txcq, &e, 1) == -FI_EAGAIN);
		put(&c, 1);
		for (size_t i = 0; i < 2 * SIZES; i++)
			CHECK(!completion(NULL, FI_TAGGED | FI_SEND));
		CHECK(!completion(NULL, FI_MSG | FI_SEND));
		meet();
		return;
	}
	/* The first are received already. */
	for (size_t i = 0; i < SIZES; i++)
		OK(fi_trecv(ep, mem + i * ROOM, ROOM, NULL, peer, i, 0, NULL));
	part(1);
	/* Makes progress; waits for no completion. */
	get(&c, 1);
	for (size_t i = 0; i < SIZES; i++)
		CHECK(is_pattern(mem + i * ROOM, sizes[i], (unsigned)i));
	put(&c, 1);
	for (size_t i = SIZES; i < 2 * SIZES; i++)
		OK(fi_trecv(ep, mem + i * ROOM, ROOM, NULL, peer, i, 0, NULL));
	OK(fi_recv(ep, mem + 2 * SIZES * ROOM, ROOM, NULL, peer, NULL));
	for (size_t i = 0; i <= 2 * SIZES; i++) {
		while (fi_cq_read(rxcq, &e, 1) == -FI_EAGAIN)
			sched_yield();
	}
	for (size_t i = SIZES; i < 2 * SIZES; i++)
		CHECK(is_pattern(mem + i * ROOM, sizes[i % SIZES], (unsigned)i));
}

/* A write with FI_DELIVERY_COMPLETE and data is complete when the data has arrived too: its
 * origin makes no progress after that. */
static void case_notified(void)
{
	enum { ROUNDS = 100 };
	char c = 'x';

	alarm(60);
	for (uint64_t i = 0; i < ROUNDS; i++) {
		struct fi_rma_iov there = { 64, 8, KEY };
		struct fi_msg_rma m = { &(struct iovec){ local, 8 }, NULL, 1, peer, &there, 1, NULL, i };
		struct fi_cq_data_entry e;

		if (origin) {
			AGAIN(fi_writemsg(ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA));
			CHECK(!completion(NULL, FI_RMA | FI_WRITE));
			put(&c, 1);
			away();
			continue;
		}
		get(&c, 1);
		while (fi_cq_read(rxcq, &e, 1) == -FI_EAGAIN)
			sched_yield();
		CHECK(e.data == i && e.len == 8);
		put(&c, 1);
	}
}

/* A message whose delivery was reported arrives though its sender died at once, before the
 * target had asked for it. Later operations fail with an error that names the rank. */
static void case_delivered(void)
{
	static const size_t sizes[] = { 0, 8, 1000, 4000 };
	enum { SIZES = sizeof(sizes) / sizeof(*sizes) };
	struct fi_cq_data_entry e;
	struct fi_cq_err_entry f = { 0 };
	char text[200], process[40], c = 'x';
	struct pollfd p = { turns, POLLIN, 0 };
	pid_t child;
	long ret;

	if (!origin) {
		child = getpid();
		put(&child, sizeof(child));
		/* The two sides exchange a first packet. */
		deliver("", 0, 100, &c);
		CHECK(!completion(&c, FI_TAGGED | FI_SEND));
		part(0);
		for (size_t i = 0; i < SIZES; i++) {
			pattern(local, sizes[i], (unsigned)i);
			deliver(local, sizes[i], i, &c);
			/* Nothing arrives before the other side makes progress. */
			for (int n = 0; !i && n < 300; n++)
				CHECK(fi_cq_read(txcq, &e, 1) == -FI_EAGAIN);
			if (!i)
				put(&c, 1);
			CHECK(!completion(&c, FI_TAGGED | FI_SEND));
		}
		raise(SIGKILL);
	}
	get(&child, sizeof(child));
	OK(fi_trecv(ep, mem, 0, NULL, peer, 100, 0, NULL));
	while (fi_cq_read(rxcq, &e, 1) != 1)
		sched_yield();
	part(1);
	while (poll(&p, 1, 0) == 0) {
		CHECK(fi_cq_read(txcq, &e, 1) == -FI_EAGAIN);
		sched_yield();
	}
	CHECK(read(turns, &c, 1) <= 0);
	for (size_t i = 0; i < SIZES; i++) {
		OK(fi_trecv(ep, mem, SIZE, NULL, FI_ADDR_UNSPEC, i, 0, NULL));
		while ((ret = fi_cq_read(rxcq, &e, 1)) == -FI_EAGAIN)
			sched_yield();
		CHECK(ret == 1 && e.len == sizes[i] && is_pattern(mem, sizes[i], (unsigned)i));
	}
	do {
		AGAIN(fi_tsend(ep, local, 8, NULL, peer, 7, &c));
		while ((ret = fi_cq_read(txcq, &e, 1)) == -FI_EAGAIN)
			sched_yield();
	} while (ret == 1);
	CHECK(ret == -FI_EAVAIL && fi_cq_readerr(txcq, &f, 0) == 1 && f.op_context == &c);
	CHECK(fi_cq_strerror(txcq, f.prov_errno, f.err_data, text, sizeof(text)) == text);
	snprintf(process, sizeof(process), "rank 1 (process %d on ", (int)child);
	if (!strstr(text, process))
		fprintf(stderr, "expected %s: %s\n", process, text);
	CHECK(strstr(text, process) && strstr(text, getenv("FAILURE")));
	/* The text is cut to the room of the caller. */
	CHECK(fi_cq_strerror(txcq, f.prov_errno, f.err_data, text, 7) == text);
	CHECK(!strcmp(text, "rank 1"));
	exit(0);
}

/* A message that its sender has announced and then abandoned: closing leaves time to fetch it. */
static void case_left(void)
{
	struct fi_cq_data_entry e;
	char c = 'x';
	long ret;

	if (!origin) {
		AGAIN(fi_tsend(ep, local, SIZE, NULL, peer, 1, NULL));
		put(&c, 1);
		OK(fi_close(&ep->fid));
		_exit(0);
	}
	alarm(60);
	get(&c, 1);
	for (int i = 0; i < 1000; i++)
		CHECK(fi_cq_read(txcq, &e, 1) == -FI_EAGAIN);
	OK(fi_trecv(ep, mem, SIZE, NULL, peer, 1, 0, &c));
	while ((ret = fi_cq_read(rxcq, &e, 1)) == -FI_EAGAIN)
		sched_yield();
	CHECK(ret == 1 && e.len == SIZE);
	exit(0);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "write", case_write },	     { "everywhere", case_everywhere },
	{ "pieces", case_pieces },	     { "data", case_data },
	{ "refused", case_refused },	     { "closed", case_closed },
	{ "twice", case_twice },	     { "vanished", case_vanished },
	{ "atomic", case_atomic },	     { "valid", case_valid },
	{ "atomic_pieces", case_atomic_pieces }, { "order", case_order },
	{ "many", case_many },		     { "death", case_death },
	{ "away", case_away },		     { "events", case_events },
	{ "fence", case_fence },	     { "delivered", case_delivered },
	{ "left", case_left },		     { "asleep", case_asleep },
	{ "behind", case_behind },	     { "taken", case_taken },
	{ "notified", case_notified },	     { "computes", case_computes },
	{ "message_data", case_message_data },
};

int main(int argc, char **argv)
{
	int pair[2], status = 0;
	pid_t child;

	CHECK(argc == 2 && !socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	alarm(300);
	child = fork();
	CHECK(child >= 0);
	origin = child != 0;
	turns = pair[!origin];
	close(pair[origin]);
	if (!origin)
		alarm(300);
	setenv("PMI_RANK", origin ? "0" : "1", 1);
	start();
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (!strcmp(cases[i].name, argv[1]))
			cases[i].run();
	finish();
	if (origin) {
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && !WEXITSTATUS(status));
		printf("%s: well\n", argv[1]);
	}
	return 0;
}
