/* The sampler's look at one slab. */
#include "nds_sampler.h"

#include <stdlib.h>

static void keep(struct nds_sampled *s, struct nds_latency latency)
{
    if (s->count == s->room) {
        size_t room = s->room ? s->room * 2 : 256;
        struct nds_latency *kept = room <= NDS_SAMPLES_MAX ? realloc(s->kept, room * sizeof *kept) : NULL;
        if (!kept) {
            s->dropped++;
            return;
        }
        s->kept = kept;
        s->room = room;
    }
    s->kept[s->count++] = latency;
}

void nds_sample(struct nds_sampled *s, const void *blob, unsigned cores)
{
    for (unsigned core = 0; core < cores; core++) {
        const nds_word *w = nds_nc_counter((void *)blob, core, 0);
        uint64_t completed = nds_load(w + NDS_NC_COUNTER_INFER_COMPLETED) +
                             nds_load(w + NDS_NC_COUNTER_INFER_COMPLETED_WITH_ERR) +
                             nds_load(w + NDS_NC_COUNTER_INFER_COMPLETED_WITH_NUM_ERR);
        if (completed != s->completed[core]) {
            if (s->seen)
                keep(s, (struct nds_latency){nds_load(w + NDS_NC_COUNTER_LATENCY_TOTAL),
                                             nds_load(w + NDS_NC_COUNTER_LATENCY_DEVICE)});
            s->completed[core] = completed;
        }
    }
    s->seen = true;
}
