/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Resize by cubic polynomials: along each axis a product with a matrix of constants, which has four
 * weights in each row. Its gradient is that of the products. */
#include "onnx/import.h"

#include <retrograde/nodes.h>

#include <math.h>
#include <string.h>

/* One axis of an image, in pixels. */
typedef struct axis {
    int64_t in, out;
    double scale; /* of the file, or out / in */
    double a;     /* of the polynomials */
    rg_upsample_grid grid;
    bool to_first; /* one pixel looks at the first one */
    bool exclude;  /* pixels outside have no weight; otherwise they are those of the edge */
} axis;

/* Where pixel `o` of the result looks. */
static double source_of(const axis *x, int64_t o)
{
    if (x->to_first && x->out == 1)
        return 0;
    if (x->grid == RG_UPSAMPLE_ALIGN_CORNERS)
        return x->out > 1 ? (double)o * (double)(x->in - 1) / (double)(x->out - 1) : 0;
    return x->grid == RG_UPSAMPLE_HALF_PIXEL ? ((double)o + 0.5) / x->scale - 0.5
                                             : (double)o / x->scale;
}

/* The weight of a pixel at this distance, below 2. */
static double weight_of(double a, double distance)
{
    const double d = fabs(distance);
    return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
}

static void fill_row(const axis *x, int64_t o, rg_element row[])
{
    const double at = source_of(x, o), base = floor(at);
    double weights[4], sum = 0;
    for (int k = 0; k < 4; k++) {
        const double pixel = base + (double)(k - 1);
        const bool outside = pixel < 0 || pixel > (double)(x->in - 1);
        weights[k] = x->exclude && outside ? 0 : weight_of(x->a, at - pixel);
        sum += weights[k];
    }
    for (int k = 0; k < 4; k++) {
        const double pixel = fmin(fmax(base + (double)(k - 1), 0), (double)(x->in - 1));
        row[(int64_t)pixel].f += x->exclude ? weights[k] / sum : weights[k];
    }
}

/* Multiplies dimension `d` of an image (n, h, w, c), 1 or 2, with the matrix (out, in). */
static rg_status multiply(rg_import *m, const axis *x, int32_t d, rg_flow *flow)
{
    rg_matmul_desc desc = rg_matmul_desc_default();
    rg_array *matrix = NULL;
    rg_flow constant, y;
    const rg_flow *inputs[] = { &constant, flow };
    const int64_t sizes[] = { x->out, x->in };
    int64_t dims[RG_PROBES][RG_MAX_RANK], end[RG_PROBES][RG_MAX_RANK];
    int32_t order[RG_MAX_RANK];
    memcpy(order, flow->order, sizeof order);
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *matrix, &matrix));
    RG_TRY(rg_array_create(m, rg_onnx_type_of(flow->shape[0].dtype), 2, sizes, false, matrix));
    for (int64_t o = 0; o < x->out; o++)
        fill_row(x, o, matrix->data + o * x->in);
    RG_TRY(rg_import_constant(m, matrix, (const int32_t[]){ 0, 1 }, &constant));
    for (int32_t p = 0; p < RG_PROBES; p++) {
        const int64_t *from = flow->shape[p].dims;
        memcpy(end[p], from, sizeof end[p]);
        end[p][d] = x->out;
        dims[p][0] = from[0] * (d == 2 ? from[1] : 1);
        dims[p][1] = from[d];
        dims[p][2] = (d == 1 ? from[2] : 1) * from[3];
    }
    RG_TRY(rg_flow_reshape(m, flow, 3, dims));
    RG_TRY(rg_import_apply(m, "matmul", &desc, inputs, 2, &y, 1));
    RG_TRY(rg_flow_reshape(m, &y, 4, end));
    *flow = y;
    memcpy(flow->order, order, sizeof order);
    return RG_OK;
}

/* The node as the table of operators reads it, with the scales and sizes of linear. */
static rg_status as_linear(rg_import *m, const rg_proto_node *cubic, rg_proto_node *node)
{
    *node = *cubic;
    RG_TRY(rg_arena_take(&m->network->arena, cubic->attribute_count, sizeof *node->attributes,
                         &node->attributes));
    for (size_t i = 0; i < cubic->attribute_count; i++) {
        node->attributes[i] = cubic->attributes[i];
        if (strcmp(cubic->attributes[i].name, "mode") == 0)
            node->attributes[i].s = "linear";
    }
    return RG_OK;
}

rg_status rg_convert_cubic(rg_import *m, const rg_proto_node *cubic)
{
    rg_onnx_call *call = NULL;
    rg_proto_node node;
    rg_flow x;
    axis shared = { .a = -0.75 };
    const char *grid = "";
    RG_TRY(as_linear(m, cubic, &node));
    RG_TRY(rg_arena_take(&m->network->arena, 1, sizeof *call, &call));
    RG_TRY(rg_import_call(m, &node, call));
    RG_TRY(rg_attribute_float(cubic, "cubic_coeff_a", &shared.a));
    RG_TRY(rg_attribute_bool(cubic, "exclude_outside", &shared.exclude));
    RG_TRY(rg_attribute_text(cubic, "coordinate_transformation_mode", &grid));
    shared.to_first = strcmp(grid, "pytorch_half_pixel") == 0;
    const rg_upsample_desc *desc = (const rg_upsample_desc *)call->desc;
    shared.grid = desc->grid;
    RG_TRY(rg_import_channels_last(m, cubic, 0, &x));
    RG_CHECK(rg_flow_rank(&x) == 4, RG_UNSUPPORTED,
             "cubic polynomials are covered for images "
             "(n, c, h, w)");
    for (int32_t i = 0; i < 2; i++) {
        axis one = shared;
        one.in = x.shape[0].dims[1 + i];
        const double out =
            desc->output[i] > 0 ? (double)desc->output[i] : floor((double)one.in * desc->scale[i]);
        RG_CHECK(one.in > 0 && out >= 1, RG_UNSUPPORTED, "the image has no pixels");
        RG_CHECK(out <= INT32_MAX, RG_UNSUPPORTED, "the image has %g pixels in one dimension", out);
        one.out = (int64_t)out;
        one.scale = desc->output[i] > 0 ? (double)one.out / (double)one.in : desc->scale[i];
        if (one.out != one.in || one.scale != 1)
            RG_TRY(multiply(m, &one, 1 + i, &x));
    }
    return rg_import_define(m, cubic, 0, &x);
}
