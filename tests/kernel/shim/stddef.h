/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel has no <stddef.h>: what the generated layout header takes from it. */
#ifndef NDS_TEST_STDDEF_H
#define NDS_TEST_STDDEF_H

#include <linux/stddef.h>

#endif
