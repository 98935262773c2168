/* Behaviour that programs rely on, by case: `provider CASE`. */
#include "sides.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct setup s;
static char buf[1 << 16];
static int context[8];

/* Callers allocate buffers for as many operations as are offered: not for the maximum. */
static void depth(void)
{
	struct fi_info *hints = hints_of(FI_MSG), *info;

	CHECK(!fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	CHECK(info->tx_attr->size <= 4096 && info->rx_attr->size <= 4096);
	fi_freeinfo(info);
	hints->tx_attr->size = 20000;
	CHECK(!fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	CHECK(info->tx_attr->size >= 20000 && info->rx_attr->size <= 4096);
	fi_freeinfo(info);
	fi_freeinfo(hints);
}

/* Each part of the answer names only capabilities of its kind, and only what was asked for. */
static void capabilities(void)
{
	uint64_t any = FI_SEND | FI_RECV | FI_SOURCE | FI_MULTI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM;
	struct fi_info *hints = hints_of(FI_TAGGED), *info;

	CHECK(!fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	CHECK((info->caps & ~any) == FI_TAGGED);
	CHECK(!(info->tx_attr->caps & ~(FI_TAGGED | FI_SEND)));
	CHECK(!(info->rx_attr->caps & ~(FI_TAGGED | FI_RECV | FI_SOURCE | FI_MULTI_RECV)));
	fi_freeinfo(info);
	hints->domain_attr->name = strdup("elsewhere");
	CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info) == -FI_ENODATA);
	fi_freeinfo(hints);
}

/* A request as a system with a choice of providers makes it. */
struct request {
	const char *from;
	uint32_t api;
	uint64_t caps, mode, order, op_flags;
	int mr_mode, threading;
	size_t key;
	int answer;
};

/* The requests of systems of others, with the answer that each needs to use the provider, or to try
 * its next request. */
static void callers(void)
{
	int nccl_mr = FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	uint64_t nccl = FI_LOCAL_COMM | FI_REMOTE_COMM | FI_TAGGED | FI_MSG;
	uint64_t two = FI_CONTEXT | FI_CONTEXT2;
	uint64_t nixl = FI_LOCAL_COMM | FI_REMOTE_COMM | FI_MSG | FI_RMA;
	int nixl_mr = FI_MR_LOCAL | FI_MR_HMEM | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	int safe = FI_THREAD_SAFE, own = FI_MR_PROV_KEY | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR;
	const struct request requests[] = {
		{ "aws-ofi-nccl, cards", FI_VERSION(1, 6), nccl | FI_HMEM | FI_RMA | FI_READ, two,
		  FI_ORDER_SAS, 0, nccl_mr | FI_MR_HMEM, safe, 2, -FI_ENODATA },
		{ "aws-ofi-nccl", FI_VERSION(1, 6), nccl, two, FI_ORDER_SAS, 0, nccl_mr, safe, 2, 0 },
		{ "NIXL, list", FI_VERSION(1, 17), nixl, FI_CONTEXT, 0, 0, ~3, 0, 0, 0 },
		{ "NIXL, cards", FI_VERSION(1, 17), nixl | FI_HMEM, FI_CONTEXT, 0, 0, nixl_mr,
		  FI_THREAD_COMPLETION, 2, -FI_ENODATA },
		{ "NIXL", FI_VERSION(1, 17), nixl, FI_CONTEXT, 0, 0, nixl_mr, FI_THREAD_COMPLETION, 2, 0 },
		{ "Lamellar", FI_VERSION(1, 17), FI_RMA | FI_ATOMIC | FI_COLLECTIVE, FI_CONTEXT, 0,
		  FI_DELIVERY_COMPLETE, own, 0, 0, 0 },
		{ "LCI", FI_VERSION(1, 6), FI_RMA | FI_MSG, 0, 0, 0, own, safe, 0, 0 },
		{ "Charm++ 7", FI_VERSION(1, 0), FI_TAGGED | FI_RMA | FI_REMOTE_READ, FI_CONTEXT, 0, 0, 0, 0,
		  0, 0 },
	};

	for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
		const struct request *r = &requests[i];
		struct fi_info *hints = hints_of(r->caps), *info = NULL;
		int answer;

		hints->mode = r->mode;
		hints->tx_attr->msg_order = r->order;
		hints->rx_attr->msg_order = r->order;
		hints->tx_attr->op_flags = r->op_flags;
		hints->domain_attr->mr_mode = r->mr_mode;
		hints->domain_attr->mr_key_size = r->key;
		hints->domain_attr->threading = r->threading;
		answer = fi_getinfo(r->api, NULL, NULL, 0, hints, &info);
		if (answer != r->answer)
			fprintf(stderr, "%s: %s\n", r->from, fi_strerror(-answer));
		CHECK(answer == r->answer);
		CHECK(!info || (info->caps & r->caps) == r->caps);
		fi_freeinfo(info);
		fi_freeinfo(hints);
	}
}

static void vector(void)
{
	char found[2 * NAME], bad[NAME] = { 1, 2, 3 };
	fi_addr_t again, numbers[2];
	size_t len = sizeof(found);
	int errors[2];

	open_both(&s, FI_WAIT_NONE);
	CHECK(!fi_av_lookup(s.a.av, s.a.peer, found, &len));
	CHECK(len == NAME && !memcmp(found, s.b.name, NAME));
	CHECK(fi_av_lookup(s.a.av, 17, found, &len) == -FI_EINVAL);
	CHECK(fi_av_lookup(s.a.av, FI_ADDR_NOTAVAIL, found, &len) == -FI_EINVAL);
	CHECK(fi_av_insert(s.a.av, s.b.name, 1, NULL, 0, NULL) == 1);
	CHECK(!fi_av_remove(s.a.av, &s.a.peer, 1, 0));
	CHECK(!fi_av_lookup(s.a.av, s.a.peer, found, &len));
	CHECK(!fi_av_remove(s.a.av, &s.a.peer, 1, 0));
	CHECK(fi_av_remove(s.a.av, &s.a.peer, 1, 0) == -FI_EINVAL);
	CHECK(fi_av_lookup(s.a.av, s.a.peer, found, &len) == -FI_EINVAL);
	CHECK(fi_tinject(s.a.ep, buf, 1, s.a.peer, 1) == -FI_EINVAL);
	CHECK(fi_av_insert(s.a.av, s.b.name, 1, &again, 0, NULL) == 1);
	CHECK(!fi_tinject(s.a.ep, "x", 1, again, 1));
	CHECK(!fi_trecv(s.b.ep, buf, 1, NULL, s.b.peer, 1, 0, context));
	CHECK(done(&s, &s.b).len == 1 && buf[0] == 'x');

	memcpy(found, bad, NAME);
	memcpy(found + NAME, s.a.name, NAME);
	CHECK(fi_av_insert(s.a.av, found, 2, numbers, FI_SYNC_ERR, errors) == 1);
	CHECK(errors[0] && numbers[0] == FI_ADDR_NOTAVAIL && !errors[1]);
	close_both(&s);
}

