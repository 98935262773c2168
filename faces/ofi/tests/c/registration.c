/* Registers memory, and names that of others, as callers of each version of the interface do:
 * `registration VERSION`, as 1.4, or `newest`.
 *
 * The installed libfabric is asked for versions that it knows, and its own software providers
 * get the same hints. The provider itself is asked for newer ones, as a newer libfabric would
 * do. */
#include "sides.h"
#include <dlfcn.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <rdma/providers/fi_prov.h>

enum { LEN = 4096 };

static struct setup s;
static uint32_t version;
static struct fi_provider *provider;
static char target[LEN], local[LEN];

/* libfabric's core and a provider return the same structure but for the provider's name. */
static int getinfo(struct fi_info *hints, struct fi_info **info)
{
	if (version <= fi_version())
		return fi_getinfo(version, NULL, NULL, 0, hints, info);
	return provider->getinfo(version, NULL, NULL, 0, hints, info);
}

static int open_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric)
{
	return version <= fi_version() ? fi_fabric(attr, fabric, NULL)
				       : provider->fabric(attr, fabric, NULL);
}

static struct fi_info *hints_for(uint64_t caps, int mr_mode)
{
	struct fi_info *hints = hints_of(caps);

	hints->mode = FI_CONTEXT;
	hints->domain_attr->mr_mode = mr_mode;
	return hints;
}

static const int BITS = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

/* The answer of the provider of this name to a hint: a mode, or -1 for no answer. */
static int answer(const char *name, int mr_mode)
{
	struct fi_info *hints = hints_for(FI_MSG | FI_RMA, mr_mode), *info = NULL;
	int mode = -1, ours = !strcmp(name, "weft");
	int ret;

	free(hints->fabric_attr->prov_name);
	hints->fabric_attr->prov_name = strdup(name);
	ret = ours ? getinfo(hints, &info) : fi_getinfo(version, NULL, NULL, 0, hints, &info);
	CHECK(!ret || ret == -FI_ENODATA);
	if (!ret)
		mode = info->domain_attr->mr_mode;
	fi_freeinfo(info);
	fi_freeinfo(hints);
	return mode;
}

/* The provider answers as libfabric's own providers do. */
static void compare(void)
{
	static const char *const others[] = { "tcp;ofi_rxm", "sockets" };
	const int asked[] = { 0, FI_MR_BASIC, FI_MR_SCALABLE, FI_MR_BASIC | FI_MR_SCALABLE,
			      FI_MR_LOCAL, BITS, BITS | FI_MR_ENDPOINT, BITS | FI_MR_BASIC };
	int old = version < FI_VERSION(1, 5);
	const int expected[] = { old ? FI_MR_BASIC : 0, FI_MR_BASIC, FI_MR_SCALABLE, -1,
				 old ? -1 : 0, old ? -1 : 0, old ? -1 : 0, -1 };
	size_t compared = 0;

	for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++)
		CHECK(answer("weft", asked[i]) == expected[i]);
	for (size_t p = 0; p < 2 && version <= fi_version(); p++) {
		if (answer(others[p], FI_MR_SCALABLE) != FI_MR_SCALABLE)
			continue;
		compared++;
		for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++)
			CHECK(answer(others[p], asked[i]) == answer("weft", asked[i]));
	}
	printf("compared with %zu providers\n", compared);
}

/* The error of an operation, or 0. */
static int ended(ssize_t started)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry failure;
	fi_addr_t source;
	ssize_t n;

	CHECK(!started);
	n = next(&s, &s.a, &entry, &source, &failure);
	return n < 0 ? (int)-n : 0;
}

/* One side uses memory of the other according to the mode: `addr` is the first byte's address. */
static void use(uint64_t addr, uint64_t key, struct fi_context *context)
{
	uint64_t sum = 5, before = 0;

	memset(target, 1, LEN);
	memset(local, 2, LEN);
	CHECK(!ended(fi_write(s.a.ep, local, 1000, NULL, s.a.peer, addr + 8, key, context)));
	CHECK(target[7] == 1 && target[8] == 2 && target[1007] == 2 && target[1008] == 1);
	memset(local, 3, LEN);
	CHECK(!ended(fi_read(s.a.ep, local, LEN, NULL, s.a.peer, addr, key, context)));
	CHECK(!memcmp(local, target, LEN));
	memset(target, 0, 16);
	CHECK(!ended(fi_fetch_atomic(s.a.ep, &sum, 1, NULL, &before, NULL, s.a.peer, addr, key,
				     FI_UINT64, FI_SUM, context)));
	CHECK(!ended(fi_fetch_atomic(s.a.ep, &sum, 1, NULL, &before, NULL, s.a.peer, addr, key,
				     FI_UINT64, FI_SUM, context)));
	CHECK(before == 5);
	/* The bytes before and after it are refused. */
	CHECK(ended(fi_write(s.a.ep, local, 1, NULL, s.a.peer, addr + LEN, key, context)));
	CHECK(ended(fi_write(s.a.ep, local, 2, NULL, s.a.peer, addr - 1, key, context)));
	CHECK(ended(fi_read(s.a.ep, local, 1, NULL, s.a.peer, addr + (1ull << 40), key, context)));
	if (addr)
		CHECK(ended(fi_write(s.a.ep, local, 1, NULL, s.a.peer, 0, key, context)));
}

