/*
 * The header's implementation as a library of its own: static and shared.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define RG_API __attribute__((visibility("default")))
#define RINGGATE_BACKEND_IMPLEMENTATION
#include "ringgate_backend.h"
