/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What the two examples of training share: images of bars, first weights, and the losses that both
 * of them reach.
 *
 *      images (16, 8, 8, 1) -> conv 3x3 of 4 -> relu -> max pool 2x2 -> dense of 4 -> loss */
#ifndef RG_EXAMPLES_BARS_H
#define RG_EXAMPLES_BARS_H

#include <retrograde/retrograde.h>

#include <math.h>
#include <stdio.h>

enum { IMAGES = 16, SIDE = 8, CHANNELS = 4, CLASSES = 4, STEPS = 12, PIXELS = SIDE * SIDE };
enum { W1, B1, W2, B2, PARAMETERS };
enum { MOST = CLASSES * PIXELS }; /* elements of a parameter */

static const char *const parameter_names[PARAMETERS] = { "w1", "b1", "w2", "b2" };
static const int64_t parameter_dims[PARAMETERS][4] = {
    { CHANNELS, 3, 3, 1 }, { CHANNELS }, { CLASSES, SIDE / 2, SIDE / 2, CHANNELS }, { CLASSES }
};

static inline rg_tensor_desc parameter_desc(int i)
{
    return rg_tensor_desc_dense(RG_F32, i % 2 == 0 ? 4 : 1, parameter_dims[i]);
}

/* Hands a failure on. */
#define TRY(call)                         \
    do {                                  \
        const rg_status status_ = (call); \
        if (status_ != RG_OK)             \
            return status_;               \
    } while (0)

/* From -0.5 to 0.5, the same on every machine. */
static inline float draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / 16777216.0f - 0.5f;
}

/* Lying and standing bars in two places each. */
static inline void draw_bars(float images[IMAGES][SIDE][SIDE], int32_t labels[IMAGES])
{
    uint32_t seed = 7;
    for (int n = 0; n < IMAGES; n++) {
        labels[n] = n % CLASSES;
        const int at = labels[n] % 2 == 0 ? 2 : 5;
        for (int i = 0; i < PIXELS; i++) {
            const int row = i / SIDE, column = i % SIDE;
            const int line = labels[n] < 2 ? row : column;
            images[n][row][column] = 0.4f * draw(&seed) + (line == at ? 1.0f : 0.0f);
        }
    }
}

/* Biases start with zeros. Returns how many there are. */
static inline size_t first_weights(int i, float values[MOST])
{
    const rg_tensor_desc desc = parameter_desc(i);
    uint32_t seed = 100u + (uint32_t)i;
    size_t count = 1;
    for (int32_t d = 0; d < desc.rank; d++)
        count *= (size_t)desc.dims[d];
    for (size_t k = 0; k < count; k++)
        values[k] = i % 2 == 0 ? draw(&seed) * (i == W1 ? 1.0f : 0.4f) : 0.0f;
    return count;
}

/* Takes all steps of an example's trainer, each with commands of its own. */
struct trainer;
static inline rg_status take_steps(struct trainer *t, rg_queue *queue,
                                   rg_status (*step)(struct trainer *, rg_commands *, float *),
                                   float losses[STEPS])
{
    for (int i = 0; i < STEPS; i++) {
        rg_commands *commands;
        TRY(rg_commands_create(queue, &commands));
        const rg_status status = step(t, commands, &losses[i]);
        rg_commands_destroy(commands);
        TRY(status);
    }
    return RG_OK;
}

/* The loss of each step. */
static const float wanted_losses[STEPS] = { 1.5774f, 1.5373f, 1.4683f, 1.3847f, 1.2968f, 1.2093f,
                                            1.1215f, 1.0289f, 0.9254f, 0.8107f, 0.6874f, 0.5593f };

static inline int report(rg_status status, const float losses[STEPS])
{
    if (status != RG_OK) {
        fprintf(stderr, "%s\n", rg_error_text());
        return 1;
    }
    int wrong = 0;
    for (int i = 0; i < STEPS; i++) {
        printf("step %2d  loss %.4f\n", i + 1, (double)losses[i]);
        wrong |= !(fabsf(losses[i] - wanted_losses[i]) < 2e-3f * wanted_losses[i]);
    }
    if (wrong)
        fprintf(stderr, "the losses differ from those of the other example\n");
    return wrong;
}

#endif
