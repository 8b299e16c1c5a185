/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* Sessions: the rate, parameters in one buffer, files. */
#include "train/session.h"

#include "core/memory.h"
#include "core/shape.h"
#include "runtime/objects.h"
#include "train/model_onnx.h"

#include <retrograde/safetensors.h>

#include <math.h>
#include <stdio.h>

static const rg_allocator *const allocator = &rg_default_allocator;
static const char format[] = "retrograde session 1";

rg_status rg_session_copy(rg_tensor *from, rg_tensor *to)
{
    rg_tensor_desc a, b;
    void *data;
    RG_TRY(rg_tensor_get_desc(from, &a));
    RG_TRY(rg_tensor_get_desc(to, &b));
    RG_CHECK(a.dtype == b.dtype && rg_shape_count(&a) == rg_shape_count(&b), RG_INVALID_ARGUMENT,
             "rg_session_eval_step: outputs must be %s and have %lld elements",
             rg_dtype_name(a.dtype), (long long)rg_shape_count(&a));
    const size_t bytes = (size_t)rg_shape_count(&a) * rg_dtype_size(a.dtype);
    RG_TRY(rg_allocate(allocator, bytes, &data));
    rg_status status = rg_tensor_read(from, data, bytes, RG_LAYOUT_SAME);
    if (status == RG_OK)
        status = rg_tensor_write(to, data, bytes, RG_LAYOUT_SAME);
    rg_release(allocator, data, bytes);
    return status;
}

/* ---- the rate ---- */

rg_status rg_session_set_rate(rg_session *session, double rate)
{
    RG_CHECK_NOT_NULL(session);
    RG_CHECK(isfinite(rate) && rate >= 0, RG_INVALID_ARGUMENT,
             "rg_session_set_rate: the rate must be finite and 0 or more, not %g", rate);
    session->rate = rate;
    return RG_OK;
}

double rg_session_rate(const rg_session *session)
{
    return session != NULL ? session->rate : 0;
}

rg_status rg_session_schedule_linear(rg_session *session, int64_t warmup, int64_t total)
{
    RG_CHECK_NOT_NULL(session);
    RG_CHECK(warmup >= 0 && total > warmup, RG_INVALID_ARGUMENT,
             "rg_session_schedule_linear: warmup is %lld and total %lld; total must be more",
             (long long)warmup, (long long)total);
    session->warmup = warmup;
    session->total = total;
    session->scheduled = 0;
    session->rate = warmup > 0 ? 0 : session->desc.rate;
    return RG_OK;
}

rg_status rg_session_schedule_step(rg_session *session)
{
    RG_CHECK_NOT_NULL(session);
    RG_CHECK(session->total > 0, RG_INVALID_STATE,
             "rg_session_schedule_step: there is no schedule; see rg_session_schedule_linear");
    const int64_t step = ++session->scheduled, warmup = session->warmup, total = session->total;
    const double share = step < warmup  ? (double)step / (double)warmup
                         : step < total ? (double)(total - step) / (double)(total - warmup)
                                        : 0;
    session->rate = session->desc.rate * share;
    return RG_OK;
}

/* ---- parameters ---- */

static bool counts(const rg_session *s, const rg_network_parameter *p, bool trained)
{
    return p->value->desc.dtype == s->desc.network.dtype && (p->trained || !trained);
}

int64_t rg_session_parameters(const rg_session *session, bool trained)
{
    int64_t count = 0;
    if (session == NULL)
        return 0;
    for (size_t i = 0; i < session->network.parameters_count; i++) {
        const rg_network_parameter *p = &session->network.parameters[i];
        rg_tensor *tensor;
        if (counts(session, p, trained) &&
            rg_plan_parameter(session->starting, p->value->name, &tensor) == RG_OK)
            count += rg_shape_count(&p->value->desc);
    }
    return count;
}

