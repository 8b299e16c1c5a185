/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/** @file
 *  The library without its file formats (those are in files.h and safetensors.h): everything,
 *  in one include. */
#ifndef RETROGRADE_RETROGRADE_H
#define RETROGRADE_RETROGRADE_H

#include <retrograde/graph_state.h>
#include <retrograde/kernel.h>
#include <retrograde/nodes.h>
#include <retrograde/ops.h> /* one header per op; made by the build from src/ops/ops.def */

#endif
