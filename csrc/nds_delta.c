/* Changed words as bytes, there and back. */
#include "nds_delta.h"

#include <string.h>

#define SLAB_WORDS  (NDS_REQUIRED_SIZE / 8)
#define BITMAP_WORD (NDS_MODEL_BITMAP_OFFSET / 8)

/* ---- numbers ---- */

size_t nds_varint(unsigned char *out, uint64_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        out[n++] = (unsigned char)(v | 0x80);
    out[n++] = (unsigned char)v;
    return n;
}

bool nds_varint_read(const unsigned char *in, size_t size, size_t *at, uint64_t *v)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < NDS_VARINT_MOST && *at + i < size; i++) {
        unsigned char byte = in[*at + i];
        if (i == NDS_VARINT_MOST - 1 && byte > 1)
            return false; /* beyond 64 bits */
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *at += i + 1;
            *v = value;
            return true;
        }
    }
    return false;
}

/* ---- changes ---- */

/* Marks the record that a word belongs to. */
static void touch(uint64_t touched[2], size_t word)
{
    size_t at = word * 8;
    if (at >= NDS_MODELS_OFFSET && at < NDS_MODELS_OFFSET + NDS_MODELS_SIZE)
        touched[0] |= UINT64_C(1) << (at - NDS_MODELS_OFFSET) / NDS_MODEL_SIZE;
    else if (at >= NDS_PROCESS_INFO_OFFSET && at < NDS_PROCESS_INFO_OFFSET + NDS_PROCESS_INFO_SIZE)
        touched[1] |= UINT64_C(1) << (NDS_RECORD_PROCESS_INFO - 64);
    else if (at >= NDS_PROCESS_INFO_EXT_OFFSET && at < NDS_PROCESS_INFO_EXT_OFFSET + NDS_PROCESS_INFO_EXT_SIZE)
        touched[1] |= UINT64_C(1) << (NDS_RECORD_PROCESS_INFO_EXT - 64);
}

size_t nds_changes_write(unsigned char *out, const nds_word *now, uint64_t *before, size_t words, uint64_t touched[2])
{
    size_t n = 0, next = 0; /* next: the word behind the last one that was written */
    for (size_t block = 0; block < words; block += 8) {
        uint64_t line[8], differs = 0;
        size_t count = words - block < 8 ? words - block : 8;
        for (size_t i = 0; i < count; i++) {
            line[i] = nds_load(now + block + i);
            differs |= line[i] ^ before[block + i];
        }
        if (!differs)
            continue;
        for (size_t i = 0; i < count; i++) {
            uint64_t change = line[i] - before[block + i];
            if (!change)
                continue;
            size_t word = block + i;
            n += nds_varint(out + n, word - next + 1);
            n += nds_varint(out + n, nds_zigzag(change));
            next = word + 1;
            if (touched) {
                touch(touched, word);
                if (word == BITMAP_WORD)
                    touched[0] |= line[i] ^ before[word];
            }
            before[word] = line[i];
        }
    }
    out[n++] = 0;
    return n;
}

/* Sets words from `from` to `to` to zero where they aren't. */
static void clear(nds_word *words, size_t from, size_t to)
{
    for (; from < to; from++)
        if (nds_load(words + from))
            nds_store(words + from, 0);
}

bool nds_changes_apply(nds_word *words, size_t n, const unsigned char *in, size_t size, size_t *at, bool whole)
{
    size_t next = 0;
    for (;;) {
        uint64_t gap, change;
        if (!nds_varint_read(in, size, at, &gap))
            return false;
        if (!gap)
            break;
        if (gap > n - next || !nds_varint_read(in, size, at, &change))
            return false;
        size_t word = next + (size_t)gap - 1;
        if (whole)
            clear(words, next, word);
        uint64_t old = nds_load(words + word), value = nds_unzigzag(change) + (whole ? 0 : old);
        if (value != old)
            nds_store(words + word, value);
        next = word + 1;
    }
    if (whole)
        clear(words, next, n);
    return true;
}

/* ---- slabs ---- */

static bool is_zero(const unsigned char *bytes, size_t n)
{
    return bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0;
}

static uint8_t state_of(const struct nds_taped *t, unsigned record)
{
    if (record < NDS_MAX_MODELS && !(t->words[BITMAP_WORD] >> record & 1))
        return NDS_ABSENT;
    const unsigned char *bytes = (const unsigned char *)t->words + nds_record_offset(record);
    size_t n = nds_kind_size(nds_record_kind(record));
    if (is_zero(bytes, n))
        return NDS_UNPUBLISHED;
    uint32_t hash;
    memcpy(&hash, bytes, sizeof hash);
    if (nds_record_hash(bytes, n) == hash)
        return NDS_EXACT;
    return t->state[record] == NDS_EXACT || t->state[record] == NDS_STALE ? NDS_STALE : NDS_TORN;
}

void nds_tape_begin(struct nds_taped *t)
{
    memset(t, 0, sizeof *t);
    t->state[NDS_RECORD_PROCESS_INFO] = t->state[NDS_RECORD_PROCESS_INFO_EXT] = NDS_UNPUBLISHED;
}

size_t nds_tape_look(struct nds_taped *t, const void *blob, uint64_t gap, unsigned char *out)
{
    uint64_t touched[2] = {0, 0};
    unsigned char states[2 * NDS_RECORDS];
    size_t head = nds_varint(out, gap << 1), changed = 0;
    size_t n = nds_changes_write(out + head, blob, t->words, SLAB_WORDS, touched);
    if (n == 1)
        return 0;
    for (unsigned half = 0; half < 2; half++)
        for (; touched[half]; touched[half] &= touched[half] - 1) {
            unsigned record = half * 64 + (unsigned)__builtin_ctzll(touched[half]);
            uint8_t old = t->state[record], now = state_of(t, record);
            if (now == old)
                continue;
            t->torn += (now >= NDS_STALE) - (old >= NDS_STALE);
            t->state[record] = now;
            states[2 * changed] = (unsigned char)record;
            states[2 * changed + 1] = now;
            changed++;
        }
    if (!changed)
        return head + n;
    /* The states stand before the changes: whoever plays them must keep what is about to become stale. */
    memmove(out + head + 1 + 2 * changed, out + head, n);
    nds_varint(out, gap << 1 | 1);
    out[head] = (unsigned char)changed;
    memcpy(out + head + 1, states, 2 * changed);
    return head + 1 + 2 * changed + n;
}

size_t nds_tape_whole(const struct nds_taped *t, uint64_t gap, unsigned char *out)
{
    size_t n = nds_varint(out, gap << 1 | 1), count = n++, next = 0;
    out[count] = 0;
    for (unsigned r = 0; r < NDS_RECORDS; r++)
        if (t->state[r] != NDS_ABSENT) {
            out[n++] = (unsigned char)r;
            out[n++] = t->state[r];
            out[count]++;
        }
    size_t changes = n;
    for (size_t word = 0; word < SLAB_WORDS; word++)
        if (t->words[word]) {
            n += nds_varint(out + n, word - next + 1);
            n += nds_varint(out + n, nds_zigzag(t->words[word]));
            next = word + 1;
        }
    if (n == changes)
        return 0;
    out[n++] = 0;
    return n;
}
