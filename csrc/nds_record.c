/* Records: the hash that carries their soundness, publish, and reads that never hand out a torn one.
 * Knows where records lie; knows nothing of counters, mappings or what a field means. */
#include <string.h>
#include <time.h>

#include "nds_core.h"

void (*nds_step)(const char *name);

static void step(const char *name)
{
    if (nds_step)
        nds_step(name);
}

size_t nds_kind_size(enum nds_kind kind)
{
    static const size_t size[] = {sizeof(struct nds_model_node), sizeof(struct nds_process_info),
                                  sizeof(struct nds_process_info_ext)};
    return size[kind];
}

size_t nds_record_offset(unsigned record)
{
    if (record == NDS_RECORD_PROCESS_INFO)
        return NDS_PROCESS_INFO_OFFSET;
    if (record == NDS_RECORD_PROCESS_INFO_EXT)
        return NDS_PROCESS_INFO_EXT_OFFSET;
    return NDS_MODELS_OFFSET + (size_t)record * NDS_MODEL_SIZE;
}

static size_t record_size(unsigned record)
{
    return nds_kind_size(nds_record_kind(record));
}

/* ---- hash ---- */

/* The state of the hash behind the four zero bytes that stand for the hash word. */
static const uint32_t behind_hash_word = NDS_FNV_BASIS * NDS_FNV_PRIME * NDS_FNV_PRIME * NDS_FNV_PRIME * NDS_FNV_PRIME;

uint32_t nds_fnv1a(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint32_t h = NDS_FNV_BASIS;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * NDS_FNV_PRIME;
    return h;
}

uint32_t nds_record_hash(const void *record, size_t n)
{
    const unsigned char *p = record;
    uint32_t h = behind_hash_word;
    for (size_t i = sizeof(uint32_t); i < n; i++)
        h = (h ^ p[i]) * NDS_FNV_PRIME;
    return h;
}

void nds_record_hash4(const void *const record[4], size_t n, uint32_t hash[4])
{
    const unsigned char *a = record[0], *b = record[1], *c = record[2], *d = record[3];
    uint32_t ha = behind_hash_word, hb = ha, hc = ha, hd = ha;
    /* Four named scalars: an inner loop over lanes is not turned into registers at -O2. */
    for (size_t i = sizeof(uint32_t); i < n; i++) {
        ha = (ha ^ a[i]) * NDS_FNV_PRIME;
        hb = (hb ^ b[i]) * NDS_FNV_PRIME;
        hc = (hc ^ c[i]) * NDS_FNV_PRIME;
        hd = (hd ^ d[i]) * NDS_FNV_PRIME;
    }
    hash[0] = ha, hash[1] = hb, hash[2] = hc, hash[3] = hd;
}

static uint32_t stored_hash(const void *record)
{
    uint32_t h;
    memcpy(&h, record, sizeof h);
    return h;
}

/* Bytes of a record that carry nothing, so that they may be changed: [*first, returned end). */
static size_t free_bytes(enum nds_kind kind, const unsigned char *record, size_t *first)
{
    switch (kind) {
    case NDS_KIND_MODEL_NODE:
        *first = offsetof(struct nds_model_node, pad);
        return *first + sizeof(((struct nds_model_node *)0)->pad);
    case NDS_KIND_PROCESS_INFO:
        *first = offsetof(struct nds_process_info, pad);
        return *first + sizeof(((struct nds_process_info *)0)->pad);
    default: {
        size_t tag = offsetof(struct nds_process_info_ext, tag), end = sizeof(struct nds_process_info_ext);
        const unsigned char *nul = memchr(record + tag, 0, end - tag);
        *first = nul ? (size_t)(nul - record) + 1 : end;
        return end;
    }
    }
}

