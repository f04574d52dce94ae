/* Words of a live slab: copying, zeroing, counter addresses and the updates of an ended execution.
 * Knows the layout; knows nothing of records, mappings or who owns a slab. */
#include "nds_core.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Two atomic loads packed into one 16-byte store: gcc does not vectorise a loop of atomic loads by itself. A batch of
 * loads ahead of its stores is a fifth faster than each pair by itself. */
typedef uint64_t pair __attribute__((vector_size(16)));
typedef pair unaligned_pair __attribute__((aligned(8)));

static inline pair load_pair(const nds_word *w)
{
    return (pair){nds_load(w), nds_load(w + 1)};
}

void nds_copy_out(void *dst, const void *shared, size_t n)
{
    const nds_word *from = shared;
    size_t words = n / 8, i = 0;
    unsigned char *to = dst;
    for (; i + 16 <= words; i += 16) {
        unaligned_pair *out = (unaligned_pair *)(to + i * 8);
        pair a = load_pair(from + i), b = load_pair(from + i + 2);
        pair c = load_pair(from + i + 4), d = load_pair(from + i + 6);
        pair e = load_pair(from + i + 8), f = load_pair(from + i + 10);
        pair g = load_pair(from + i + 12), h = load_pair(from + i + 14);
        out[0] = a, out[1] = b, out[2] = c, out[3] = d;
        out[4] = e, out[5] = f, out[6] = g, out[7] = h;
    }
    for (; i < words; i++)
        *(uint64_t *)(to + i * 8) = nds_load(from + i);
}

void nds_copy_out_past_cache(void *dst, const void *shared, size_t n)
{
#if defined(__SSE2__)
    const nds_word *from = shared;
    __m128i *to = dst;
    for (size_t i = 0; i + 8 <= n / 8; i += 8, to += 4) {
        pair a = load_pair(from + i), b = load_pair(from + i + 2);
        pair c = load_pair(from + i + 4), d = load_pair(from + i + 6);
        _mm_stream_si128(to, (__m128i)a);
        _mm_stream_si128(to + 1, (__m128i)b);
        _mm_stream_si128(to + 2, (__m128i)c);
        _mm_stream_si128(to + 3, (__m128i)d);
    }
    size_t done = n / 64 * 64;
    _mm_sfence();
    nds_copy_out((unsigned char *)dst + done, (const unsigned char *)shared + done, n - done);
#else
    nds_copy_out(dst, shared, n);
#endif
}

/* Most of a slab is zero most of the time, and sixteen pages that are read cost one page fault where each that is
 * written costs one. So stores are made only where there is something to zero. */
void nds_zero(void *shared, size_t n)
{
    nds_word *w = shared;
    size_t words = n / 8, i = 0;
    for (; i + 8 <= words; i += 8) {
        nds_word *line = w + i;
        if (!(nds_load(line) | nds_load(line + 1) | nds_load(line + 2) | nds_load(line + 3) | nds_load(line + 4) |
              nds_load(line + 5) | nds_load(line + 6) | nds_load(line + 7)))
            continue;
        for (unsigned j = 0; j < 8; j++)
            nds_store(line + j, 0);
    }
    for (; i < words; i++)
        nds_store(w + i, 0);
}

static inline nds_word *word_at(const void *blob, size_t offset)
{
    return (nds_word *)((const unsigned char *)blob + offset);
}

nds_word *nds_nd_counter(void *blob, unsigned counter)
{
    return counter < NDS_ND_COUNTERS ? word_at(blob, NDS_ND_COUNTERS_OFFSET) + counter : NULL;
}

static struct nds_core_words core_words(void *blob, unsigned core)
{
    if (core >= NDS_BASE_CORES) {
        nds_word *base = word_at(blob, NDS_EXT_NC_DATA_OFFSET) + (core - NDS_BASE_CORES) * NDS_EXT_NC_STRIDE;
        return (struct nds_core_words){base, base + NDS_BASE_NC_COUNTERS};
    }
    return (struct nds_core_words){
        word_at(blob, NDS_NC_COUNTERS_OFFSET) + core * NDS_BASE_NC_COUNTERS,
        word_at(blob, NDS_EXT_NC_COUNTERS_OFFSET) + core * NDS_EXT_NC_COUNTERS,
    };
}

nds_word *nds_nc_counter(void *blob, unsigned core, unsigned counter)
{
    if (core >= NDS_MAX_CORES || counter >= NDS_NC_COUNTERS)
        return NULL;
    struct nds_core_words w = core_words(blob, core);
    return counter < NDS_BASE_NC_COUNTERS ? w.base + counter : w.ext + (counter - NDS_BASE_NC_COUNTERS);
}

static bool all_zero(const void *blob, size_t from, size_t to)
{
    const unsigned char *p = (const unsigned char *)blob;
    for (; from < to && from % 8; from += 4)
        if (atomic_load_explicit((_Atomic uint32_t *)(p + from), memory_order_relaxed))
            return false;
    for (; from + 8 <= to; from += 8)
        if (nds_load(word_at(blob, from)))
            return false;
    for (; from < to; from += 4)
        if (atomic_load_explicit((_Atomic uint32_t *)(p + from), memory_order_relaxed))
            return false;
    return true;
}

bool nds_is_older(const void *blob)
{
    size_t older_end = NDS_OLDER_EXT_NC_DATA_OFFSET + NDS_OLDER_EXT_NC_DATA_SIZE;
    return all_zero(blob, older_end, NDS_REQUIRED_SIZE) && !all_zero(blob, NDS_PAD_OFFSET, older_end);
}