/* Insertions that report to an event queue. */
static void vector_events(void)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE, .flags = FI_EVENT };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_err_entry failure = { 0 };
	struct fi_eq_entry entry;
	struct fid_av *av;
	struct fid_eq *eq;
	char names[2 * NAME] = { 0 };
	fi_addr_t numbers[2];
	uint32_t event;

	open_both(&s, FI_WAIT_NONE);
	CHECK(!fi_av_open(s.domain, &attr, &av, NULL));
	CHECK(fi_av_insert(av, s.b.name, 1, numbers, 0, context) == -FI_ENOEQ);
	CHECK(!fi_eq_open(s.fabric, &eq_attr, &eq, NULL));
	CHECK(!fi_av_bind(av, &eq->fid, 0));
	memcpy(names + NAME, s.b.name, NAME);
	CHECK(!fi_av_insert(av, names, 2, numbers, 0, context));
	CHECK(fi_eq_sread(eq, &event, &entry, sizeof(entry), 300000, 0) == -FI_EAVAIL);
	CHECK(fi_eq_readerr(eq, &failure, 0) == sizeof(failure));
	CHECK(failure.data == 0 && failure.context == context && failure.err);
	CHECK(fi_eq_sread(eq, &event, &entry, sizeof(entry), 300000, 0) == sizeof(entry));
	CHECK(event == FI_AV_COMPLETE && entry.context == context && entry.data == 1);
	CHECK(entry.fid == &av->fid);
	CHECK(fi_eq_sread(eq, &event, &entry, sizeof(entry), 0, 0) == -FI_EAGAIN);
	CHECK(fi_close(&eq->fid) == -FI_EBUSY);
	CHECK(!fi_close(&av->fid));
	CHECK(!fi_close(&eq->fid));
	close_both(&s);
}

static ssize_t look(uint64_t tag, uint64_t flags, void *to, size_t len, void *ctx)
{
	struct iovec iov = { to, len };
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .iov_count = to ? 1 : 0, .addr = s.b.peer, .tag = tag, .context = ctx,
	};

	return fi_trecvmsg(s.b.ep, &msg, flags);
}

static void peek(void)
{
	struct fi_cq_tagged_entry e;

	open_both(&s, FI_WAIT_NONE);
	CHECK(!look(1, FI_PEEK, NULL, 0, context));
	CHECK(failed(&s, &s.b).err == FI_ENOMSG);
	CHECK(!fi_tinjectdata(s.a.ep, "one", 3, 77, s.a.peer, 1));
	CHECK(!fi_tinject(s.a.ep, "two", 3, s.a.peer, 2));
	CHECK(!fi_tinject(s.a.ep, "three", 5, s.a.peer, 3));
	/* The message of a later number has arrived, so all before it have. */
	while (look(3, FI_PEEK, NULL, 0, context), fi_cq_read(s.b.cq, &e, 1) == -FI_EAVAIL) {
		CHECK(failed(&s, &s.b).err == FI_ENOMSG);
		CHECK(fi_cq_read(s.a.cq, NULL, 0) <= 0);
	}
	CHECK(!look(1, FI_PEEK, NULL, 0, context + 1));
	e = done(&s, &s.b);
	CHECK(e.op_context == context + 1 && e.len == 3 && e.tag == 1);
	CHECK(e.data == 77 && e.flags & FI_REMOTE_CQ_DATA);
	CHECK(!look(1, FI_PEEK | FI_CLAIM, NULL, 0, context + 1));
	CHECK(done(&s, &s.b).len == 3);
	/* The message is claimed, so no other peek finds it. */
	CHECK(!look(1, FI_PEEK, NULL, 0, context + 2));
	CHECK(failed(&s, &s.b).err == FI_ENOMSG);
	CHECK(!look(1, FI_CLAIM, buf, sizeof(buf), context + 1));
	e = done(&s, &s.b);
	CHECK(e.op_context == context + 1 && e.len == 3 && !memcmp(buf, "one", 3));
	CHECK(!look(2, FI_PEEK | FI_DISCARD, NULL, 0, context));
	CHECK(done(&s, &s.b).tag == 2);
	CHECK(!look(2, FI_PEEK, NULL, 0, context));
	CHECK(failed(&s, &s.b).err == FI_ENOMSG);
	CHECK(!look(3, FI_PEEK | FI_CLAIM, NULL, 0, context));
	CHECK(done(&s, &s.b).tag == 3);
	CHECK(!look(3, FI_CLAIM | FI_DISCARD, NULL, 0, context));
	CHECK(done(&s, &s.b).op_context == context);
	close_both(&s);
}

/* A program that does nothing but peek says for what it waits, as MPI_Probe has it wait. */
static void peek_waits(void)
{
	static const char wanted[] = "for a message with tag 0x51 from ";
	time_t start = time(NULL);
	size_t have = 0;
	int ends[2];

	CHECK(!setenv("WEFT_WARN_AFTER_MS", "200", 1));
	CHECK(!pipe(ends) && !fcntl(ends[0], F_SETFL, O_NONBLOCK));
	open_both(&s, FI_WAIT_NONE);
	CHECK(dup2(ends[1], 2) == 2);
	for (;;) {
		ssize_t n = read(ends[0], buf + have, sizeof(buf) - 1 - have);

		have += n > 0 ? (size_t)n : 0;
		if (strstr(buf, wanted))
			break;
		if (time(NULL) - start > 300)
			exit(1);
		CHECK(!look(0x51, FI_PEEK, NULL, 0, context));
		CHECK(failed(&s, &s.b).err == FI_ENOMSG);
	}
	close_both(&s);
}

