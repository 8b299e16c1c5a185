/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Progress on a terminal, in a log, and as JSON. */
#include "cli/train_show.h"
#include "cli/print_json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

double rg_show_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Whether the lines of a terminal can be drawn again. */
static bool is_terminal(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) == 1 && (kind == NULL || strcmp(kind, "dumb") != 0);
}

/* Whether the locale has letters beyond ASCII; the first variable that is set counts. */
static bool has_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != 0)
            return strcasestr(value, "utf-8") != NULL || strcasestr(value, "utf8") != NULL;
    }
    return false;
}

void rg_show_begin(rg_train_show *show, bool json, int64_t epochs, int64_t images)
{
    *show = (rg_train_show){ .json = json,
                             .terminal = !json && is_terminal(),
                             .is_plain = !has_utf8(),
                             .epochs = epochs,
                             .images = images,
                             .metric = "accuracy",
                             .began = rg_show_clock() };
}

void rg_show_clear(const rg_train_show *show)
{
    if (show->terminal && !show->silent)
        fputs("\r\033[K", stdout);
    fflush(stdout);
}

void rg_show_say(const rg_train_show *show, const char *format, ...)
{
    va_list values;
    FILE *to = show->json ? stderr : stdout;
    if (show->silent)
        return;
    rg_show_clear(show);
    va_start(values, format);
    vfprintf(to, format, values);
    va_end(values);
    fputc('\n', to);
    fflush(to);
}

static void clock_text(double seconds, char text[16])
{
    const int64_t all = (int64_t)(seconds + 0.5);
    if (all >= 3600)
        snprintf(text, 16, "%d:%02d:%02d", (int)(all / 3600 % 10000), (int)(all / 60 % 60),
                 (int)(all % 60));
    else
        snprintf(text, 16, "%d:%02d", (int)(all / 60), (int)(all % 60));
}

enum { LONGEST_BAR = 24, SHORTEST_BAR = 6 };

/* A bar of this many characters, with eighths of a character at its end. */
static void draw_bar(double part, int length, bool is_plain, char *bar)
{
    static const char *const eighths[] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
    const int filled = (int)(part * length * 8);
    strcpy(bar, is_plain ? "[" : "│");
    for (int i = 0; i < length; i++) {
        const int here = filled - 8 * i;
        strcat(bar, here < 8 && (is_plain || here <= 0) ? " "
                    : is_plain                          ? "#"
                    : here >= 8                         ? "█"
                                                        : eighths[here]);
    }
    strcat(bar, is_plain ? "]" : "│");
}

/* Of the images so far. */
static double loss_of(const rg_trainer_progress *p)
{
    return p->images > 0 ? rg_shown(p->loss) : (double)NAN;
}

static double accuracy_of(const rg_trainer_progress *p)
{
    return p->images > 0 ? p->score : (double)NAN;
}

