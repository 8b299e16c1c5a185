/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The loop over random trials: subjects take turns, failures are shrunk and printed. */
#include "cli/random_network.h"
#include "cli/random_trials.h"

#include <inttypes.h>
#include <time.h>

/* What a child process needs to run trials. */
typedef struct child {
    const rg_random_request *r;
    rg_random_devices *devices;
    rg_networks *networks; /* or NULL: none are wanted */
    rg_random_shared *shared;
} child;

/* Trial `number` of a subject. shared->text receives what repeats it before it runs, shared->said a
 * failure that is not told yet. */
typedef void random_run(child *c, int which, int64_t number);

/* What trials are about: the ops, one after the other, and networks. A further kind of trial is a
 * further entry with a function of its own. */
typedef struct subject {
    const char *name;
    const rg_op_test *test; /* NULL: a network, which shrinks and reports its failures itself */
    random_run *run;
} subject;

typedef struct loop {
    const rg_random_request *r;
    subject subjects[RG_RANDOM_SUBJECTS];
    int count;
    int64_t next, failures;
    int64_t failures_of[RG_RANDOM_SUBJECTS];
    double end;
    FILE *told;
} loop;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void run_op(child *c, int which, int64_t number)
{
    rg_random_shared *shared = c->shared;
    rg_random_case drawn;
    if (!rg_random_draw(c->r->ops[which], (uint64_t)c->r->seed, number, &c->r->limits, &drawn))
        return;
    rg_random_text(&drawn, shared->text);
    shared->trials[which]++;
    if (rg_random_run(c->devices, &drawn, &shared->counts, shared->said) != RG_OK) {
        shared->counts.failures++;
        snprintf(shared->said, RG_SAID, "a valid random call is refused: %s", rg_error_text());
    }
}

static void run_network(child *c, int which, int64_t number)
{
    rg_random_shared *shared = c->shared;
    const uint64_t seed = (uint64_t)c->r->seed * 1000000 + (uint64_t)number;
    const int64_t comparisons = rg_networks_comparisons(c->networks),
                  failures = rg_networks_failures(c->networks);
    snprintf(shared->text, RG_RANDOM_TEXT, "--networks 1 --seed %" PRIu64, seed);
    shared->trials[which]++;
    if (rg_networks_check(c->networks, seed, NULL) != RG_OK) {
        shared->counts.failures++;
        snprintf(shared->said, RG_SAID, "%s", rg_error_text());
    }
    shared->counts.comparisons += rg_networks_comparisons(c->networks) - comparisons;
    shared->counts.failures += rg_networks_failures(c->networks) - failures;
}

static void run_until_failure(const loop *l, child *c)
{
    rg_random_shared *shared = c->shared;
    const int64_t failures = shared->counts.failures;
    for (int64_t i = l->next; shared->counts.failures == failures; i++) {
        if (l->r->trials > 0 ? i >= l->r->trials : now() >= l->end)
            break;
        shared->trial = i;
        shared->subject = (int)(i % l->count);
        shared->text[0] = shared->said[0] = 0;
        rg_random_limit_time();
        l->subjects[shared->subject].run(c, shared->subject, i / l->count);
    }
    shared->outcome = shared->counts.failures > failures ? RG_OUTCOME_FAILED : RG_OUTCOME_FINE;
}

/* In the child: trials until one fails, or the end. */
static void run_trials(void *context, rg_random_shared *shared)
{
    const loop *l = context;
    child c = { .r = l->r, .shared = shared, .devices = rg_random_devices_open(l->r->device) };
    rg_status status = c.devices != NULL ? RG_OK : RG_OUT_OF_MEMORY;
    if (status == RG_OK && l->r->networks)
        status = rg_networks_open(l->r->device, l->r->limits.isa, l->told, &c.networks);
    if (status == RG_OK) {
        run_until_failure(l, &c);
    } else {
        shared->outcome = RG_OUTCOME_REFUSED;
        snprintf(shared->said, RG_SAID, "%s", rg_error_text());
    }
    rg_networks_close(c.networks);
    rg_random_devices_close(c.devices);
}

/* What repeats a trial: a text for an op, a command for a network. */
static void print_command(const loop *l, const subject *s, const char *text)
{
    if (s->test != NULL)
        fprintf(l->told, "     retrograde check %s --device %s --random-case \"%s\"\n", s->name,
                l->r->device, text);
    else
        fprintf(l->told, "     retrograde check --device %s %s\n", l->r->device, text);
}

