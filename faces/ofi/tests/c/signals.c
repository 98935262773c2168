/* Many signals whose handler calls the provider, as handlers of libraries do that clean up when
 * the process is ended: `signals one|many`, threads a domain.
 *
 * A call is carried out if no other is in progress, else refused, and the interrupted call goes
 * on unchanged. The handler allocates nothing unless it is refused: a signal may also come in
 * `malloc`. */
#include "sides.h"
#include <errno.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/fi_rma.h>

enum { SMALL = 64, LONG = 200000, WANTED = 200, LIMIT_S = 300 };

static struct setup s;
static struct fid_cntr *counter;
static struct fid_eq *eq;
static char out[LONG], in[LONG];
static struct fi_context contexts[2];
static volatile sig_atomic_t refused, done_well, leaving;

/* Prints without the C library's own locks. */
static void stop(const char *why, int code)
{
	ssize_t n = write(2, why, strlen(why));

	(void)n;
	_exit(code);
}

#define REFUSED(call)                                                                              \
	do {                                                                                       \
		if ((call) != -FI_EBUSY)                                                           \
			stop("not refused: " #call "\n", 1);                                       \
	} while (0)

/* Calls every function of the provider that works on objects of the domain. */
static void call_all(void)
{
	static char bytes[8];
	static struct fi_cq_err_entry failure;
	struct fi_cq_tagged_entry entry;
	struct fid_mr *mr;
	size_t len = sizeof(bytes);
	uint64_t count = fi_cntr_read(counter);

	REFUSED(fi_cq_read(s.a.cq, &entry, 1));
	REFUSED(fi_cq_readerr(s.b.cq, &failure, 0));
	REFUSED(fi_tinject(s.a.ep, bytes, 8, s.a.peer, 9));
	REFUSED(fi_tsend(s.a.ep, bytes, 8, NULL, s.a.peer, 9, contexts));
	REFUSED(fi_trecv(s.b.ep, bytes, 8, NULL, s.b.peer, 9, 0, contexts));
	REFUSED(fi_send(s.a.ep, bytes, 8, NULL, s.a.peer, contexts));
	REFUSED(fi_write(s.a.ep, bytes, 8, NULL, s.a.peer, 0, 1, contexts));
	REFUSED(fi_read(s.a.ep, bytes, 8, NULL, s.a.peer, 0, 1, contexts));
	REFUSED(fi_av_insert(s.a.av, s.b.name, 1, NULL, 0, NULL));
	REFUSED(fi_av_lookup(s.a.av, s.a.peer, bytes, &len));
	REFUSED(fi_mr_reg(s.domain, bytes, 8, FI_REMOTE_READ, 0, 3, 0, &mr, NULL));
	REFUSED(fi_cntr_wait(counter, count + 1000000, 1));
	REFUSED(fi_getname(&s.a.ep->fid, bytes, &len));
}

static void close_all(void)
{
	REFUSED(fi_close(&s.a.ep->fid));
	REFUSED(fi_close(&s.b.ep->fid));
	REFUSED(fi_close(&s.a.cq->fid));
	REFUSED(fi_close(&s.a.av->fid));
	REFUSED(fi_close(&counter->fid));
	REFUSED(fi_close(&s.domain->fid));
}

static void handler(int number)
{
	char name[NAME];
	size_t len = sizeof(name);
	int error = errno;

	(void)number;
	/* There is no operation of this context. */
	switch (fi_cancel(&s.b.ep->fid, name)) {
	case -FI_EBUSY:
		call_all();
		if (leaving) {
			close_all();
			stop("ended inside of a call\n", 0);
		}
		refused++;
		break;
	case 0:
		if (fi_av_lookup(s.a.av, s.a.peer, name, &len) || len != NAME)
			stop("not looked up\n", 1);
		done_well++;
		break;
	default:
		stop("another error\n", 1);
	}
	errno = error;
}

static void storm(long us)
{
	struct itimerval every = { { 0, us }, { 0, us } };

	CHECK(!setitimer(ITIMER_REAL, &every, NULL));
}

static void exchange(unsigned int round)
{
	size_t len = round % 2 ? LONG : SMALL;

	memset(out, (int)round, len);
	memset(in, ~(int)round, len);
	CHECK(!fi_trecv(s.b.ep, in, len, NULL, s.b.peer, round, 0, &contexts[0]));
	CHECK(!fi_tsend(s.a.ep, out, len, NULL, s.a.peer, round, &contexts[1]));
	CHECK(done(&s, &s.b).len == len);
	CHECK(done(&s, &s.a).op_context == &contexts[1]);
	CHECK(!memcmp(in, out, len));
}

static int child(int threads)
{
	struct fi_info *hints = hints_of(FI_MSG | FI_TAGGED | FI_RMA | FI_DIRECTED_RECV);
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_UNSPEC };
	unsigned int round = 0;

	hints->domain_attr->threading = threads;
	open_domain(&s, hints);
	CHECK(!fi_cntr_open(s.domain, &attr, &counter, NULL));
	CHECK(!fi_eq_open(s.fabric, &eq_attr, &eq, NULL));
	open_side(&s, &s.a, FI_WAIT_NONE);
	open_side(&s, &s.b, FI_WAIT_NONE);
	CHECK(fi_av_insert(s.a.av, s.b.name, 1, &s.a.peer, 0, NULL) == 1);
	CHECK(fi_av_insert(s.b.av, s.a.name, 1, &s.b.peer, 0, NULL) == 1);
	exchange(round++);
	CHECK(!sigaction(SIGALRM, &action, NULL));
	storm(100);
	while (refused < WANTED || done_well == 0 || round < WANTED)
		exchange(round++);
	storm(0);
	fprintf(stderr, "%d refused, %d done, %u messages\n", (int)refused, (int)done_well, round);
	/* Does as a handler that cleans up and exits. */
	leaving = 1;
	storm(100);
	for (;;)
		exchange(round++);
}

int main(int argc, char **argv)
{
	struct timespec limit = { LIMIT_S, 0 };
	sigset_t ends;
	int status;
	pid_t pid;

	CHECK(argc == 2);
	sigemptyset(&ends);
	sigaddset(&ends, SIGCHLD);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		return child(strcmp(argv[1], "one") ? FI_THREAD_SAFE : FI_THREAD_DOMAIN);
	/* A thread that waits for itself would never end. */
	if (sigtimedwait(&ends, NULL, &limit) != SIGCHLD)
		kill(pid, SIGKILL);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}