static void cancel(void)
{
	struct fi_cq_err_entry e;
	struct {
		struct fi_cq_err_entry e;
		char behind[16];
	} room;
	size_t end = offsetof(struct fi_cq_err_entry, err_data_size) + sizeof(size_t);

	open_both(&s, FI_WAIT_NONE);
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, s.b.peer, 5, 0, context));
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, s.b.peer, 6, 0, context + 1));
	CHECK(!fi_cancel(&s.b.ep->fid, context));
	e = failed(&s, &s.b);
	CHECK(e.err == FI_ECANCELED && e.op_context == context);
	CHECK(!fi_cancel(&s.b.ep->fid, context));
	CHECK(fi_cq_read(s.b.cq, NULL, 0) == -FI_EAGAIN);
	CHECK(!fi_tinject(s.a.ep, "six", 3, s.a.peer, 6));
	CHECK(done(&s, &s.b).op_context == context + 1);
	/* An error entry is no longer than callers of this version expect. */
	memset(&room, 0x5a, sizeof(room));
	room.e.err_data_size = 0;
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, s.b.peer, 7, 0, context));
	CHECK(!fi_cancel(&s.b.ep->fid, context));
	while (fi_cq_readerr(s.b.cq, &room.e, 0) != 1)
		CHECK(fi_cq_read(s.b.cq, NULL, 0) <= 0);
	CHECK(room.e.err == FI_ECANCELED && room.e.op_context == context);
	for (size_t i = end; i < sizeof(room); i++)
		CHECK(((char *)&room)[i] == 0x5a);
	close_both(&s);
}

static void truncated(void)
{
	struct fi_cq_err_entry e;

	open_both(&s, FI_WAIT_NONE);
	CHECK(!fi_trecv(s.b.ep, buf, 4, NULL, s.b.peer, 5, 0, context));
	CHECK(!fi_tinject(s.a.ep, "message", 7, s.a.peer, 5));
	e = failed(&s, &s.b);
	CHECK(e.err == FI_ETRUNC && e.len == 4 && e.olen == 3 && e.tag == 5);
	CHECK(!memcmp(buf, "mess", 4));
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, s.b.peer, 5, 0, context));
	CHECK(!fi_tinject(s.a.ep, "message", 7, s.a.peer, 5));
	CHECK(done(&s, &s.b).len == 7);
	close_both(&s);
}

static void many_in_one_buffer(void)
{
	struct iovec iov = { buf, 100 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1, .context = context };
	struct fi_cq_tagged_entry e;
	size_t least = 40;
	char *at = buf;

	open_both(&s, FI_WAIT_NONE);
	msg.addr = FI_ADDR_UNSPEC;
	CHECK(!fi_setopt(&s.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)));
	CHECK(!fi_recvmsg(s.b.ep, &msg, FI_MULTI_RECV));
	for (int i = 0; i < 4; i++)
		CHECK(!fi_inject(s.a.ep, "abcdefghijklmnopqrst", 20, s.a.peer));
	for (int i = 0; i < 4; i++, at += 20) {
		e = done(&s, &s.b);
		CHECK(e.op_context == context && e.len == 20 && e.buf == at);
		CHECK(!memcmp(at, "abcdefghijklmnopqrst", 20));
		/* After the fourth fewer than forty bytes are left. */
		CHECK(!(e.flags & FI_MULTI_RECV) == (i < 3));
	}
	/* The buffer is given back: the next message goes to another. */
	CHECK(!fi_recv(s.b.ep, buf + 200, 20, NULL, FI_ADDR_UNSPEC, context + 1));
	CHECK(!fi_inject(s.a.ep, "z", 1, s.a.peer));
	CHECK(done(&s, &s.b).op_context == context + 1 && buf[200] == 'z');
	close_both(&s);
}

static void offer(char *at, size_t len, void *ctx)
{
	struct iovec iov = { at, len };
	struct fi_msg msg = { &iov, NULL, 1, FI_ADDR_UNSPEC, ctx, 0 };

	CHECK(!fi_recvmsg(s.b.ep, &msg, FI_MULTI_RECV));
}

/* Several buffers for many messages, and after them a receive for a single one: each message
 * goes to the right buffer, and each buffer is given back once. */
static void several_buffers(void)
{
	static char large[2][1 << 20];
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry failure;
	fi_addr_t from;
	size_t least = 10;
	int ends = 0;

	open_both(&s, FI_WAIT_NONE);
	CHECK(!fi_setopt(&s.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)));
	memset(large[0], 'l', sizeof(large[0]));
	/* A message that does not fit into the rest of the first goes whole into the second. */
	offer(buf, 100, context);
	offer(buf + 100, 100, context + 1);
	CHECK(!fi_recv(s.b.ep, buf + 200, 20, NULL, FI_ADDR_UNSPEC, context + 2));
	CHECK(!fi_inject(s.a.ep, large[0], 60, s.a.peer));
	e = done(&s, &s.b);
	CHECK(e.op_context == context && e.len == 60 && e.buf == buf && !(e.flags & FI_MULTI_RECV));
	CHECK(!fi_inject(s.a.ep, large[0], 50, s.a.peer));
	e = done(&s, &s.b);
	CHECK(e.op_context == context && e.len == 0 && e.flags & FI_MULTI_RECV);
	e = done(&s, &s.b);
	CHECK(e.op_context == context + 1 && e.len == 50 && e.buf == buf + 100);
	CHECK(!(e.flags & FI_MULTI_RECV) && !memcmp(buf + 100, large[0], 50));
	/* The rest of the second to the last byte, then the receive after it. */
	CHECK(!fi_inject(s.a.ep, large[0], 50, s.a.peer));
	CHECK(!fi_inject(s.a.ep, "z", 1, s.a.peer));
	e = done(&s, &s.b);
	CHECK(e.op_context == context + 1 && e.len == 50 && e.buf == buf + 150);
	CHECK(e.flags & FI_MULTI_RECV);
	e = done(&s, &s.b);
	CHECK(e.op_context == context + 2 && e.len == 1 && buf[200] == 'z');
	/* Longer than the whole buffer: cut, and the buffer is given back. */
	offer(buf, 8, context);
	CHECK(!fi_inject(s.a.ep, "twelve bytes", 12, s.a.peer));
	failure = failed(&s, &s.b);
	CHECK(failure.err == FI_ETRUNC && failure.op_context == context && failure.olen == 4);
	CHECK(failure.flags & FI_MULTI_RECV && !memcmp(buf, "twelve b", 8));
	/* Cancelled: a buffer that nothing went into, and one that something did. */
	offer(buf, 100, context);
	offer(buf + 100, 100, context + 1);
	CHECK(!fi_cancel(&s.b.ep->fid, context));
	failure = failed(&s, &s.b);
	CHECK(failure.err == FI_ECANCELED && failure.op_context == context);
	CHECK(failure.flags & FI_MULTI_RECV);
	CHECK(!fi_inject(s.a.ep, "one", 3, s.a.peer));
	CHECK(done(&s, &s.b).op_context == context + 1);
	CHECK(!fi_cancel(&s.b.ep->fid, context + 1));
	failure = failed(&s, &s.b);
	CHECK(failure.err == FI_ECANCELED && failure.op_context == context + 1);
	CHECK(failure.flags & FI_MULTI_RECV);
	/* Cancelled while a long message is on its way into it, or just before. */
	offer(large[1], sizeof(large[1]), context);
	CHECK(!fi_send(s.a.ep, large[0], sizeof(large[0]) - 20, NULL, s.a.peer, context + 1));
	CHECK(fi_cq_read(s.a.cq, NULL, 0) <= 0 && fi_cq_read(s.b.cq, NULL, 0) <= 0);
	CHECK(!fi_cancel(&s.b.ep->fid, context));
	do {
		ssize_t n = next(&s, &s.b, &e, &from, &failure);

		CHECK(n == 1 || (n == -FI_ECANCELED && failure.op_context == context));
		CHECK(n != 1 || e.len == 0 || !memcmp(large[0], large[1], e.len));
		ends += !!((n == 1 ? e.flags : failure.flags) & FI_MULTI_RECV);
	} while (!ends);
	/* No byte of it arrives after that; later messages go to another buffer. */
	CHECK(!fi_recv(s.b.ep, large[1], sizeof(large[1]), NULL, FI_ADDR_UNSPEC, context + 2));
	CHECK(!fi_inject(s.a.ep, "last", 4, s.a.peer));
	e = done(&s, &s.b);
	CHECK(e.op_context == context + 2);
	close_both(&s);
}

