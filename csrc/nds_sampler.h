/* A sampler of latencies: looks at the cores of many slabs, often, and keeps a sample whenever a core has completed
 * something since the look before. Knows which counters mean completion and latency; knows nothing of processes. */
#ifndef NDS_SAMPLER_H
#define NDS_SAMPLER_H

#include "nds_core.h"

/* One kept sample: the last values of a core right after a completion, in microseconds. */
struct nds_latency {
    uint64_t total_us;
    uint64_t device_us;
};

/* What is remembered of one slab between looks. */
struct nds_sampled {
    uint64_t completed[NDS_MAX_CORES]; /* sum of the core's completions at the last look */
    bool seen;                         /* there was a look before: completions can be told */
    struct nds_latency *kept;
    size_t count, room;
    uint64_t dropped; /* samples for which there was no room */
};

/* At most so many samples are kept per slab and take: beyond it they are counted as dropped. */
#define NDS_SAMPLES_MAX 65536

/* One look at a slab's first `cores` cores. */
void nds_sample(struct nds_sampled *s, const void *blob, unsigned cores);

#endif
