/* Collective operations of several processes, by case: `collective CASE MEMBERS`. The processes are
 * made by fork before anything else, and meet in shared memory. A failed check prints itself and
 * ends its process; the first process ends with an error if another one does. */
#include "sides.h"
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_collective.h>

enum { MOST = 16, LONG = 40000, AT_ONCE = 20 };

static struct shared {
	char names[MOST][NAME];
	_Atomic int met;
} *shared;

static int me, members, turns;
static pid_t pids[MOST];
static struct setup s;
static struct fid_eq *eq;
static struct side own;
static fi_addr_t numbers[MOST];
static int64_t from[MOST * LONG], to[MOST * LONG];

/* Waits for all processes, and makes progress meanwhile. */
static void meet(void)
{
	time_t start = time(NULL);

	atomic_fetch_add(&shared->met, 1);
	turns++;
	while (atomic_load(&shared->met) < turns * members) {
		CHECK(fi_cq_read(own.cq, NULL, 0) <= 0);
		CHECK(time(NULL) - start < 120);
		sched_yield();
	}
}

static void start(void)
{
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_NONE };
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED };
	size_t len = NAME;

	open_domain(&s, hints_of(FI_MSG | FI_COLLECTIVE));
	CHECK(s.info->caps & FI_COLLECTIVE);
	CHECK(!fi_eq_open(s.fabric, &eq_attr, &eq, NULL));
	CHECK(!fi_av_open(s.domain, &av, &own.av, NULL));
	CHECK(!fi_cq_open(s.domain, &cq, &own.cq, NULL));
	CHECK(!fi_endpoint(s.domain, s.info, &own.ep, NULL));
	CHECK(!fi_ep_bind(own.ep, &own.av->fid, 0));
	CHECK(!fi_ep_bind(own.ep, &own.cq->fid, FI_SEND | FI_RECV | FI_SELECTIVE_COMPLETION));
	CHECK(!fi_ep_bind(own.ep, &eq->fid, 0));
	CHECK(!fi_enable(own.ep));
	CHECK(!fi_getname(&own.ep->fid, shared->names[me], &len));
	meet();
	CHECK(fi_av_insert(own.av, shared->names, members, numbers, 0, NULL) == members);
}

/* Joins a group of the processes from one on, by steps. */
static struct fid_mc *join(int first, int step)
{
	struct fi_av_set_attr attr = {
		.start_addr = FI_ADDR_NOTAVAIL, .end_addr = FI_ADDR_NOTAVAIL, .stride = 1,
	};
	struct fi_eq_entry entry;
	struct fid_av_set *set;
	struct fid_mc *mc;
	time_t start = time(NULL);
	uint32_t event;
	fi_addr_t address;
	ssize_t n;

	CHECK(!fi_av_set(own.av, &attr, &set, NULL));
	for (int i = first; i < members; i += step)
		CHECK(!fi_av_set_insert(set, numbers[i]));
	CHECK(fi_av_set_insert(set, numbers[first]) == -FI_EINVAL);
	CHECK(!fi_av_set_addr(set, &address));
	CHECK(!fi_join_collective(own.ep, address, set, 0, &mc, &start));
	while ((n = fi_eq_read(eq, &event, &entry, sizeof(entry), 0)) == -FI_EAGAIN) {
		CHECK(fi_cq_read(own.cq, NULL, 0) <= 0);
		CHECK(time(NULL) - start < 120);
		sched_yield();
	}
	CHECK(n == sizeof(entry) && event == FI_JOIN_COMPLETE);
	CHECK(entry.fid == &mc->fid && entry.context == &start);
	CHECK(!fi_close(&set->fid));
	return mc;
}

