/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Child processes: trials that crash or hang end one of these. The parent opens no device, so that
 * a child can. */
#include "cli/random_trials.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of one trial, also where sanitizers make it slow: of the processor, and by the clock. */
enum { MOST_SECONDS = 60, MOST_WAITED = 300 };

rg_random_shared *rg_random_share(void)
{
    void *memory = mmap(NULL, sizeof(rg_random_shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void rg_random_limit_time(void)
{
    const struct itimerval most = { .it_value = { .tv_sec = MOST_SECONDS } };
    setitimer(ITIMER_PROF, &most, NULL);
    alarm(MOST_WAITED);
}

static void be_quiet(void)
{
    const int null = open("/dev/null", O_WRONLY);
    if (null >= 0) {
        dup2(null, STDERR_FILENO);
        dup2(null, STDOUT_FILENO);
    }
}

rg_status rg_random_fork(rg_random_shared *shared, bool quiet,
                         void (*work)(void *context, rg_random_shared *shared), void *context)
{
    shared->outcome = RG_OUTCOME_NONE;
    shared->said[0] = 0;
    fflush(NULL);
    const pid_t child = fork();
    RG_CHECK(child >= 0, RG_OUT_OF_MEMORY, "cannot start another process");
    if (child == 0) {
        if (quiet)
            be_quiet();
        rg_random_limit_time();
        work(context, shared);
        fflush(NULL);
        _exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        ;
    if (shared->outcome != RG_OUTCOME_NONE)
        return RG_OK;
    const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    shared->outcome = RG_OUTCOME_FAILED;
    if (number == SIGALRM || number == SIGPROF)
        snprintf(shared->said, RG_SAID, "takes longer than %d seconds",
                 number == SIGPROF ? MOST_SECONDS : MOST_WAITED);
    else if (number != 0)
        snprintf(shared->said, RG_SAID, "ends with signal %d (%s)", number, strsignal(number));
    else
        snprintf(shared->said, RG_SAID, "ends the process with status %d",
                 WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return RG_OK;
}