/* A buffer for messages of one sender leaves those of others to the receives after it. */
static void directed_buffer(void)
{
	struct iovec iov = { buf, 100 };
	struct fi_msg msg = { &iov, NULL, 1, 0, context, 0 };
	struct fi_cq_tagged_entry e;
	time_t start = time(NULL);
	int of[8] = { 0 };
	struct side c;

	open_both(&s, FI_WAIT_NONE);
	open_side(&s, &c, FI_WAIT_NONE);
	CHECK(fi_av_insert(c.av, s.b.name, 1, &c.peer, 0, NULL) == 1);
	msg.addr = s.b.peer;
	CHECK(!fi_recvmsg(s.b.ep, &msg, FI_MULTI_RECV));
	for (int i = 1; i < 3; i++)
		CHECK(!fi_recv(s.b.ep, buf + 100 * i, 9, NULL, FI_ADDR_UNSPEC, context + i));
	CHECK(!fi_inject(s.a.ep, "a", 1, s.a.peer));
	CHECK(!fi_inject(c.ep, "c", 1, c.peer));
	CHECK(!fi_inject(s.a.ep, "A", 1, s.a.peer));
	CHECK(!fi_inject(c.ep, "C", 1, c.peer));
	for (int found = 0; found < 4;) {
		ssize_t n = fi_cq_read(s.b.cq, &e, 1);

		CHECK(n == 1 || n == -FI_EAGAIN);
		CHECK(fi_cq_read(s.a.cq, NULL, 0) <= 0 && fi_cq_read(c.cq, NULL, 0) <= 0);
		CHECK(time(NULL) - start < 20);
		if (n == 1)
			of[(int *)e.op_context - context]++, found++;
	}
	CHECK(of[0] == 2 && of[1] == 1 && of[2] == 1);
	CHECK(!memcmp(buf, "aA", 2) && buf[100] == 'c' && buf[200] == 'C');
	close_side(&c);
	close_both(&s);
}

/* Receives are posted until there is no room for one more: messages for a buffer for many
 * and for a receive after it, and a claimed message, wait until there is. */
static void no_room(void)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry failure;
	uint64_t posted = 0;
	size_t least = 10;
	fi_addr_t from;
	int ended = 0;

	open_both(&s, FI_WAIT_NONE);
	CHECK(!fi_setopt(&s.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)));
	CHECK(!fi_tinject(s.a.ep, "claimed", 7, s.a.peer, 1));
	while (look(1, FI_PEEK | FI_CLAIM, NULL, 0, context), fi_cq_read(s.b.cq, &e, 1) == -FI_EAVAIL) {
		CHECK(failed(&s, &s.b).err == FI_ENOMSG);
		CHECK(fi_cq_read(s.a.cq, NULL, 0) <= 0);
	}
	CHECK(!fi_tinject(s.a.ep, "dropped", 7, s.a.peer, 2));
	while (!fi_trecv(s.b.ep, buf, 1, NULL, s.b.peer, 10 + posted, 0, context + 1))
		CHECK(++posted < 1 << 24);
	offer(buf, 20, context + 2);
	CHECK(!fi_recv(s.b.ep, buf + 100, 20, NULL, FI_ADDR_UNSPEC, context + 3));
	CHECK(!fi_inject(s.a.ep, "sixteen of twenty", 16, s.a.peer));
	CHECK(!fi_inject(s.a.ep, "z", 1, s.a.peer));
	for (int i = 0; i < 1000; i++) {
		CHECK(fi_cq_read(s.a.cq, NULL, 0) <= 0);
		CHECK(fi_cq_read(s.b.cq, &e, 1) == -FI_EAGAIN);
	}
	CHECK(look(1, FI_CLAIM, buf + 200, 20, context) == -FI_EAGAIN);
	CHECK(look(2, FI_PEEK | FI_DISCARD, NULL, 0, context + 4) == -FI_EAGAIN);
	/* There is room for one at a time. */
	CHECK(!fi_cancel(&s.b.ep->fid, context + 1));
	for (int i = 0; i < 3; i++) {
		ssize_t n = next(&s, &s.b, &e, &from, &failure);

		CHECK(n == 1 || (n == -FI_ECANCELED && failure.op_context == context + 1));
		ended += n == 1 ? e.op_context == context + 2 + ended : 0;
	}
	CHECK(ended == 2 && !memcmp(buf, "sixteen of twent", 16) && buf[100] == 'z');
	CHECK(!look(1, FI_CLAIM, buf + 200, 20, context));
	e = done(&s, &s.b);
	CHECK(e.op_context == context && e.len == 7 && !memcmp(buf + 200, "claimed", 7));
	CHECK(!look(2, FI_PEEK | FI_DISCARD, NULL, 0, context + 4));
	CHECK(done(&s, &s.b).op_context == context + 4);
	close_both(&s);
}