void nds_record_stamp(enum nds_kind kind, void *record)
{
    size_t n = nds_kind_size(kind);
    unsigned char *bytes = record;
    uint32_t hash = nds_record_hash(record, n);
    if (hash == 0) {
        size_t first, end = free_bytes(kind, bytes, &first);
        if (first < end) {
            bytes[end - 1] ^= 1; /* the hash is a bijection of its last changed byte: it cannot be 0 again */
            hash = nds_record_hash(record, n);
        }
    }
    memcpy(record, &hash, sizeof hash);
}

/* ---- one record in and out of shared memory ---- */

/* The ext record is 32 words and one u32: a whole last word would touch the byte behind it. */
static _Atomic uint32_t *half_word(const void *blob, size_t offset)
{
    return (_Atomic uint32_t *)((const unsigned char *)blob + offset);
}

static nds_word *words(const void *blob, size_t offset)
{
    return (nds_word *)((const unsigned char *)blob + offset);
}

void nds_record_publish(void *blob, unsigned record, const void *bytes)
{
    size_t offset = nds_record_offset(record), size = record_size(record), count = size / 8;
    const unsigned char *from = bytes;
    step("publish.begin");
    for (size_t i = 0; i < count; i++) {
        uint64_t w;
        memcpy(&w, from + i * 8, 8);
        nds_store(words(blob, offset) + i, w);
        if (i == count / 2)
            step("publish.half");
    }
    if (size % 8) {
        uint32_t h;
        memcpy(&h, from + count * 8, 4);
        atomic_store_explicit(half_word(blob, offset + count * 8), h, memory_order_release);
    }
    step("publish.written");
}

void nds_record_load(void *bytes, const void *blob, unsigned record)
{
    size_t offset = nds_record_offset(record), size = record_size(record), count = size / 8;
    unsigned char *to = bytes;
    for (size_t i = 0; i < count; i++) {
        uint64_t w = nds_load(words(blob, offset) + i);
        memcpy(to + i * 8, &w, 8);
    }
    if (size % 8) {
        uint32_t h = atomic_load_explicit(half_word(blob, offset + count * 8), memory_order_acquire);
        memcpy(to + count * 8, &h, 4);
    }
}

void nds_record_zero(void *blob, unsigned record)
{
    size_t offset = nds_record_offset(record), size = record_size(record);
    nds_zero(words(blob, offset), size - size % 8);
    if (size % 8)
        atomic_store_explicit(half_word(blob, offset + size - 4), 0, memory_order_release);
}

/* ---- looking at all records of a copy ---- */

static bool is_zero(const unsigned char *p, size_t n)
{
    return p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}

static bool in_use(const void *copy, unsigned record)
{
    uint64_t bitmap;
    if (record >= NDS_MAX_MODELS)
        return true;
    memcpy(&bitmap, (const unsigned char *)copy + NDS_MODEL_BITMAP_OFFSET, sizeof bitmap);
    return bitmap >> record & 1;
}

static void remember(struct nds_last_good *last, unsigned record, const unsigned char *bytes)
{
    if (!last)
        return;
    memcpy(last->bytes + nds_record_offset(record), bytes, record_size(record));
    last->have[record / 64] |= UINT64_C(1) << record % 64;
}

static void forget(struct nds_last_good *last, unsigned record)
{
    if (last)
        last->have[record / 64] &= ~(UINT64_C(1) << record % 64);
}

static bool remembered(const struct nds_last_good *last, unsigned record)
{
    return last && last->have[record / 64] >> record % 64 & 1;
}

static unsigned judge(const unsigned char *bytes, unsigned record, uint32_t hash, uint8_t *state,
                      struct nds_last_good *last)
{
    if (hash == stored_hash(bytes)) {
        *state = NDS_EXACT;
        remember(last, record, bytes);
        return 0;
    }
    *state = NDS_TORN;
    return 1;
}

