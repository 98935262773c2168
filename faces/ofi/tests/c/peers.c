/* A process that knows many peers, and has sent a message to each: `peers NUMBER`. The peers are
 * endpoints of other processes. Prints the descriptors and the memory in kB that they cost. */
#include "sides.h"
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { EACH = 50, MOST = 1000 };

static struct shared {
	char names[MOST + 1][NAME];
	_Atomic int open, got;
} *shared;

static struct setup s;
static struct fid_av *av;
static struct fid_cq *cq;

static void start(void)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_av_attr of = { .type = FI_AV_TABLE };

	open_domain(&s, hints_of(FI_TAGGED));
	CHECK(!fi_cq_open(s.domain, &attr, &cq, NULL));
	CHECK(!fi_av_open(s.domain, &of, &av, NULL));
}

static struct fid_ep *endpoint(char *name)
{
	size_t len = NAME;
	struct fid_ep *ep;

	CHECK(!fi_endpoint(s.domain, s.info, &ep, NULL));
	CHECK(!fi_ep_bind(ep, &av->fid, 0) && !fi_ep_bind(ep, &cq->fid, FI_SEND | FI_RECV));
	CHECK(!fi_enable(ep) && !fi_getname(&ep->fid, name, &len));
	return ep;
}

/* Opens peers, each of which receives a message. */
static void serve(int first, int last)
{
	struct fi_cq_tagged_entry e;
	static char buf[EACH];

	CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
	start();
	for (int i = first; i < last; i++) {
		struct fid_ep *ep = endpoint(shared->names[i + 1]);

		CHECK(!fi_trecv(ep, buf + i - first, 1, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
		atomic_fetch_add(&shared->open, 1);
	}
	for (;;) {
		if (fi_cq_read(cq, &e, 1) == 1)
			atomic_fetch_add(&shared->got, 1);
		sched_yield();
	}
}

static int descriptors(void)
{
	DIR *all = opendir("/proc/self/fd");
	int count = 0;

	CHECK(all);
	while (readdir(all))
		count++;
	closedir(all);
	return count;
}

/* Memory of this process alone. */
static long memory(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	long kb = -1;

	CHECK(file);
	while (kb < 0 && fgets(line, sizeof(line), file))
		sscanf(line, "Private_Dirty: %ld", &kb);
	fclose(file);
	return kb;
}

int main(int argc, char **argv)
{
	static fi_addr_t numbers[MOST + 1];
	int peers, fds;
	struct fid_ep *ep;
	time_t begin = time(NULL);
	long before;

	CHECK(argc == 2);
	peers = atoi(argv[1]);
	CHECK(peers > 0 && peers <= MOST);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	CHECK(shared != MAP_FAILED);
	for (int first = 0; first < peers; first += EACH)
		if (!fork())
			serve(first, first + EACH < peers ? first + EACH : peers);
	start();
	ep = endpoint(shared->names[0]);
	while (atomic_load(&shared->open) < peers) {
		CHECK(time(NULL) - begin < 120);
		sched_yield();
	}
	fds = descriptors();
	before = memory();
	CHECK(fi_av_insert(av, shared->names[1], peers, numbers, 0, NULL) == peers);
	for (int i = 0; i < peers; i++)
		while (fi_tinject(ep, "x", 1, numbers[i], 1) == -FI_EAGAIN)
			CHECK(fi_cq_read(cq, NULL, 0) <= 0);
	while (atomic_load(&shared->got) < peers) {
		CHECK(time(NULL) - begin < 240);
		CHECK(fi_cq_read(cq, NULL, 0) <= 0);
		sched_yield();
	}
	printf("descriptors %d\nmemory %ld\n", descriptors() - fds, memory() - before);
	return 0;
}