/* A sender the receiver does not know yet is known once it is inserted. */
static void source(void)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry failure;
	fi_addr_t from;

	open_both(&s, FI_WAIT_NONE);
	CHECK(!fi_av_remove(s.b.av, &s.b.peer, 1, 0));
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, FI_ADDR_UNSPEC, 1, 0, context));
	CHECK(!fi_tinject(s.a.ep, "?", 1, s.a.peer, 1));
	CHECK(next(&s, &s.b, &e, &from, &failure) == 1 && from == FI_ADDR_NOTAVAIL);
	CHECK(!fi_tinject(s.a.ep, "!", 1, s.a.peer, 2));
	CHECK(fi_av_insert(s.b.av, s.a.name, 1, &s.b.peer, 0, NULL) == 1);
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, s.b.peer, 2, 0, context));
	CHECK(next(&s, &s.b, &e, &from, &failure) == 1 && from == s.b.peer);
	close_both(&s);
}

/* Waiting in the queue, and on its descriptor. */
static void waiting(void)
{
	struct fi_cq_tagged_entry e;
	struct fid *fid;
	struct pollfd poller = { .events = POLLIN };
	ssize_t n;

	open_both(&s, FI_WAIT_FD);
	fid = &s.b.cq->fid;
	CHECK(fi_cq_sread(s.b.cq, &e, 1, NULL, 10) == -FI_EAGAIN);
	CHECK(!fi_cq_signal(s.b.cq));
	CHECK(fi_cq_sread(s.b.cq, &e, 1, NULL, -1) == -FI_EAGAIN);
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, s.b.peer, 1, 0, context));
	CHECK(!fi_tinject(s.a.ep, "x", 1, s.a.peer, 1));
	do
		n = fi_cq_sread(s.b.cq, &e, 1, NULL, 50);
	while (n == -FI_EAGAIN && fi_cq_read(s.a.cq, NULL, 0) <= 0);
	CHECK(n == 1 && e.op_context == context);

	CHECK(!fi_control(fid, FI_GETWAIT, &poller.fd));
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, s.b.peer, 2, 0, context));
	while ((n = fi_trywait(s.fabric, &fid, 1)) == -FI_EAGAIN)
		CHECK(fi_cq_read(s.b.cq, NULL, 0) <= 0);
	CHECK(!n);
	CHECK(!fi_tinject(s.a.ep, "y", 1, s.a.peer, 2));
	CHECK(fi_cq_read(s.a.cq, NULL, 0) <= 0);
	CHECK(poll(&poller, 1, 300000) == 1);
	CHECK(done(&s, &s.b).len == 1 && buf[0] == 'y');
	close_both(&s);
}

static void counters(void)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC };
	struct fid_cntr *sent, *received;
	struct pollfd poller = { .events = POLLIN };
	struct fid *fid;
	int n, tries = 0;

	open_domain(&s, hints_of(FI_MSG));
	/* In versions that have them, counters of bytes are not offered. */
	attr.events = FI_CNTR_EVENTS_COMP + 1;
	CHECK(fi_cntr_open(s.domain, &attr, &sent, NULL) == -FI_ENOSYS);
	attr.events = FI_CNTR_EVENTS_COMP;
	CHECK(!fi_cntr_open(s.domain, &attr, &sent, NULL));
	attr.wait_obj = FI_WAIT_MUTEX_COND;
	CHECK(fi_cntr_open(s.domain, &attr, &received, NULL) == -FI_ENOSYS);
	attr.wait_obj = FI_WAIT_FD;
	CHECK(!fi_cntr_open(s.domain, &attr, &received, NULL));
	open_side(&s, &s.a, FI_WAIT_NONE);
	CHECK(!fi_ep_bind(s.a.ep, &sent->fid, FI_SEND));
	/* Without FI_RMA_EVENT it counts received messages. */
	CHECK(!fi_ep_bind(s.a.ep, &received->fid, FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE));
	CHECK(fi_av_insert(s.a.av, s.a.name, 1, &s.a.peer, 0, NULL) == 1);
	CHECK(fi_cntr_wait(received, 1, 10) == -FI_ETIMEDOUT);
	for (int i = 0; i < 3; i++) {
		CHECK(!fi_recv(s.a.ep, buf + i, 1, NULL, FI_ADDR_UNSPEC, context));
		CHECK(!fi_inject(s.a.ep, "x", 1, s.a.peer));
	}
	CHECK(!fi_cntr_wait(received, 3, 300000));
	CHECK(fi_cntr_read(received) == 3 && fi_cntr_read(sent) == 3);
	/* Asleep on its descriptor. */
	fid = &received->fid;
	CHECK(!fi_control(fid, FI_GETWAIT, &poller.fd));
	CHECK(!fi_control(fid, FI_GETWAITOBJ, &n) && n == FI_WAIT_FD);
	CHECK(fi_control(fid, FI_GETWAIT, NULL) == -FI_EINVAL);
	CHECK(!fi_recv(s.a.ep, buf, 1, NULL, FI_ADDR_UNSPEC, context));
	/* A descriptor may become readable without a message, but not for ever while the caller looks. */
	do {
		CHECK(fi_cntr_read(received) == 3);
		while ((n = fi_trywait(s.fabric, &fid, 1)) == -FI_EAGAIN)
			CHECK(fi_cntr_read(received) == 3);
		CHECK(!n && tries++ < 50);
	} while (poll(&poller, 1, 20));
	CHECK(!fi_inject(s.a.ep, "y", 1, s.a.peer));
	CHECK(poll(&poller, 1, 300000) == 1);
	while (fi_cntr_read(received) == 3)
		;
	CHECK(fi_cntr_read(received) == 4);
	CHECK(!fi_recv(s.a.ep, buf, 1, NULL, FI_ADDR_UNSPEC, context));
	CHECK(!fi_cancel(&s.a.ep->fid, context));
	CHECK(fi_cntr_readerr(received) == 1);
	CHECK(fi_close(&sent->fid) == -FI_EBUSY);
	close_side(&s.a);
	CHECK(!fi_close(&sent->fid));
	CHECK(!fi_close(&received->fid));
	close_domain(&s);
}

/* Failures are counted, with or without a queue that reports them: of a send to a peer that has
 * left, at once or later, and of a cancelled receive that is not posted to the engine. */
