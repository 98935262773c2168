/* Binds the rank, or PE, to a core of its own if there are enough: two that share a core by chance
 * spoil the figures. With more of them than cores the system places them. Programs that include
 * this file define _GNU_SOURCE first. */
#include <sched.h>

static void pin(int nth, int ranks) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0 || ranks > CPU_COUNT(&all))
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all) || nth-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}
