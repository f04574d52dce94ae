/* What the C tests share: a check that stays on whatever NDEBUG says, and records to publish.
 * Each test is a plain program: it prints how much it checked and exits 1 on the first fault. */
#ifndef NDS_TESTS_CHECK_H
#define NDS_TESTS_CHECK_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nds_core.h"

static _Atomic unsigned long checks;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        atomic_fetch_add_explicit(&checks, 1, memory_order_relaxed);                                                   \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, __func__, #condition);                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline size_t record_bytes(unsigned record)
{
    return nds_kind_size(nds_record_kind(record));
}

/* A stamped record whose payload is one byte over and over, so that any mixture of two records shows. */
static inline void fill_record(unsigned record, unsigned char value, unsigned char *bytes)
{
    memset(bytes, value, record_bytes(record));
    nds_record_stamp(nds_record_kind(record), bytes);
}

/* The value of such a record, or -1 when it is of two minds. */
static inline int uniform_value(unsigned record, const unsigned char *bytes)
{
    for (size_t i = 5; i < record_bytes(record); i++)
        if (bytes[i] != bytes[4])
            return -1;
    return bytes[4];
}

#endif