static void counted_failures(void)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cq_tagged_entry e;
	struct fid_cntr *sent, *received;
	struct fid_ep *quiet;
	fi_addr_t peer;

	open_both(&s, FI_WAIT_NONE);
	CHECK(!fi_cntr_open(s.domain, &attr, &sent, NULL));
	CHECK(!fi_cntr_open(s.domain, &attr, &received, NULL));
	CHECK(!fi_endpoint(s.domain, s.info, &quiet, NULL));
	CHECK(!fi_ep_bind(quiet, &s.a.av->fid, 0));
	CHECK(!fi_ep_bind(quiet, &sent->fid, FI_SEND));
	CHECK(!fi_ep_bind(quiet, &received->fid, FI_RECV));
	CHECK(!fi_enable(quiet));
	peer = s.a.peer;
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, FI_ADDR_UNSPEC, 1, 0, context));
	CHECK(!fi_tsend(quiet, "x", 1, NULL, peer, 1, NULL));
	while (fi_cq_read(s.b.cq, &e, 1) != 1)
		CHECK(fi_cntr_wait(sent, 1, 10) != -FI_EAVAIL);
	CHECK(!fi_cntr_wait(sent, 1, 20000));
	close_side(&s.b);
	/* Some may go well until the departure of the peer is known. */
	for (uint64_t failures = 0; failures < 3;) {
		uint64_t before = fi_cntr_read(sent);
		int ret;

		CHECK(!fi_tsend(quiet, "y", 1, NULL, peer, 2, NULL));
		ret = fi_cntr_wait(sent, before + 1, 20000);
		CHECK(!ret || ret == -FI_EAVAIL);
		failures += ret == -FI_EAVAIL;
		CHECK(fi_cntr_readerr(sent) == failures);
	}
	CHECK(!fi_recv(quiet, buf, 100, NULL, FI_ADDR_UNSPEC, context));
	CHECK(!fi_cancel(&quiet->fid, context));
	CHECK(fi_cntr_wait(received, 1, 20000) == -FI_EAVAIL && fi_cntr_readerr(received) == 1);
	for (int i = 0; i < 2; i++) {
		struct iovec iov = { buf, 100 };
		struct fi_msg msg = { &iov, NULL, 1, FI_ADDR_UNSPEC, context + i, 0 };

		CHECK(!fi_recvmsg(quiet, &msg, i ? 0 : FI_MULTI_RECV));
	}
	CHECK(!fi_cancel(&quiet->fid, context + 1));
	CHECK(fi_cntr_readerr(received) == 2);
	CHECK(!fi_cancel(&quiet->fid, context));
	CHECK(fi_cntr_readerr(received) == 3 && fi_cntr_read(received) == 0);
	CHECK(!fi_close(&quiet->fid));
	close_side(&s.a);
	CHECK(!fi_close(&sent->fid));
	CHECK(!fi_close(&received->fid));
	close_domain(&s);
}

/* A domain takes an event queue, but not for reports of registered memory: a caller would wait
 * for them in vain. */
static void domain_events(void)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_eq *eq;

	open_both(&s, FI_WAIT_NONE);
	CHECK(!fi_eq_open(s.fabric, &attr, &eq, NULL));
	CHECK(!fi_domain_bind(s.domain, &eq->fid, 0));
	CHECK(fi_domain_bind(s.domain, &eq->fid, FI_REG_MR) == -FI_ENOSYS);
	CHECK(fi_domain_bind(s.domain, &eq->fid, FI_SEND) == -FI_EBADFLAGS);
	CHECK(fi_domain_bind(s.domain, &s.a.cq->fid, 0) == -FI_EINVAL);
	CHECK(!fi_close(&eq->fid));
	close_both(&s);
}

/* Memory for peers has a key; memory for local use needs none. */
static void keys(void)
{
	struct fid_mr *mr[2];

	open_domain(&s, hints_of(FI_MSG | FI_RMA));
	for (uint64_t access = FI_REMOTE_READ; access <= FI_REMOTE_WRITE; access <<= 1)
		CHECK(fi_mr_reg(s.domain, buf, 64, access, 0, FI_KEY_NOTAVAIL, 0, mr, NULL)
		      == -FI_EKEYREJECTED);
	CHECK(!fi_mr_reg(s.domain, buf, 64, FI_REMOTE_READ, 0, 7, 0, mr, NULL));
	CHECK(fi_mr_key(mr[0]) == 7);
	CHECK(fi_mr_reg(s.domain, buf, 64, FI_REMOTE_READ, 0, 7, 0, mr + 1, NULL) == -FI_ENOKEY);
	CHECK(!fi_close(&mr[0]->fid));
	CHECK(!fi_mr_reg(s.domain, buf, 64, FI_REMOTE_READ, 0, 7, 0, mr, NULL));
	CHECK(!fi_mr_reg(s.domain, buf, 64, FI_SEND, 0, FI_KEY_NOTAVAIL, 0, mr + 1, NULL));
	CHECK(!fi_close(&mr[0]->fid));
	CHECK(!fi_close(&mr[1]->fid));
	close_domain(&s);
}

static void options(void)
{
	size_t value = 0, len = sizeof(value);
	char name[NAME];

	open_both(&s, FI_WAIT_NONE);
	CHECK(!fi_getopt(&s.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &len));
	CHECK(value > 0 && len == sizeof(value));
	value = 4096;
	CHECK(!fi_setopt(&s.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, len));
	value = 0;
	CHECK(!fi_getopt(&s.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &len));
	CHECK(value == 4096);
	len = 1;
	CHECK(fi_getopt(&s.a.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &len)
	      == -FI_ETOOSMALL);
	CHECK(fi_getopt(&s.a.ep->fid, FI_OPT_ENDPOINT, 9999, &value, &len) == -FI_ENOPROTOOPT);
	len = 0;
	CHECK(fi_getname(&s.a.ep->fid, name, &len) == -FI_ETOOSMALL && len == NAME);
	/* An object in use cannot be closed. */
	CHECK(fi_close(&s.a.cq->fid) == -FI_EBUSY);
	CHECK(fi_close(&s.a.av->fid) == -FI_EBUSY);
	CHECK(fi_close(&s.domain->fid) == -FI_EBUSY);
	close_both(&s);
}