static void report(loop *l, rg_random_shared *shared)
{
    enum { MOST_SHRUNK = 4 }; /* of one subject: what comes after is often the same again */
    const subject *s = &l->subjects[shared->subject];
    char text[RG_RANDOM_TEXT], said[RG_SAID];
    rg_random_case c;
    snprintf(text, sizeof text, "%s", shared->text);
    snprintf(said, sizeof said, "%s", shared->said);
    if (s->test != NULL && l->failures_of[shared->subject] < MOST_SHRUNK &&
        rg_random_parse(s->test, text, &c) == RG_OK) {
        rg_random_shrink(l->r->device, &c, said);
        rg_random_text(&c, text);
    }
    l->failures++;
    l->failures_of[shared->subject]++;
    if (s->test != NULL || said[0] != 0) {
        fprintf(l->told, "FAIL %s: %s\n", s->name, said);
        print_command(l, s, text);
    }
    fprintf(l->told, "     from trial %" PRId64 " of --seed %" PRId64, shared->trial, l->r->seed);
    if (strcmp(text, shared->text) != 0)
        fprintf(l->told, ", drawn as \"%s\"", shared->text);
    fprintf(l->told, "\n");
    fflush(l->told);
}

static void print_totals(const loop *l, const rg_random_shared *shared)
{
    const rg_random_counts *c = &shared->counts;
    int64_t trials = 0;
    for (int i = 0; i < l->count; i++)
        trials += shared->trials[i];
    printf(l->r->json ? "{\"seed\": %" PRId64 ", \"trials\": %" PRId64 ", \"of\": {"
                      : "seed %" PRId64 ": %" PRId64 " trials (",
           l->r->seed, trials);
    for (int i = 0; i < l->count; i++)
        printf(l->r->json ? "%s\"%s\": %" PRId64 : "%s%s %" PRId64, i > 0 ? ", " : "",
               l->subjects[i].name, shared->trials[i]);
    const double share = c->results > 0 ? (double)c->unsure / (double)c->results : 0;
    printf(l->r->json ? "}, \"comparisons\": %" PRId64 ", \"refused\": %" PRId64
                        ", \"ill_conditioned\": %.4f, \"failures\": %" PRId64 "}\n"
                      : "), %" PRId64 " comparisons, %" PRId64
                        " calls refused, %.4f of the results ill-conditioned, %" PRId64
                        " failures\n",
           c->comparisons, c->refused, share, l->failures);
}

int rg_random_trials(const rg_random_request *request)
{
    loop l = { .r = request, .end = now() + request->seconds };
    l.told = request->json ? stderr : stdout;
    for (; request->ops[l.count] != NULL && l.count < RG_RANDOM_SUBJECTS - 1; l.count++)
        l.subjects[l.count] =
            (subject){ request->ops[l.count]->op->name, request->ops[l.count], run_op };
    if (request->networks)
        l.subjects[l.count++] = (subject){ "network", NULL, run_network };
    rg_random_shared *shared = rg_random_share();
    bool going = shared != NULL;
    while (going) {
        if (rg_random_fork(shared, false, run_trials, &l) != RG_OK) {
            fprintf(stderr, "retrograde: %s\n", rg_error_text());
            return 1;
        }
        if (shared->outcome == RG_OUTCOME_REFUSED) {
            fprintf(stderr, "retrograde: %s\n", shared->said);
            return 1;
        }
        going = shared->outcome == RG_OUTCOME_FAILED;
        if (going)
            report(&l, shared);
        l.next = shared->trial + 1;
    }
    if (shared != NULL)
        print_totals(&l, shared);
    return shared != NULL && l.failures == 0 ? 0 : 1;
}

int rg_random_repeat(const rg_random_request *request, const rg_op_test *test, const char *text)
{
    rg_random_case c;
    rg_random_counts counts = { 0 };
    char said[RG_SAID];
    rg_status status = rg_random_parse(test, text, &c);
    rg_random_devices *devices = rg_random_devices_open(request->device);
    if (status == RG_OK)
        status = devices != NULL ? rg_random_run(devices, &c, &counts, said) : RG_OUT_OF_MEMORY;
    rg_random_devices_close(devices);
    if (status != RG_OK) {
        fprintf(stderr, "retrograde: %s\n", rg_error_text());
        return 2;
    }
    if (counts.failures > 0)
        printf("FAIL %s: %s\n", test->op->name, said);
    else
        printf("%s: %" PRId64 " comparisons, %" PRId64 " calls refused, ok\n", test->op->name,
               counts.comparisons, counts.refused);
    return counts.failures > 0 ? 1 : 0;
}