/* Runs everything from `fi_getinfo` to the use of memory, with the caller's hints. `more` are
 * duties that the caller takes on beyond those asked of it. */
static void caller(const char *who, struct fi_info *hints, int more)
{
	uint64_t access = FI_REMOTE_READ | FI_REMOTE_WRITE | FI_READ | FI_WRITE;
	struct fid_mr *mr, *again;
	struct fi_context context;
	int mode, basic;

	memset(&s, 0, sizeof(s));
	CHECK(!getinfo(hints, &s.info));
	fi_freeinfo(hints);
	mode = s.info->domain_attr->mr_mode |= more;
	printf("%s: mode %#x\n", who, mode);
	if (version < FI_VERSION(1, 5))
		CHECK(mode == FI_MR_BASIC || mode == FI_MR_SCALABLE);
	basic = mode == FI_MR_BASIC;
	CHECK(!open_fabric(s.info->fabric_attr, &s.fabric));
	CHECK(!fi_domain(s.fabric, s.info, &s.domain, NULL));
	open_side(&s, &s.a, FI_WAIT_NONE);
	open_side(&s, &s.b, FI_WAIT_NONE);
	CHECK(fi_av_insert(s.a.av, s.b.name, 1, &s.a.peer, 0, NULL) == 1);
	CHECK(fi_av_insert(s.b.av, s.a.name, 1, &s.b.peer, 0, NULL) == 1);

	CHECK(!fi_mr_reg(s.domain, target, LEN, access, 0, 51, 0, &mr, NULL));
	if (basic || mode & FI_MR_PROV_KEY) {
		/* Callers that leave keys to the provider pass the same one each time. */
		CHECK(!fi_mr_reg(s.domain, local, LEN, access, 0, 51, 0, &again, NULL));
		CHECK(fi_mr_key(again) != fi_mr_key(mr));
		CHECK(!fi_close(&again->fid));
	} else {
		CHECK(fi_mr_key(mr) == 51);
		CHECK(fi_mr_reg(s.domain, local, LEN, access, 0, 51, 0, &again, NULL) ==
		      -FI_ENOKEY);
	}
	use(basic || mode & FI_MR_VIRT_ADDR ? (uint64_t)(uintptr_t)target : 0, fi_mr_key(mr),
	    &context);
	CHECK(!fi_close(&mr->fid));
	close_both(&s);
}

/* Hints of Charm++'s layer, which takes the two old modes alone. */
static struct fi_info *charm(void)
{
	struct fi_info *hints = hints_for(FI_TAGGED | FI_RMA | FI_REMOTE_READ, FI_MR_UNSPEC);

	hints->domain_attr->mode = ~0ull;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	return hints;
}

/* Hints of GASNet's conduit. */
static struct fi_info *gasnet(int mr_mode)
{
	struct fi_info *hints = hints_for(FI_RMA | FI_MSG | FI_MULTI_RECV, mr_mode);

	hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->domain_attr->av_type = FI_AV_TABLE;
	return hints;
}

static void find_provider(void)
{
	char path[4096];
	struct fi_provider *(*ini)(void);
	void *file;

	snprintf(path, sizeof(path), "%s/libweft-fi.so", getenv("FI_PROVIDER_PATH"));
	file = dlopen(path, RTLD_NOW);
	CHECK(file);
	*(void **)&ini = dlsym(file, "fi_prov_ini");
	CHECK(ini);
	provider = ini();
}

int main(int argc, char **argv)
{
	unsigned int major, minor;

	CHECK(argc == 2);
	find_provider();
	if (!strcmp(argv[1], "newest")) {
		version = provider->fi_version;
	} else {
		CHECK(sscanf(argv[1], "%u.%u", &major, &minor) == 2);
		version = FI_VERSION(major, minor);
	}
	compare();
	caller("charm", charm(), 0);
	caller("gasnet, unspecified", gasnet(FI_MR_UNSPEC), 0);
	caller("gasnet, basic", gasnet(FI_MR_BASIC), 0);
	caller("gasnet, scalable", gasnet(FI_MR_SCALABLE), 0);
	if (version >= FI_VERSION(1, 5)) {
		caller("gasnet", gasnet(BITS | FI_MR_ENDPOINT), 0);
		/* A caller that sets an offered bit again obeys it. */
		caller("addresses", gasnet(BITS), FI_MR_VIRT_ADDR);
		caller("addresses and keys", gasnet(BITS), FI_MR_VIRT_ADDR | FI_MR_PROV_KEY);
	}
	return 0;
}