/* The only receive in progress is not posted at once: its end is the same in each case. */
static void alone(void)
{
	static char large[2][1 << 20];
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry failure;
	fi_addr_t from;
	int found = 0;

	open_both(&s, FI_WAIT_NONE);
	for (int i = 0; i < 300; i++) {
		CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, i & 1 ? s.b.peer : FI_ADDR_UNSPEC, 5, 0, context));
		CHECK(!fi_tinjectdata(s.a.ep, "message", 7, i, s.a.peer, 5));
		CHECK(next(&s, &s.b, &e, &from, &failure) == 1 && from == s.b.peer);
		CHECK(e.op_context == context && e.len == 7 && e.tag == 5 && e.data == (uint64_t)i);
		CHECK(e.flags == (FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA) && !memcmp(buf, "message", 7));
	}
	/* A second receive of the same tag gets the second message. */
	CHECK(!fi_trecv(s.b.ep, buf, 1, NULL, s.b.peer, 5, 0, context));
	CHECK(!fi_trecv(s.b.ep, buf + 1, 1, NULL, s.b.peer, 5, 0, context + 1));
	CHECK(!fi_tinject(s.a.ep, "1", 1, s.a.peer, 5));
	CHECK(!fi_tinject(s.a.ep, "2", 1, s.a.peer, 5));
	CHECK(done(&s, &s.b).op_context == context);
	CHECK(done(&s, &s.b).op_context == context + 1 && !memcmp(buf, "12", 2));
	/* A peek does not see its message. */
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, s.b.peer, 5, 0, context));
	CHECK(!fi_tinject(s.a.ep, "mine", 4, s.a.peer, 5));
	CHECK(!look(5, FI_PEEK, NULL, 0, context + 1));
	for (int i = 0; i < 2; i++) {
		ssize_t n = next(&s, &s.b, &e, &from, &failure);

		CHECK(n == 1 ? e.op_context == context && e.len == 4 : n == -FI_ENOMSG);
		found += n == 1;
	}
	CHECK(found == 1);
	/* The message comes late; nothing else comes meanwhile. */
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, s.b.peer, 5, 0, context));
	for (int i = 0; i < 1000; i++)
		CHECK(fi_cq_read(s.b.cq, &e, 1) == -FI_EAGAIN);
	CHECK(!fi_tinject(s.a.ep, "other", 5, s.a.peer, 6));
	CHECK(!fi_tinject(s.a.ep, "late", 4, s.a.peer, 5));
	e = done(&s, &s.b);
	CHECK(e.op_context == context && e.len == 4 && !memcmp(buf, "late", 4));
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, s.b.peer, 6, 0, context));
	CHECK(done(&s, &s.b).len == 5);
	/* Announced, not sent at once. */
	memset(large[0], 'x', sizeof(large[0]));
	CHECK(!fi_trecv(s.b.ep, large[1], sizeof(large[1]), NULL, s.b.peer, 5, 0, context));
	CHECK(!fi_tsend(s.a.ep, large[0], sizeof(large[0]), NULL, s.a.peer, 5, context + 1));
	CHECK(done(&s, &s.b).len == sizeof(large[0]));
	CHECK(!memcmp(large[0], large[1], sizeof(large[0])));
	CHECK(done(&s, &s.a).op_context == context + 1);
	/* Too long, cancelled, and abandoned. */
	CHECK(!fi_trecv(s.b.ep, buf, 4, NULL, s.b.peer, 5, 0, context));
	CHECK(!fi_tinject(s.a.ep, "message", 7, s.a.peer, 5));
	failure = failed(&s, &s.b);
	CHECK(failure.err == FI_ETRUNC && failure.len == 4 && failure.olen == 3);
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, s.b.peer, 5, 0, context));
	CHECK(!fi_cancel(&s.b.ep->fid, context));
	CHECK(failed(&s, &s.b).err == FI_ECANCELED);
	CHECK(fi_cq_read(s.b.cq, &e, 1) == -FI_EAGAIN);
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, s.b.peer, 5, 0, context));
	close_both(&s);
}

/* The caller waits for what one endpoint of the domain does, and never looks at its queue. */
static void unpolled(void)
{
	static char large[2][1 << 20];
	struct fi_cq_tagged_entry e;

	for (int sleeps = 0; sleeps < 2; sleeps++) {
		open_both(&s, sleeps ? FI_WAIT_FD : FI_WAIT_NONE);
		for (int round = 0; round < 3; round++) {
			time_t start = time(NULL);
			size_t len = round == 1 ? sizeof(large[0]) : 8;
			ssize_t n;

			memset(large[0], '0' + round, len);
			CHECK(!fi_trecv(s.b.ep, large[1], len, NULL, s.b.peer, 5, 0, context));
			CHECK(!fi_tsend(s.a.ep, large[0], len, NULL, s.a.peer, 5, context + 1));
			do {
				n = sleeps ? fi_cq_sread(s.b.cq, &e, 1, NULL, 20000)
					   : fi_cq_read(s.b.cq, &e, 1);
				CHECK(time(NULL) - start < 20);
			} while (n == -FI_EAGAIN);
			CHECK(n == 1 && e.len == len && !memcmp(large[0], large[1], len));
		}
		for (int round = 0; round < 3; round++)
			CHECK(done(&s, &s.a).op_context == context + 1);
		close_both(&s);
	}
}

/* A filter of system calls refuses eventfd(2), as containers' filters may. */
static void confined(void)
{
	struct sock_filter steps[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_eventfd2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(steps) / sizeof(*steps), steps };

	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
	CHECK(eventfd(0, 0) < 0 && errno == EPERM);
	waiting();
}

