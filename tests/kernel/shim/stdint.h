/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel has no <stdint.h>: what the generated layout header takes from it. */
#ifndef NDS_TEST_STDINT_H
#define NDS_TEST_STDINT_H

#include <linux/types.h>

#define UINT64_C(value) value##ULL

#endif
