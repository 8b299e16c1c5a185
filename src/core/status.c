/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* The status names and the error sentence that each thread keeps. */
#include "core/status.h"

#include "core/private_api.h"
#include "core/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_SIZE = 512 };
static _Thread_local char error_text[TEXT_SIZE];

const char *rg_error_text(void)
{
    return error_text;
}

/* Those beyond ASCII are C2 80 to C2 9F in UTF-8. */
RG_PRIVATE_API void rg_text_clean(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c != 0; c++) {
        if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
            c[0] = c[1] = '?';
        if (c[0] < ' ' || c[0] == 0x7f)
            c[0] = '?';
    }
}

RG_PRIVATE_API rg_status rg_fail(rg_status status, const char *format, ...)
{
    char text[TEXT_SIZE]; /* the arguments may point into error_text */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rg_text_clean(text);
    memcpy(error_text, text, sizeof text);
    return status;
}

RG_PRIVATE_API void rg_error_prefix(const char *format, ...)
{
    char text[TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0 || length >= TEXT_SIZE)
        return;
    snprintf(text + length, sizeof text - (size_t)length, "%s", error_text);
    rg_text_clean(text);
    memcpy(error_text, text, sizeof text);
}

const char *rg_status_name(rg_status status)
{
    static const char *const names[] = {
        [RG_OK] = "RG_OK",
        [RG_INVALID_ARGUMENT] = "RG_INVALID_ARGUMENT",
        [RG_INVALID_STATE] = "RG_INVALID_STATE",
        [RG_UNSUPPORTED] = "RG_UNSUPPORTED",
        [RG_NO_DEVICE] = "RG_NO_DEVICE",
        [RG_OUT_OF_MEMORY] = "RG_OUT_OF_MEMORY",
        [RG_KERNEL_FAULT] = "RG_KERNEL_FAULT",
        [RG_IO] = "RG_IO",
        [RG_MALFORMED] = "RG_MALFORMED",
    };
    const size_t count = sizeof names / sizeof names[0];
    return (size_t)status < count ? names[status] : "unknown status";
}

#define TEXT(x)    #x
#define VERSION(x) TEXT(x)
const char *rg_version(void)
{
    return VERSION(RG_VERSION_MAJOR) "." VERSION(RG_VERSION_MINOR) "." VERSION(RG_VERSION_PATCH);
}