/* Lengths and counts that no machine has. */
static void huge_counts(void)
{
	const size_t lens[] = { 1ull << 31, 1ull << 40, 0x7fffffffffff, SIZE_MAX / 2, SIZE_MAX - 7 };
	struct fi_eq_attr attr = { .size = SIZE_MAX, .wait_obj = FI_WAIT_UNSPEC };
	struct fi_cq_attr queue = { .size = SIZE_MAX, .format = FI_CQ_FORMAT_TAGGED };
	struct fi_av_attr vector = { .type = FI_AV_TABLE, .count = SIZE_MAX };
	struct fid_eq *eq;
	struct fid_cq *cq;
	struct fid_av *av;
	fi_addr_t number = 0;

	open_both(&s, FI_WAIT_NONE);
	CHECK(!fi_eq_open(s.fabric, &attr, &eq, NULL));
	CHECK(!fi_cq_open(s.domain, &queue, &cq, NULL));
	CHECK(!fi_av_open(s.domain, &vector, &av, NULL));
	for (size_t i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		size_t len = lens[i];
		struct iovec two[2] = { { buf, len }, { buf, len } };

		CHECK(fi_send(s.a.ep, buf, len, NULL, s.a.peer, context) < 0);
		CHECK(fi_tsend(s.a.ep, buf, len, NULL, s.a.peer, 1, context) < 0);
		CHECK(fi_sendv(s.a.ep, two, NULL, 2, s.a.peer, context) < 0);
		CHECK(fi_inject(s.a.ep, buf, len, s.a.peer) == -FI_EMSGSIZE);
		CHECK(fi_recv(s.b.ep, buf, len, NULL, FI_ADDR_UNSPEC, context) < 0);
		CHECK(fi_recvv(s.b.ep, two, NULL, 2, FI_ADDR_UNSPEC, context) < 0);
		CHECK(fi_trecvv(s.b.ep, two, NULL, 2, FI_ADDR_UNSPEC, 1, 0, context) < 0);
		CHECK(fi_sendv(s.a.ep, two, NULL, len, s.a.peer, context) == -FI_EINVAL);
		CHECK(fi_av_insert(s.a.av, s.b.name, len, NULL, 0, NULL) == -FI_EINVAL);
		CHECK(fi_av_remove(s.a.av, &number, len, 0) == -FI_EINVAL);
		CHECK(fi_eq_write(eq, FI_NOTIFY, buf, len, 0) == -FI_EFAULT);
	}
	CHECK(!fi_close(&av->fid) && !fi_close(&cq->fid) && !fi_close(&eq->fid));
}

/* Objects are closed in the wrong order, with operations in progress, as Charm++ does at its exit:
 * what is in use stays, the answers say so, and everything can be closed once more. */
static void disorder(void)
{
	struct fid_mr *mr;

	open_both(&s, FI_WAIT_NONE);
	CHECK(!fi_mr_reg(s.domain, buf, 64, FI_REMOTE_READ, 0, 7, 0, &mr, NULL));
	CHECK(!fi_trecv(s.a.ep, buf, 9, NULL, FI_ADDR_UNSPEC, 1, 0, context));
	CHECK(!fi_tsend(s.a.ep, buf + 64, 9, NULL, s.a.peer, 1, context + 1));
	CHECK(fi_close(&s.a.av->fid) == -FI_EBUSY);
	CHECK(fi_close(&s.a.cq->fid) == -FI_EBUSY);
	CHECK(fi_close(&s.domain->fid) == -FI_EBUSY);
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, FI_ADDR_UNSPEC, 1, 0, context + 2));
	CHECK(done(&s, &s.b).op_context == context + 2);
	CHECK(done(&s, &s.a).op_context == context + 1);
	CHECK(fi_close(&s.a.av->fid) == -FI_EBUSY);
	close_side(&s.b);
	close_side(&s.a);
	CHECK(fi_close(&s.domain->fid) == -FI_EBUSY);
	CHECK(!fi_close(&mr->fid));
	close_domain(&s);
}

/* A send of which the caller asks no more than its memory back is complete at once; one that has to
 * reach the peer is when the peer says so. */
static void levels(void)
{
	struct iovec iov = { buf, 100 };
	struct fi_msg_tagged msg = { .msg_iov = &iov, .iov_count = 1, .tag = 1, .context = context };
	struct fi_cq_tagged_entry e;

	open_both(&s, FI_WAIT_NONE);
	CHECK(!fi_tinject(s.a.ep, buf, 1, s.a.peer, 1));
	CHECK(!fi_trecv(s.b.ep, buf + 200, 100, NULL, s.b.peer, 1, 0, context));
	done(&s, &s.b);
	msg.addr = s.a.peer;
	CHECK(!fi_tsend(s.a.ep, buf, 100, NULL, s.a.peer, 1, context));
	CHECK(fi_cq_read(s.a.cq, &e, 1) == 1 && e.op_context == context);
	CHECK(!fi_tsendmsg(s.a.ep, &msg, FI_TRANSMIT_COMPLETE));
	CHECK(fi_cq_read(s.a.cq, &e, 1) == -FI_EAGAIN);
	for (int i = 0; i < 2; i++) {
		CHECK(!fi_trecv(s.b.ep, buf + 200, 100, NULL, s.b.peer, 1, 0, context));
		CHECK(done(&s, &s.b).len == 100);
	}
	CHECK(done(&s, &s.a).op_context == context);
	close_both(&s);
}

/* A caller that takes -FI_EAGAIN for a send that has begun loses those messages alone. */
static void ignored(void)
{
	struct fi_cq_tagged_entry e;
	int sent = 0, refused = 0;
	uint64_t last = 0;

	open_both(&s, FI_WAIT_NONE);
	for (uint64_t i = 1; refused < 1000 && i < 400000; i++) {
		ssize_t n = fi_tinject(s.a.ep, &i, sizeof(i), s.a.peer, 1);

		CHECK(!n || n == -FI_EAGAIN);
		sent += !n;
		refused += !!n;
	}
	CHECK(refused == 1000);
	for (int i = 0; i < sent; i++) {
		uint64_t got = 0;

		CHECK(!fi_trecv(s.b.ep, &got, sizeof(got), NULL, s.b.peer, 1, 0, context));
		e = done(&s, &s.b);
		CHECK(e.len == sizeof(got) && got > last);
		last = got;
	}
	CHECK(!fi_tinject(s.a.ep, "end", 3, s.a.peer, 1));
	CHECK(!fi_trecv(s.b.ep, buf, 9, NULL, s.b.peer, 1, 0, context));
	CHECK(done(&s, &s.b).len == 3);
	close_both(&s);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "depth", depth },		{ "capabilities", capabilities },
		{ "callers", callers },		{ "disorder", disorder },
		{ "ignored", ignored },		{ "levels", levels },
		{ "vector", vector },		{ "vector_events", vector_events },
		{ "peek", peek },		{ "cancel", cancel },
		{ "peek_waits", peek_waits },
		{ "truncated", truncated },	{ "many_in_one_buffer", many_in_one_buffer },
		{ "source", source },		{ "waiting", waiting },
		{ "counters", counters },	{ "options", options },
		{ "alone", alone },		{ "counted_failures", counted_failures },
		{ "keys", keys },		{ "domain_events", domain_events },
		{ "several_buffers", several_buffers },
		{ "directed_buffer", directed_buffer },	{ "no_room", no_room },
		{ "unpolled", unpolled },		{ "huge_counts", huge_counts },
		{ "confined", confined },
	};

	for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(*cases); i++)
		if (!strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			return 0;
		}
	fprintf(stderr, "no such case\n");
	return 2;
}
