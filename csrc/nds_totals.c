/* Device totals: what the counters of one slab add to those of its device.
 * Knows which counters grow and which are gauges; knows nothing of slots or of when a slab is rolled up. */
#include "nds_core.h"

_Static_assert(NDS_TOTALS_TALLIES + NDS_TALLY_KINDS * NDS_TALLY_WORDS <= NDS_TOTALS_WORDS, "the totals fit");

static bool has(uint64_t mask, unsigned i)
{
    return i < 64 && mask >> i & 1;
}

static void add_gauge(uint64_t *total, uint64_t value)
{
    if (value < UINT64_C(1) << 63)
        *total += value;
}

static void tally(uint64_t *pairs, uint64_t version)
{
    if (version == 0)
        return; /* not published */
    for (unsigned i = 0; i < NDS_TALLY_PAIRS; i++) {
        uint64_t *pair = pairs + 2 * i;
        if (pair[0] == version || pair[0] == 0) {
            pair[0] = version;
            pair[1]++;
            return;
        }
    }
    pairs[2 * NDS_TALLY_PAIRS]++;
}

void nds_totals_add(uint64_t totals[NDS_TOTALS_WORDS], const void *blob, bool gauges)
{
    void *b = (void *)blob; /* only loaded from */
    for (unsigned core = 0; core < NDS_MAX_CORES; core++)
        for (unsigned i = 0; i < NDS_NC_COUNTERS; i++) {
            uint64_t *total = totals + core * NDS_EXT_NC_STRIDE + i;
            if (has(NDS_NC_TOTALLED, i))
                *total += nds_nc_value(blob, nds_nc_counter(b, core, i), core, i);
            else if (gauges && has(NDS_NC_GAUGES, i))
                add_gauge(total, nds_nc_value(blob, nds_nc_counter(b, core, i), core, i));
        }
    uint64_t *nd = totals + NDS_TOTALS_ND;
    nd[NDS_ND_COUNTER_FEATURE_BITMAP] |= nds_load(nds_nd_counter(b, NDS_ND_COUNTER_FEATURE_BITMAP));
    nd[NDS_ND_COUNTER_DYNAMIC_SYSFS_METRIC_BITMAP] |=
        nds_load(nds_nd_counter(b, NDS_ND_COUNTER_DYNAMIC_SYSFS_METRIC_BITMAP));
    for (unsigned i = 0; gauges && i < NDS_ND_COUNTERS; i++)
        if (has(NDS_ND_GAUGES, i))
            add_gauge(nd + i, nds_load(nds_nd_counter(b, i)));
    for (unsigned kind = 0; kind < NDS_TALLY_KINDS; kind++)
        tally(totals + NDS_TOTALS_TALLIES + kind * NDS_TALLY_WORDS,
              nds_load(nds_nd_counter(b, NDS_ND_COUNTER_RUNTIME_VERSION + kind)));
}

void nds_roll_up(nds_word *target, const nds_word *source, const void *blob)
{
    uint64_t totals[NDS_TOTALS_WORDS];
    nds_copy_out(totals, source, sizeof totals);
    nds_totals_add(totals, blob, false);
    for (unsigned i = 0; i < NDS_TOTALS_WORDS; i++)
        nds_store(target + i, totals[i]);
}