/* Waits for the completion of an operation; returns its error. */
static int ends(void *context)
{
	struct fi_cq_err_entry failure = { 0 };
	struct fi_cq_tagged_entry entry;
	time_t start = time(NULL);
	char text[256];
	ssize_t n;

	while ((n = fi_cq_read(own.cq, &entry, 1)) == -FI_EAGAIN) {
		CHECK(time(NULL) - start < 120);
		sched_yield();
	}
	if (n == -FI_EAVAIL) {
		CHECK(fi_cq_readerr(own.cq, &failure, 0) == 1 && failure.op_context == context);
		fi_cq_strerror(own.cq, failure.prov_errno, NULL, text, sizeof(text));
		printf("member %d: %s\n", me, text);
		return failure.err;
	}
	CHECK(n == 1 && entry.op_context == context && entry.flags == FI_COLLECTIVE);
	return 0;
}

static void operations(struct fid_mc *mc, int count, int size, const fi_addr_t *others, int place)
{
	fi_addr_t group = fi_mc_addr(mc);

	CHECK(!fi_barrier(own.ep, group, from) && !ends(from));
	for (int i = 0; i < count; i++)
		from[i] = 1000 * place + i;
	memset(to, 0, sizeof(to));
	CHECK(!fi_allgather(own.ep, from, count, NULL, to, NULL, group, FI_INT64, 0, to));
	CHECK(!ends(to));
	for (int i = 0; i < count * size; i++)
		CHECK(to[i] == 1000 * (i / count) + i % count);
	CHECK(!fi_allreduce(own.ep, from, count, NULL, to, NULL, group, FI_INT64, FI_SUM, 0, to));
	CHECK(!ends(to));
	for (int i = 0; i < count; i++)
		CHECK(to[i] == 1000 * (size * (size - 1) / 2) + (int64_t)size * i);
	for (int root = 0; root < size; root++) {
		fi_addr_t of = others[root];

		for (int i = 0; i < count * size; i++)
			from[i] = place == root ? 7 * i + root : -1;
		CHECK(!fi_broadcast(own.ep, from, count, NULL, group, of, FI_INT64, 0, &root));
		CHECK(!ends(&root));
		for (int i = 0; i < count; i++)
			CHECK(from[i] == 7 * i + root);
		for (int i = 0; i < count * size; i++)
			from[i] = place == root ? 7 * i + root : -1;
		CHECK(!fi_scatter(own.ep, from, count, NULL, to, NULL, group, of, FI_INT64, 0, to));
		CHECK(!ends(to));
		for (int i = 0; i < count; i++)
			CHECK(to[i] == 7 * (place * count + i) + root);
	}
}

/* Every operation, short and long, in all groups that a process is in. */
static void case_all(void)
{
	struct fid_mc *all = join(0, 1), *again = join(0, 1), *some = NULL;

	operations(all, 1, members, numbers, me);
	operations(again, LONG, members, numbers, me);
	if (me % 2 == 0) {
		fi_addr_t even[MOST];
		int size = 0;

		for (int i = 0; i < members; i += 2)
			even[size++] = numbers[i];
		some = join(0, 2);
		operations(some, 3, size, even, me / 2);
		CHECK(!fi_close(&some->fid));
	}
	operations(all, 2, members, numbers, me);
	CHECK(!fi_close(&all->fid));
	CHECK(!fi_close(&again->fid));
}

/* Many operations at a time, which end in any order. */
static void case_many(void)
{
	struct fid_mc *all = join(0, 1);
	int ended = 0;

	for (int round = 0; round < 10; round++) {
		for (int64_t i = 0; i < AT_ONCE; i++) {
			from[i] = me + i;
			CHECK(!fi_allreduce(own.ep, &from[i], 1, NULL, &to[i], NULL,
					    fi_mc_addr(all), FI_INT64, FI_MAX, 0, NULL));
		}
		for (ended = 0; ended < AT_ONCE; ended++)
			CHECK(!ends(NULL));
		for (int i = 0; i < AT_ONCE; i++)
			CHECK(to[i] == members - 1 + i);
	}
	CHECK(!fi_close(&all->fid));
}