/* Columns of the terminal; 80 if it does not tell. */
static int terminal_width(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* What is known of an epoch under way, as pieces that can be left out from the end; their number.
 * Before the first batch is complete nothing is known. */
enum { PIECES = 4, PIECE = 40 };
static int progress_pieces(const rg_train_show *show, const rg_trainer_progress *p, double now,
                           char pieces[PIECES][PIECE])
{
    const int64_t done = (p->epoch - 1) * show->images + p->images - show->done_before;
    const int64_t all = show->epochs * show->images - show->done_before;
    int count = 0;
    if (p->images == 0)
        return 0;
    snprintf(pieces[count++], PIECE, " loss %.4f", loss_of(p));
    snprintf(pieces[count++], PIECE, "  %s %.4f", show->metric, accuracy_of(p));
    if (p->now_images > 0 && p->now_seconds > 0)
        snprintf(pieces[count++], PIECE, "  %.0f images/s", (double)p->now_images / p->now_seconds);
    if (done > 0) {
        char left[16];
        clock_text((now - show->began) * (double)(all - done) / (double)done, left);
        snprintf(pieces[count++], PIECE, "  %s left", left);
    }
    return count;
}

void rg_show_reading(rg_train_show *show, int64_t done, int64_t of)
{
    const double now = rg_show_clock();
    if (!show->terminal || show->silent || now - show->began < 1 || now - show->drawn < 0.1)
        return;
    show->drawn = now;
    printf("\r\033[Kreading images: %" PRId64 " of %" PRId64, done, of);
    fflush(stdout);
}

/* One line that fits the terminal: the bar becomes shorter, then the last pieces are left out. */
void rg_show_progress(rg_train_show *show, const rg_trainer_progress *p)
{
    const double now = rg_show_clock();
    if (!show->terminal || show->silent || now - show->drawn < 0.1)
        return;
    show->drawn = now;
    char bar[(LONGEST_BAR + 2) * 4 + 1], pieces[PIECES][PIECE], epoch[64];
    int count = progress_pieces(show, p, now, pieces), rest = 0;
    const int start =
        snprintf(epoch, sizeof epoch, "epoch %" PRId64 "/%" PRId64 " ", p->epoch, show->epochs);
    const int columns =
        terminal_width() - 1 - start - 2; /* without the last column and the bar's ends */
    for (int i = 0; i < count; i++)
        rest += (int)strlen(pieces[i]);
    while (count > 0 && rest + SHORTEST_BAR > columns)
        rest -= (int)strlen(pieces[--count]);
    const int length = columns - rest < LONGEST_BAR ? columns - rest : LONGEST_BAR;
    const double part = (double)p->images / (double)(show->images > 0 ? show->images : 1);
    draw_bar(part > 1 ? 1 : part, length > 0 ? length : 0, show->is_plain, bar);
    printf("\r\033[K%s%s", epoch, bar);
    for (int i = 0; i < count; i++)
        fputs(pieces[i], stdout);
    fflush(stdout);
}

static void json_member(const char *name, double value)
{
    printf(",\"%s\":", name);
    rg_print_json_number(value);
}

/* "validation_absolute_error", or "accuracy" for all that have one. */
static const char *json_name(const char *metric, const char *part)
{
    const bool error = strcmp(metric, rg_score_name(RG_TARGET_VALUES)) == 0;
    if (part[0] == 0)
        return error ? "absolute_error" : "accuracy";
    return error ? "validation_absolute_error" : "validation_accuracy";
}

/* What only some targets have. */
static void json_scores(const char *part, const rg_trainer_result *r)
{
    char name[32];
    snprintf(name, sizeof name, "%s_top5", part);
    if (isfinite(r->top5))
        json_member(name, r->top5);
    snprintf(name, sizeof name, "%s_iou", part);
    if (isfinite(r->iou))
        json_member(name, r->iou);
}

const char *rg_score_name(rg_target_kind target)
{
    return target == RG_TARGET_VALUES ? "absolute error" : "accuracy";
}

void rg_show_result(rg_target_kind target, int32_t classes, const rg_trainer_result *r)
{
    static const char *const names[] = { "accuracy", "label accuracy", "mean absolute error",
                                         "pixel accuracy" };
    const bool values = target == RG_TARGET_VALUES;
    if (values)
        printf("%s %.4f", names[target], rg_shown(r->score));
    else
        printf("%s %.2f %%", names[target], 100 * r->accuracy);
    if (target == RG_TARGET_CLASS && classes > 5)
        printf(", top-5 %.2f %%", 100 * r->top5);
    if (target == RG_TARGET_MASK)
        printf(", mean intersection over union %.2f %%", 100 * r->iou);
    printf(", loss %.4f", rg_shown(r->loss));
}

void rg_show_epoch(rg_train_show *show, const rg_trainer_progress *p,
                   const rg_trainer_result *validation)
{
    const double loss = loss_of(p);
    const double accuracy = accuracy_of(p);
    if (show->silent)
        return;
    if (show->json) {
        printf("{\"epoch\":%" PRId64 ",\"images\":%" PRId64, p->epoch, p->images);
        json_member("loss", loss);
        json_member(json_name(show->metric, ""), accuracy);
        if (validation != NULL) {
            json_member("validation_loss", validation->loss);
            json_member(json_name(show->metric, "validation_"), validation->score);
            json_scores("validation", validation);
        }
        json_member("rate", p->rate);
        json_member("seconds", p->now_seconds);
        json_member("images_per_second", (double)p->now_images / p->now_seconds);
        puts("}");
    } else {
        rg_show_clear(show);
        printf("epoch %2" PRId64 "/%" PRId64 "  loss %.4f  %s %.4f", p->epoch, show->epochs, loss,
               show->metric, accuracy);
        if (validation != NULL)
            printf("  validation loss %.4f  %s %.4f", rg_shown(validation->loss), show->metric,
                   validation->score);
        printf("  %.1f s  %.0f images/s\n", p->now_seconds, (double)p->now_images / p->now_seconds);
    }
    fflush(stdout);
}

void rg_show_end(const rg_train_show *show, const rg_network_desc *network,
                 const rg_trainer_result *test, double seconds, const char *report,
                 const char *path)
{
    if (show->json) {
        printf("{\"done\":true");
        json_member("test_loss", test->loss);
        if (network->target == RG_TARGET_VALUES)
            json_member("test_absolute_error", test->score);
        else
            json_member("test_accuracy", test->accuracy);
        json_scores("test", test);
        json_member("seconds", seconds);
        puts("}");
    } else {
        char spent[16];
        clock_text(seconds, spent);
        printf("\ntest ");
        rg_show_result(network->target, network->classes, test);
        printf(", after %s\nreport   %s\nnetwork  %s\n", spent, report, path);
    }
    fflush(stdout);
}