uint64_t nds_nc_value(const void *blob, const nds_word *word, unsigned core, unsigned counter)
{
    uint64_t now = nds_load(word);
    if (now || (core < NDS_BASE_CORES && counter < NDS_BASE_NC_COUNTERS))
        return now;
    size_t offset =
        core < NDS_BASE_CORES
            ? NDS_OLDER_EXT_NC_COUNTERS_OFFSET + (core * NDS_OLDER_EXT_NC_STRIDE + counter - NDS_BASE_NC_COUNTERS) * 8
            : NDS_OLDER_EXT_NC_DATA_OFFSET + ((core - NDS_BASE_CORES) * NDS_EXT_NC_STRIDE + counter) * 8;
    _Atomic uint32_t *half = (_Atomic uint32_t *)((const unsigned char *)blob + offset);
    uint64_t older = atomic_load_explicit(half, memory_order_acquire);
    older |= (uint64_t)atomic_load_explicit(half + 1, memory_order_acquire) << 32;
    return older && nds_is_older(blob) ? older : nds_load(word);
}

void nds_add_many(void *blob, unsigned core, const uint64_t *deltas, unsigned n)
{
    struct nds_core_words w = core_words(blob, core);
    unsigned base = n < NDS_BASE_NC_COUNTERS ? n : NDS_BASE_NC_COUNTERS;
    for (unsigned i = 0; i < base; i++)
        if (deltas[i])
            nds_add(w.base + i, deltas[i]);
    for (unsigned i = NDS_BASE_NC_COUNTERS; i < n; i++)
        if (deltas[i])
            nds_add(w.ext + (i - NDS_BASE_NC_COUNTERS), deltas[i]);
}

unsigned nds_exec_effects(uint64_t status)
{
    switch (status) {
    case NDS_NC_COUNTER_INFER_COMPLETED:
        return NDS_EXEC_TIME | NDS_EXEC_LATENCY | NDS_EXEC_SUCCESS;
    case NDS_NC_COUNTER_INFER_COMPLETED_WITH_ERR:
    case NDS_NC_COUNTER_INFER_COMPLETED_WITH_NUM_ERR:
        return NDS_EXEC_TIME | NDS_EXEC_LATENCY | NDS_EXEC_CLASS;
    case NDS_NC_COUNTER_INFER_TIMED_OUT:
    case NDS_NC_COUNTER_ERR_HW:
    case NDS_NC_COUNTER_OOB:
    case NDS_EXT_NC_COUNTER_HW_ERR_COLLECTIVES:
    case NDS_EXT_NC_COUNTER_HW_ERR_HBM_UE:
    case NDS_EXT_NC_COUNTER_HW_ERR_NC_UE:
    case NDS_EXT_NC_COUNTER_HW_ERR_DMA_ABORT:
    case NDS_EXT_NC_COUNTER_ERR_SW_NQ_OVERFLOW:
    case NDS_EXT_NC_COUNTER_HW_ERR_REPAIRABLE_HBM_UE:
        return NDS_EXEC_TIME;
    case NDS_NC_COUNTER_INFER_INCORRECT_INPUT:
    case NDS_NC_COUNTER_INFER_FAILED_TO_QUEUE:
        return 0;
    default:
        return NDS_EXEC_UNKNOWN;
    }
}

static inline nds_word *word_of(const struct nds_core_words *core, uint64_t counter)
{
    return counter < NDS_BASE_NC_COUNTERS ? core->base + counter : core->ext + (counter - NDS_BASE_NC_COUNTERS);
}

int nds_execution_ended(const struct nds_core_words *core, const struct nds_execution *e)
{
    unsigned effects = nds_exec_effects(e->status);
    if (effects & NDS_EXEC_UNKNOWN)
        return -1;
    bool bad_class = e->error_class && (!(effects & NDS_EXEC_CLASS) || e->error_class < NDS_NC_COUNTER_ERR_GENERIC ||
                                        e->error_class > NDS_NC_COUNTER_ERR_RT);
    bool bad_software = e->software_error && (e->software_error < NDS_EXT_NC_COUNTER_ERR_SW_SEMAPHORE_ERROR ||
                                              e->software_error > NDS_EXT_NC_COUNTER_ERR_SW_SEQUENCER_FATAL);
    if (bad_class || bad_software)
        return -1;
    static const unsigned char latency[NDS_EXEC_LATENCIES] = {
        [NDS_EXEC_DEVICE_US] = NDS_NC_COUNTER_LATENCY_DEVICE,
        [NDS_EXEC_TOTAL_US] = NDS_NC_COUNTER_LATENCY_TOTAL,
        [NDS_EXEC_NC_US] = NDS_NC_COUNTER_NC_TIME,
        [NDS_EXEC_CC_US] = NDS_NC_COUNTER_CC_TIME,
    };
    if (effects & NDS_EXEC_LATENCY)
        for (unsigned i = 0; i < NDS_EXEC_LATENCIES; i++)
            if (e->latencies_set & 1u << i)
                nds_store(core->base + latency[i], e->latency_us[i]);
    if (effects & NDS_EXEC_TIME && e->busy_us)
        nds_add(core->base + NDS_NC_COUNTER_TIME_IN_USE, e->busy_us);
    if (effects & NDS_EXEC_SUCCESS) {
        if (e->macs)
            nds_add(core->base + NDS_NC_COUNTER_MAC_COUNT, e->macs);
        nds_add(core->base + NDS_NC_COUNTER_INFERENCE_COUNT, 1);
    }
    if (e->error_class)
        nds_add(core->base + e->error_class, 1);
    if (e->software_error)
        nds_add(word_of(core, e->software_error), 1);
    nds_add(word_of(core, e->status), 1);
    return 0;
}
