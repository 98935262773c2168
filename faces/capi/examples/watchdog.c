/* Rank 0 computes and calls nothing: a thread of weft serves the others' additions to its counter
 * and calls its upcall, which runs beside the computation. WEFT_RECEIPT=watchdog asks for that
 * thread: a program that needs it says so before weft_init, or its user does. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { KEY = 1, DONE = 2, BYE = 3, TICKETS = 50, SECONDS = 30 };

static atomic_int done;

static void on_key(weft_job *job, weft_packet *packet, void *context)
{
    (void)job;
    memcpy(context, weft_packet_data(packet, NULL), sizeof(uint64_t));
}

static void on_done(weft_job *job, weft_packet *packet, void *context)
{
    (void)context;
    CHECK(weft_try_send(job, weft_packet_source(packet), BYE, 0, NULL, 0));
    atomic_fetch_add(&done, 1);
}

static void on_bye(weft_job *job, weft_packet *packet, void *context)
{
    (void)job, (void)packet;
    *(int *)context = 1;
}

int main(void)
{
    weft_job *job;
    uint64_t key = 0, value;
    int bye = 0;

    setenv("WEFT_RECEIPT", "watchdog", 0);
    if (strcmp(getenv("WEFT_RECEIPT"), "watchdog") != 0) {
        fprintf(stderr, "this program needs WEFT_RECEIPT=watchdog, and not %s\n",
                getenv("WEFT_RECEIPT"));
        return 1;
    }
    CHECK(weft_init(&job));
    CHECK(weft_handle(job, KEY, on_key, &key));
    CHECK(weft_handle(job, DONE, on_done, NULL));
    CHECK(weft_handle(job, BYE, on_bye, &bye));
    CHECK(weft_barrier(job));
    int size = weft_size(job);
    if (weft_rank(job) > 0) {
        while (key == 0)
            CHECK(weft_wait(job, 1000));
        for (int i = 0; i < TICKETS; i++)
            CHECK(weft_fetch_add(job, 0, key, 1, &value));
        CHECK(weft_send(job, 0, DONE, 0, NULL, 0));
        while (!bye)
            CHECK(weft_wait(job, 1000));
    } else {
        CHECK(weft_counter(job, 0, &key));
        for (int i = 1; i < size; i++)
            CHECK(weft_send(job, i, KEY, 0, &key, sizeof key));
        time_t start = time(NULL);
        while (atomic_load(&done) < size - 1) {
            if (time(NULL) - start > SECONDS) {
                fprintf(stderr, "nobody was served while rank 0 computed\n");
                return 1;
            }
        }
        CHECK(weft_counter_value(job, key, &value));
        printf("%d tickets were drawn while rank 0 computed\n", (int)value);
    }
    CHECK(weft_barrier(job));
    CHECK(weft_finish(job));
    return 0;
}
