/* Ranks are members of a group: they are told of each other, and send to all, some, one and any.
 *
 * Each joins team:RANK. The first says hello to all, and each answers the member that it heard. */
#include <string.h>

#include "check.h"

static weft_member_event next(weft_member *member)
{
    weft_member_event event;
    if (CHECK(weft_member_next(member, 60000000, &event)) != 1)
        exit(2);
    return event;
}

/* Returns the next message that a member sent. */
static weft_member_event message(weft_member *member)
{
    weft_member_event event = next(member);
    while (event.kind != WEFT_MEMBER_MESSAGE)
        event = next(member);
    return event;
}

/* Waits until so many others are there, each told once. */
static void await_others(weft_member *member, int others)
{
    int joined = 0, all = 0;
    while (joined < others || all == 0) {
        weft_member_event event = next(member);
        joined += event.kind == WEFT_MEMBER_JOINED;
        all += event.kind == WEFT_MEMBER_ALL;
        if (event.kind == WEFT_MEMBER_JOINED && strncmp(event.owner.name, "team:", 5) != 0)
            exit(3);
    }
    if (joined != others || all != 1)
        exit(4);
}

static void lead(weft_member *member, int ranks)
{
    uint64_t number;
    int answers = 0, either = 0, left = 0;
    CHECK(weft_member_send(member, WEFT_TO_ALL, 0, 0, "hello", 6, 60000000, &number));
    CHECK(weft_member_send(member, WEFT_TO_EACH, 1, 1, "first", 6, 60000000, NULL));
    CHECK(weft_member_send(member, WEFT_TO_ONE, 1, ranks, "either", 7, 60000000, NULL));
    while (answers < ranks - 1 || either < 1) {
        weft_member_event event = message(member);
        if (event.sent_to != WEFT_TO_ONE || event.owner.lower == 0)
            exit(5);
        either += strcmp(event.data, "it was me") == 0;
        answers += strcmp(event.data, "hello to you") == 0;
    }
    CHECK(weft_member_send(member, WEFT_TO_ALL, 0, 0, "bye", 4, 60000000, NULL));
    CHECK(weft_member_flush(member, 60000000));
    while (left < ranks - 1) {
        weft_member_event event = next(member);
        if (event.kind == WEFT_MEMBER_LEFT) {
            left++;
            if (event.cause[0] == 0 || strncmp(event.owner.name, "team:", 5) != 0)
                exit(6);
        }
    }
    if (weft_member_send(member, WEFT_TO_EACH, 1, 1, "x", 1, 0, NULL) != WEFT_REFUSED)
        exit(7);
    printf("%d members: all heard each other\n", ranks);
}

static void follow(weft_member *member, int rank)
{
    int firsts = 0;
    for (;;) {
        weft_member_event event = message(member);
        if (event.owner.lower != 0)
            exit(8);
        if (strcmp(event.data, "bye") == 0)
            break;
        firsts += strcmp(event.data, "first") == 0 && event.sent_to == WEFT_TO_EACH;
        const char *answer = strcmp(event.data, "hello") == 0 ? "hello to you" : "it was me";
        if (strcmp(event.data, "first") != 0)
            CHECK(weft_member_send_to(member, &event.id, answer, strlen(answer) + 1, 60000000,
                                      NULL));
    }
    if (firsts != (rank == 1))
        exit(9);
    CHECK(weft_member_flush(member, 60000000));
}

/* Calls with arguments that are none, which are refused and take no event. */
static void misuse(weft_names *names, weft_member *member)
{
    weft_member *other;
    weft_member_event event;
    if (weft_member_join(names, "no name", NULL, 0, -1, -1, &other) != WEFT_ARGUMENT
        || weft_member_join(names, "team", NULL, WEFT_NAMES_MESSAGES, -1, -1, &other)
               != WEFT_ARGUMENT
        || weft_member_join(names, "5", NULL, 0, -1, -1, &other) != WEFT_REFUSED || other != NULL
        || weft_member_join(names, "team", NULL, 0, -1, -1, NULL) != WEFT_ARGUMENT
        || weft_member_send(member, 9, 0, 0, "", 0, 0, NULL) != WEFT_ARGUMENT
        || weft_member_send(member, WEFT_TO_ONE, 2, 1, "", 0, 0, NULL) != WEFT_ARGUMENT
        || weft_member_send(member, WEFT_TO_ALL, 0, 0, NULL, 1, 0, NULL) != WEFT_ARGUMENT
        || weft_member_send(member, WEFT_TO_ALL, 0, 0, "", 66001, 0, NULL) != WEFT_TOO_LONG
        || weft_member_send_to(member, NULL, "", 0, 0, NULL) != WEFT_ARGUMENT
        || weft_member_next(member, 0, NULL) != WEFT_ARGUMENT
        || weft_member_next(NULL, 0, &event) != WEFT_ARGUMENT
        || weft_member_next((weft_member *)names, 0, &event) != WEFT_ARGUMENT)
        exit(10);
    if (CHECK(weft_member_fd(member)) == CHECK(weft_names_fd(names)))
        exit(11);
}

int main(void)
{
    weft_job *job;
    weft_names *names;
    weft_member *member;
    char name[32];
    CHECK(weft_init(&job));
    CHECK(weft_names_open(&names));
    const int rank = weft_rank(job), ranks = weft_size(job);
    snprintf(name, sizeof name, "team:%d", rank);
    CHECK(weft_member_join(names, name, NULL, 0, -1, -1, &member));
    misuse(names, member);
    await_others(member, ranks - 1);
    /* Nobody leaves before all have seen all. */
    CHECK(weft_barrier(job));
    if (rank == 0)
        lead(member, ranks);
    else
        follow(member, rank);
    CHECK(weft_member_leave(member));
    if (weft_member_leave(member) != WEFT_ARGUMENT)
        exit(12);
    CHECK(weft_names_close(names));
    CHECK(weft_finish(job));
    return 0;
}
