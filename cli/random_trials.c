/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The loop over random trials: subjects take turns, failures are shrunk and printed. */
#include "cli/random_trials.h"

#include <inttypes.h>
#include <time.h>

/* Trial `number` of a subject. `text` receives what repeats it before it runs, `said` a failure. */
typedef void random_run(rg_random_devices *devices, const rg_random_request *r, int which,
                        int64_t number, rg_random_shared *shared);

/* What trials are about: the ops, one after the other. A further kind of trial is a further entry
 * with a function of its own. */
typedef struct subject {
    const char *name;
    const rg_op_test *test; /* NULL: its text cannot be shrunk */
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

static void run_op(rg_random_devices *devices, const rg_random_request *r, int which,
                   int64_t number, rg_random_shared *shared)
{
    rg_random_case c;
    if (!rg_random_draw(r->ops[which], (uint64_t)r->seed, number, &r->limits, &c))
        return;
    rg_random_text(&c, shared->text);
    shared->trials[which]++;
    if (rg_random_run(devices, &c, &shared->counts, shared->said) != RG_OK) {
        shared->counts.failures++;
        snprintf(shared->said, RG_SAID, "is drawn, and refused: %s", rg_error_text());
    }
}

/* In the child: trials until one fails, or the end. */
static void run_trials(void *context, rg_random_shared *shared)
{
    const loop *l = context;
    rg_random_devices *devices = rg_random_devices_open(l->r->device);
    const int64_t failures = shared->counts.failures;
    for (int64_t i = l->next; devices != NULL; i++) {
        const bool over = l->r->trials > 0 ? i >= l->r->trials : now() >= l->end;
        if (over || shared->counts.failures > failures)
            break;
        shared->trial = i;
        shared->subject = (int)(i % l->count);
        shared->text[0] = 0;
        rg_random_limit_time();
        l->subjects[shared->subject].run(devices, l->r, shared->subject, i / l->count, shared);
    }
    rg_random_devices_close(devices);
    shared->outcome = shared->counts.failures > failures ? RG_OUTCOME_FAILED : RG_OUTCOME_FINE;
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
    fprintf(l->told, "FAIL %s: %s\n     retrograde check %s --device %s --random-case \"%s\"\n",
            s->name, said, s->name, l->r->device, text);
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
    for (; request->ops[l.count] != NULL && l.count < RG_RANDOM_SUBJECTS; l.count++)
        l.subjects[l.count] =
            (subject){ request->ops[l.count]->op->name, request->ops[l.count], run_op };
    rg_random_shared *shared = rg_random_share();
    bool going = shared != NULL;
    while (going) {
        if (rg_random_fork(shared, false, run_trials, &l) != RG_OK) {
            fprintf(stderr, "retrograde: %s\n", rg_error_text());
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
