/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright The retrograde authors */
/* What libretrograde shares with libretrograde_train alone. */
#ifndef RG_CORE_PRIVATE_API_H
#define RG_CORE_PRIVATE_API_H

/* Marks the definition of a function that libretrograde_train calls: it is exported, but is no part
 * of the API. The build gives all of them a version of their own, that of the release, so that the
 * loader refuses a pair of libraries that were not made together. Within libretrograde calls stay
 * direct. */
#define RG_PRIVATE_API __attribute__((visibility("protected")))

#endif