static rg_status move(rg_session *s, bool trained, char *to, const char *from, int64_t count)
{
    RG_CHECK(count == rg_session_parameters(s, trained), RG_INVALID_ARGUMENT,
             "the buffer has %lld numbers, but the parameters have %lld", (long long)count,
             (long long)rg_session_parameters(s, trained));
    for (size_t i = 0; i < s->network.parameters_count; i++) {
        const rg_network_parameter *p = &s->network.parameters[i];
        rg_tensor *tensor;
        if (!counts(s, p, trained) ||
            rg_plan_parameter(s->starting, p->value->name, &tensor) != RG_OK)
            continue;
        const size_t bytes =
            (size_t)rg_shape_count(&p->value->desc) * rg_dtype_size(p->value->desc.dtype);
        RG_TRY(to != NULL ? rg_tensor_read(tensor, to, bytes, RG_LAYOUT_SAME)
                          : rg_tensor_write(tensor, from, bytes, RG_LAYOUT_SAME));
        to = to != NULL ? to + bytes : NULL;
        from = from != NULL ? from + bytes : NULL;
    }
    return RG_OK;
}

rg_status rg_session_read_parameters(rg_session *session, bool trained, void *buffer, int64_t count)
{
    RG_CHECK_NOT_NULL(session);
    RG_CHECK_NOT_NULL(buffer);
    return move(session, trained, buffer, NULL, count);
}

rg_status rg_session_write_parameters(rg_session *session, bool trained, const void *buffer,
                                      int64_t count)
{
    RG_CHECK_NOT_NULL(session);
    RG_CHECK_NOT_NULL(buffer);
    return move(session, trained, NULL, buffer, count);
}

/* ---- files ---- */

/* Parameter `index` of both plans; those of the second that the first has are left out: *tensor is
 * NULL. */
static rg_status parameter_at(rg_session *s, int32_t index, const char **name, rg_tensor **tensor)
{
    const int32_t first = rg_plan_parameters(s->starting);
    rg_tensor *other;
    if (index < first) {
        *name = rg_plan_parameter_name(s->starting, index);
        return rg_plan_parameter(s->starting, *name, tensor);
    }
    *tensor = NULL;
    *name = rg_plan_parameter_name(s->update, index - first);
    if (rg_plan_parameter(s->starting, *name, &other) == RG_OK)
        return RG_OK;
    return rg_plan_parameter(s->update, *name, tensor);
}

rg_status rg_session_save(rg_session *session, const char *path)
{
    RG_CHECK_NOT_NULL(session);
    RG_CHECK_NOT_NULL(path);
    const int32_t all = rg_plan_parameters(session->starting) + rg_plan_parameters(session->update);
    rg_safetensors_entry *entries = NULL;
    char state[160];
    size_t count = 0;
    RG_TRY(rg_allocate_array((size_t)all, sizeof *entries, &entries));
    rg_status status = RG_OK;
    for (int32_t i = 0; i < all && status == RG_OK; i++) {
        rg_tensor *tensor = NULL;
        status = parameter_at(session, i, &entries[count].name, &tensor);
        entries[count].tensor = tensor;
        count += tensor != NULL;
    }
    snprintf(state, sizeof state, "%lld %lld %d %lld %lld %lld %a", (long long)session->batches,
             (long long)session->steps, session->fresh, (long long)session->warmup,
             (long long)session->total, (long long)session->scheduled, session->rate);
    rg_safetensors_text *texts = NULL;
    const size_t text_count = 2 + session->property_count;
    if (status == RG_OK)
        status = rg_allocate_array(text_count, sizeof *texts, &texts);
    if (status == RG_OK) {
        texts[0] = (rg_safetensors_text){ "format", format };
        texts[1] = (rg_safetensors_text){ "state", state };
        for (size_t i = 0; i < session->property_count; i++)
            texts[2 + i] =
                (rg_safetensors_text){ session->properties[i].key, session->properties[i].text };
        status = rg_safetensors_write(path, entries, count, texts, text_count);
    }
    rg_release(allocator, texts, text_count * sizeof *texts);
    rg_release(allocator, entries, (size_t)all * sizeof *entries);
    return status;
}