unsigned nds_records_verify(const void *copy, uint8_t state[NDS_RECORDS], struct nds_last_good *last)
{
    const unsigned char *blob = copy;
    unsigned waiting[4], n = 0, torn = 0;
    const void *at[4];
    uint32_t hash[4];
    for (unsigned r = 0; r < NDS_RECORDS; r++) {
        const unsigned char *bytes = blob + nds_record_offset(r);
        if (!in_use(copy, r) || is_zero(bytes, record_size(r))) {
            state[r] = in_use(copy, r) ? NDS_UNPUBLISHED : NDS_ABSENT;
            forget(last, r);
        } else if (remembered(last, r) && memcmp(last->bytes + nds_record_offset(r), bytes, record_size(r)) == 0) {
            state[r] = NDS_EXACT; /* the very bytes whose hash was right: to compare costs a tenth of hashing again */
        } else if (r >= NDS_MAX_MODELS) {
            torn += judge(bytes, r, nds_record_hash(bytes, record_size(r)), &state[r], last);
        } else {
            waiting[n] = r;
            at[n++] = bytes;
            if (n == 4) {
                nds_record_hash4(at, NDS_MODEL_SIZE, hash);
                for (unsigned i = 0; i < 4; i++)
                    torn += judge(at[i], waiting[i], hash[i], &state[waiting[i]], last);
                n = 0;
            }
        }
    }
    for (unsigned i = 0; i < n; i++)
        torn += judge(at[i], waiting[i], nds_record_hash(at[i], NDS_MODEL_SIZE), &state[waiting[i]], last);
    return torn;
}

unsigned nds_records_verify_again(const void *blob, void *copy, uint8_t state[NDS_RECORDS], struct nds_last_good *last)
{
    unsigned stale = 0;
    uint64_t bitmap = nds_load(words(blob, NDS_MODEL_BITMAP_OFFSET));
    for (unsigned r = 0; r < NDS_RECORDS; r++) {
        if (state[r] != NDS_TORN)
            continue;
        unsigned char *bytes = (unsigned char *)copy + nds_record_offset(r);
        size_t size = record_size(r);
        bool used = r >= NDS_MAX_MODELS || bitmap >> r & 1;
        nds_record_load(bytes, blob, r);
        if (!used)
            forget(last, r); /* the slot went out of use in between: an earlier copy is of another model */
        if (is_zero(bytes, size)) {
            state[r] = NDS_UNPUBLISHED;
            forget(last, r);
        } else if (nds_record_hash(bytes, size) == stored_hash(bytes)) {
            state[r] = NDS_RETRIED;
            if (used)
                remember(last, r, bytes);
        } else if (remembered(last, r)) {
            state[r] = NDS_STALE;
            stale++;
        }
    }
    return stale;
}

enum nds_state nds_record_read(const void *blob, unsigned record, void *bytes)
{
    size_t size = record_size(record);
    for (int attempt = 0;; attempt++) {
        nds_record_load(bytes, blob, record);
        bool zero = is_zero(bytes, size);
        if (!zero && nds_record_hash(bytes, size) == stored_hash(bytes))
            return attempt ? NDS_RETRIED : NDS_EXACT;
        if (attempt)
            return zero ? NDS_UNPUBLISHED : NDS_TORN;
        nds_pause_us(NDS_RECORD_PAUSE_US);
    }
}

bool nds_record_used(const void *blob, unsigned record)
{
    return record >= NDS_MAX_MODELS || nds_load(words(blob, NDS_MODEL_BITMAP_OFFSET)) >> record & 1;
}

enum nds_state nds_record_settle(struct nds_last_good *last, unsigned record, bool used, enum nds_state state,
                                 void *bytes)
{
    if (!used) {
        forget(last, record); /* and nothing new is remembered: the next in this slot is another model */
    } else if (state == NDS_EXACT || state == NDS_RETRIED) {
        remember(last, record, bytes);
    } else if (state != NDS_TORN) {
        forget(last, record);
    } else if (remembered(last, record)) {
        memcpy(bytes, last->bytes + nds_record_offset(record), record_size(record));
        return NDS_STALE;
    }
    return state;
}

void nds_pause_us(unsigned us)
{
    struct timespec wait = {0, (long)us * 1000};
    while (nanosleep(&wait, &wait) != 0)
        ;
}