/* Calls that no group can do. */
static void case_refused(void)
{
	struct fi_collective_attr attr = { .op = FI_SUM, .datatype = FI_DOUBLE };
	struct fid_mc *all = join(0, 1);
	fi_addr_t group = fi_mc_addr(all);

	CHECK(!fi_query_collective(s.domain, FI_ALLREDUCE, &attr, 0));
	CHECK(attr.max_members >= 1000 && attr.datatype_attr.size == sizeof(double));
	attr.op = FI_CSWAP;
	CHECK(fi_query_collective(s.domain, FI_ALLREDUCE, &attr, 0) == -FI_EOPNOTSUPP);
	CHECK(fi_query_collective(s.domain, FI_ALLTOALL, &attr, 0) == -FI_ENOSYS);
	CHECK(fi_query_collective(s.domain, FI_BARRIER, NULL, 0) == -FI_EINVAL);
	CHECK(fi_barrier(own.ep, 77, NULL) == -FI_EINVAL);
	CHECK(fi_broadcast(own.ep, from, 1, NULL, group, 77, FI_INT64, 0, NULL) == -FI_EINVAL);
	CHECK(fi_allreduce(own.ep, from, 1, NULL, to, NULL, group, FI_INT64, FI_CSWAP, 0, NULL) ==
	      -FI_EOPNOTSUPP);
	CHECK(fi_allgather(own.ep, from, SIZE_MAX / 2, NULL, to, NULL, group, FI_INT64, 0, NULL) ==
	      -FI_EMSGSIZE);
	CHECK(fi_allgather(own.ep, NULL, 1, NULL, to, NULL, group, FI_INT64, 0, NULL) == -FI_EINVAL);
	CHECK(fi_gather(own.ep, from, 1, NULL, to, NULL, group, numbers[0], FI_INT64, 0, NULL) ==
	      -FI_ENOSYS);
	CHECK(!fi_barrier(own.ep, group, to) && !ends(to));
	CHECK(!fi_close(&all->fid));
}

/* A member gives another number of elements: every operation of the group fails, at all. */
static void case_differs(void)
{
	struct fid_mc *all = join(0, 1);
	int count = me == members - 1 ? 2 : 1;

	CHECK(!fi_allgather(own.ep, from, count, NULL, to, NULL, fi_mc_addr(all), FI_INT64, 0, to));
	CHECK(ends(to));
	CHECK(!fi_barrier(own.ep, fi_mc_addr(all), to));
	CHECK(ends(to));
	CHECK(!fi_close(&all->fid));
}

/* The last process ends or stops; the others learn of it, wherever they are in the tree. */
static void lost(int how)
{
	struct fid_mc *all = join(0, 1);

	if (me == members - 1) {
		kill(getpid(), how);
		_exit(0);
	}
	CHECK(!fi_barrier(own.ep, fi_mc_addr(all), to));
	CHECK(ends(to));
	CHECK(!fi_close(&all->fid));
	CHECK(!fi_close(&own.ep->fid));
	printf("survived\n");
	fflush(stdout);
	if (me == 0)
		for (int i = 1; i < members - 1; i++)
			CHECK(waitpid(pids[i], NULL, 0) == pids[i]);
	if (me == 0)
		kill(pids[members - 1], SIGKILL);
	_exit(0);
}

static void run(const char *name)
{
	if (!strcmp(name, "all"))
		case_all();
	else if (!strcmp(name, "many"))
		case_many();
	else if (!strcmp(name, "refused"))
		case_refused();
	else if (!strcmp(name, "differs"))
		case_differs();
	else if (!strcmp(name, "killed"))
		lost(SIGKILL);
	else if (!strcmp(name, "stopped"))
		lost(SIGSTOP);
	else
		CHECK(!"a case");
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	members = atoi(argv[2]);
	CHECK(members > 0 && members <= MOST);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	CHECK(shared != MAP_FAILED);
	for (int i = 1; i < members; i++) {
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (!pids[i]) {
			CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
			me = i;
			break;
		}
	}
	start();
	run(argv[1]);
	meet();
	CHECK(!fi_close(&own.ep->fid));
	CHECK(!fi_close(&own.cq->fid));
	CHECK(!fi_close(&own.av->fid));
	CHECK(!fi_close(&eq->fid));
	close_domain(&s);
	for (int i = 1; me == 0 && i < members; i++) {
		int status;

		CHECK(waitpid(pids[i], &status, 0) == pids[i] && status == 0);
	}
	return 0;
}