static rg_status read_state(rg_session *s, const rg_safetensors *file)
{
    const char *kind = rg_safetensors_metadata(file, "format");
    const char *state = rg_safetensors_metadata(file, "state");
    long long numbers[6];
    double rate;
    int end = 0;
    RG_CHECK(kind != NULL && strcmp(kind, format) == 0 && state != NULL, RG_MALFORMED,
             "this is not a file of a session");
    const int read =
        sscanf(state, "%19lld %19lld %19lld %19lld %19lld %19lld %la%n", &numbers[0], &numbers[1],
               &numbers[2], &numbers[3], &numbers[4], &numbers[5], &rate, &end);
    RG_CHECK(read == 7 && state[end] == 0 && isfinite(rate) && rate >= 0 && numbers[0] >= 0 &&
                 numbers[1] >= 0 && numbers[3] >= 0 && numbers[4] >= 0 && numbers[5] >= 0,
             RG_MALFORMED, "its state is '%.80s'", state);
    s->batches = numbers[0];
    s->steps = numbers[1];
    s->fresh = numbers[2] != 0;
    s->warmup = numbers[3];
    s->total = numbers[4];
    s->scheduled = numbers[5];
    s->rate = rate;
    return RG_OK;
}

static rg_status read_file(rg_session *s, const rg_safetensors *file)
{
    const int32_t all = rg_plan_parameters(s->starting) + rg_plan_parameters(s->update);
    RG_TRY(read_state(s, file));
    RG_TRY(rg_session_read_properties(s, file));
    for (int32_t i = 0; i < all; i++) {
        const char *name;
        rg_tensor *tensor = NULL;
        size_t index;
        RG_TRY(parameter_at(s, i, &name, &tensor));
        if (tensor == NULL)
            continue;
        RG_CHECK(rg_safetensors_find(file, name, &index), RG_MALFORMED,
                 "the parameter '%.80s' is missing; it is of another model or optimizer", name);
        const rg_status status = rg_safetensors_read_tensor(file, index, tensor);
        RG_TRY(status == RG_INVALID_ARGUMENT ? rg_fail(RG_MALFORMED, "%s", rg_error_text())
                                             : status);
    }
    return RG_OK;
}

rg_status rg_session_load(rg_session *session, const char *path)
{
    rg_safetensors *file;
    RG_CHECK_NOT_NULL(session);
    RG_CHECK_NOT_NULL(path);
    RG_TRY(rg_safetensors_open(path, &file));
    const rg_status status = read_file(session, file);
    if (status != RG_OK)
        rg_error_prefix("%s: ", path);
    rg_safetensors_close(file);
    return status;
}

/* ---- ONNX ---- */

static rg_status export_graph(rg_session *s, const char *path)
{
    const rg_network_desc *n = &s->desc.network;
    rg_network_desc alone = *n;
    rg_onnx_write_desc desc = rg_onnx_write_desc_default();
    const int64_t dims[] = { 1, n->height, n->width, n->channels };
    rg_onnx_write_input images = { "images", rg_tensor_desc_dense(n->dtype, 4, dims) };
    rg_graph *graph;
    images.desc.dims[0] = -1;
    desc.inputs = &images;
    desc.input_count = 1;
    alone.logits_only = true;
    RG_TRY(rg_model_graph(s->model, &alone, &graph));
    const rg_status status = rg_onnx_write(graph, s->starting, &desc, path);
    rg_graph_destroy(graph);
    return status;
}

rg_status rg_session_export(rg_session *session, const char *path)
{
    const rg_onnx_write_desc desc = rg_onnx_write_desc_default();
    RG_CHECK_NOT_NULL(session);
    RG_CHECK_NOT_NULL(path);
    if (session->model->onnx != NULL)
        return rg_model_rewrite_onnx(session->model, &session->desc.network, session->starting,
                                     &desc, false, path);
    return export_graph(session, path);
}
