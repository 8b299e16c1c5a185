# SPDX-License-Identifier: Apache-2.0
# Copyright The retrograde authors
# What the scripts of this folder share. A script starts with an empty folder WORK.

cmake_minimum_required(VERSION 3.21)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})

# Runs a command; a failure shows the command and what it said. Its output is left in `output`.
function(run)
    execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${WORK} RESULT_VARIABLE result
        OUTPUT_VARIABLE output ERROR_VARIABLE output OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT result EQUAL 0)
        list(JOIN ARGN " " command)
        message(FATAL_ERROR "${command}\n${output}\nexit status ${result}")
    endif()
    set(output "${output}" PARENT_SCOPE)
endfunction()

# As add_test's SKIP_REGULAR_EXPRESSION expects it. Use: skip("why") then return().
function(skip why)
    message("SKIPPED: ${why}")
endfunction()

# A C program that uses the library and checks that header and library are of one version.
function(write_program path)
    file(WRITE ${path} "#include <retrograde/retrograde.h>
#include <string.h>
int main(void) { rg_device *d; return rg_device_create(\"cpu\", NULL, &d) != RG_OK || strcmp(rg_version(), VERSION) != 0 || (rg_device_destroy(d), 0); }
")
endfunction()

# The same with libretrograde_train: a data set, a sentence that crosses from one library to the other, an epoch.
function(write_train_program path)
    file(WRITE ${path} "#include <retrograde/checkpoint.h>
#include <retrograde/retrograde.h>
#include <string.h>
int main(void)
{
    rg_trainer_desc desc = rg_trainer_desc_default();
    rg_dataset *set;
    rg_device *d;
    rg_model *model;
    rg_trainer *trainer;
    if (rg_device_create(\"cpu\", NULL, &d) != RG_OK || strcmp(rg_version(), VERSION) != 0)
        return 1;
    if (rg_dataset_glyphs(1, 0, &set) != RG_INVALID_ARGUMENT || strstr(rg_error_text(), \"glyphs\") == NULL)
        return 2;
    if (rg_dataset_glyphs(1, 20, &set) != RG_OK || rg_dataset_label(set, 13) != 3)
        return 3;
    if (rg_model_parse(\"line\", \"dense classes\", &model) != RG_OK ||
        rg_trainer_create(d, model, set, &desc, &trainer) != RG_OK ||
        rg_trainer_train(trainer, 1, NULL, NULL) != RG_OK)
        return 4;
    rg_trainer_destroy(trainer);
    rg_model_destroy(model);
    rg_dataset_destroy(set);
    rg_device_destroy(d);
    return 0;
}
")
endfunction()

# Libraries that libretrograde_train is linked with, as READELF names them.
set(TRAIN_NEEDS libz.so.1 libpng16.so.16 libjpeg.so.62 libwebp.so.7)

# A program or library needs the C library alone when it runs; further names are allowed, too.
function(check_needed path)
    run(${READELF} -d ${path})
    string(REGEX REPLACE "[][]" " " output "${output}") # a list is not cut between brackets
    string(REGEX MATCHALL "Shared library: +[^ ]+" needed "${output}")
    list(TRANSFORM needed REPLACE "^.* " "")
    if(NOT needed)
        message(SEND_ERROR "${path} needs no library at all: is it what it should be?")
    endif()
    list(FILTER needed EXCLUDE REGEX "^(lib(c|m|dl|rt|pthread)|ld-linux[-a-z0-9_]*)[.]so[.]")
    list(REMOVE_ITEM needed ${ARGN})
    if(needed)
        message(SEND_ERROR "${path} needs ${needed}")
    endif()
endfunction()

# The version that the header states.
file(STRINGS ${SOURCE}/include/retrograde/base.h lines REGEX "^#define RG_VERSION_")
string(REGEX MATCHALL "[0-9]+" VERSION "${lines}")
string(REPLACE ";" "." VERSION "${VERSION}")

# All public headers, those of the build included, as retrograde/<name>.h
file(GLOB headers RELATIVE ${SOURCE}/include ${SOURCE}/include/retrograde/*.h)
file(GLOB made RELATIVE ${BUILD}/include ${BUILD}/include/retrograde/*.h)
list(APPEND headers ${made})

# Those of libretrograde_train, and the others, of what was built.
set(core_headers ${headers})
set(train_headers ${headers})
string(REPLACE , | names "${TRAIN_HEADERS}")
list(FILTER core_headers EXCLUDE REGEX "/(${names})[.]h$")
list(FILTER train_headers INCLUDE REGEX "/(${names})[.]h$")
if(NOT RG_FILES)
    list(FILTER core_headers EXCLUDE REGEX "/(files|safetensors)[.]h$")
endif()
if(NOT RG_TRAIN)
    set(train_headers "")
endif()
