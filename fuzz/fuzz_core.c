/* A deterministic fuzzer of the C core's readers: random, spoiled and good slabs, checked against plain second versions.
 * It needs no fuzzing engine: a seed gives the same blobs everywhere, and a fault prints the seed that shows it.
 *
 *   cc -std=c11 -D_GNU_SOURCE -g -O1 -fsanitize=address,undefined -pthread -Icsrc \
 *      -o build/fuzz_core fuzz/fuzz_core.c csrc/nds_*.c && build/fuzz_core [blobs [first seed]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nds_core.h"
#include "nds_delta.h"

static uint64_t seed, state_of_rng;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: seed %llu: not so: %s\n", __FILE__, __LINE__, (unsigned long long)seed,            \
                    #condition);                                                                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static uint64_t next(void)
{
    state_of_rng += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    uint64_t z = state_of_rng;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static unsigned below(unsigned n)
{
    return (unsigned)(next() % n);
}

static void noise(unsigned char *at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        at[i] = (unsigned char)next();
}

/* ---- blobs: each record is missing, good, or wrong in one of several ways ---- */

static void make_record(unsigned char *blob, unsigned record)
{
    size_t n = nds_kind_size(nds_record_kind(record));
    unsigned char bytes[NDS_MODEL_SIZE] = {0};
    switch (below(6)) {
    case 0:
        break;
    case 1:
        noise(bytes, n);
        break;
    case 2: /* only the hash word */
        noise(bytes, 4);
        break;
    case 3: /* only the last byte */
        bytes[n - 1] = 1;
        break;
    default: /* good, and perhaps spoiled by one bit */
        noise(bytes + 4, n - 4);
        nds_record_stamp(nds_record_kind(record), bytes);
        if (below(2))
            bytes[below((unsigned)n)] ^= (unsigned char)(1u << below(8));
    }
    nds_record_publish(blob, record, bytes);
}

static void make_blob(unsigned char *blob)
{
    memset(blob, 0, NDS_REQUIRED_SIZE);
    if (below(8) == 0) {
        noise(blob, NDS_REQUIRED_SIZE);
        return;
    }
    for (unsigned r = 0; r < NDS_RECORDS; r++)
        make_record(blob, r);
    uint64_t bitmap = below(4) ? next() : below(2) ? UINT64_MAX : 0;
    memcpy(blob + NDS_MODEL_BITMAP_OFFSET, &bitmap, sizeof bitmap);
    if (below(2)) /* today's extension, the older one, bytes behind the older one: any of them, or more than one */
        noise(blob + NDS_EXT_NC_COUNTERS_OFFSET + 8 * below(1000), 8);
    if (below(2))
        noise(blob + NDS_PAD_OFFSET + below(NDS_PAD_SIZE - 64), 64);
    if (below(4) == 0)
        blob[NDS_EXT_NC_COUNTERS_OFFSET - 1 - below(60)] = 1;
}

/* ---- plain second versions of what is tested ---- */

static bool zero(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

static bool matches(const unsigned char *record, size_t n)
{
    unsigned char copy[NDS_MODEL_SIZE];
    uint32_t stored;
    memcpy(copy, record, n);
    memcpy(&stored, record, 4);
    memset(copy, 0, 4);
    return nds_fnv1a(copy, n) == stored;
}

static uint8_t first_sight(const unsigned char *blob, unsigned r)
{
    size_t n = nds_kind_size(nds_record_kind(r));
    const unsigned char *bytes = blob + nds_record_offset(r);
    if (r < NDS_MAX_MODELS && !(blob[NDS_MODEL_BITMAP_OFFSET + r / 8] >> r % 8 & 1))
        return NDS_ABSENT;
    return zero(bytes, n) ? NDS_UNPUBLISHED : matches(bytes, n) ? NDS_EXACT : NDS_TORN;
}

static bool older(const unsigned char *blob)
{
    size_t end = NDS_OLDER_EXT_NC_DATA_OFFSET + NDS_OLDER_EXT_NC_DATA_SIZE;
    return !zero(blob + NDS_PAD_OFFSET, end - NDS_PAD_OFFSET) && zero(blob + end, NDS_REQUIRED_SIZE - end);
}

static uint64_t counter(const unsigned char *blob, unsigned core, unsigned i)
{
    size_t at = NDS_NC_COUNTERS_OFFSET + (core * NDS_BASE_NC_COUNTERS + i) * 8;
    bool extension = core >= NDS_BASE_CORES || i >= NDS_BASE_NC_COUNTERS;
    if (extension && core < NDS_BASE_CORES)
        at = older(blob)
                 ? NDS_OLDER_EXT_NC_COUNTERS_OFFSET + (core * NDS_OLDER_EXT_NC_STRIDE + i - NDS_BASE_NC_COUNTERS) * 8
                 : NDS_EXT_NC_COUNTERS_OFFSET + (core * NDS_EXT_NC_COUNTERS + i - NDS_BASE_NC_COUNTERS) * 8;
    else if (extension)
        at = (older(blob) ? NDS_OLDER_EXT_NC_DATA_OFFSET : NDS_EXT_NC_DATA_OFFSET) +
             ((core - NDS_BASE_CORES) * NDS_EXT_NC_STRIDE + i) * 8;
    uint64_t value;
    memcpy(&value, blob + at, sizeof value);
    return value;
}

/* ---- one blob ---- */

static void look(unsigned char *blob, unsigned char *later, unsigned char *copy, struct nds_last_good *last)
{
    uint8_t state[NDS_RECORDS], fresh[NDS_RECORDS];
    uint64_t had[2] = {last->have[0], last->have[1]};
    unsigned torn = 0;
    nds_copy_out(copy, blob, NDS_REQUIRED_SIZE);
    CHECK(memcmp(copy, blob, NDS_REQUIRED_SIZE) == 0);
    unsigned found = nds_records_verify(copy, state, last);
    for (unsigned r = 0; r < NDS_RECORDS; r++) {
        CHECK(state[r] == first_sight(blob, r));
        torn += state[r] == NDS_TORN;
        bool has = last->have[r / 64] >> r % 64 & 1;
        CHECK(has == (state[r] == NDS_EXACT || (state[r] == NDS_TORN && had[r / 64] >> r % 64 & 1)));
    }
    CHECK(found == torn);
    memcpy(fresh, state, sizeof fresh);
    unsigned stale = nds_records_verify_again(later, copy, state, last);
    for (unsigned r = 0; r < NDS_RECORDS; r++) {
        size_t n = nds_kind_size(nds_record_kind(r)), at = nds_record_offset(r);
        if (fresh[r] != NDS_TORN) {
            CHECK(state[r] == fresh[r] && memcmp(copy + at, blob + at, n) == 0);
            continue;
        }
        bool used = first_sight(later, r) != NDS_ABSENT;
        CHECK(memcmp(copy + at, later + at, n) == 0);
        if (zero(later + at, n))
            CHECK(state[r] == NDS_UNPUBLISHED);
        else if (matches(later + at, n))
            CHECK(state[r] == NDS_RETRIED);
        else
            CHECK(state[r] == (used && had[r / 64] >> r % 64 & 1 ? NDS_STALE : NDS_TORN));
        bool has = last->have[r / 64] >> r % 64 & 1;
        CHECK(has == (used && (state[r] == NDS_RETRIED || state[r] == NDS_STALE)));
        CHECK(!has || matches(last->bytes + at, n));
        stale -= state[r] == NDS_STALE;
    }
    CHECK(stale == 0);
    CHECK(nds_is_older(blob) == older(blob));
    for (unsigned i = 0; i < 40; i++) {
        unsigned core = below(NDS_MAX_CORES), c = below(NDS_NC_COUNTERS);
        CHECK(nds_nc_value(blob, nds_nc_counter(blob, core, c), core, c) == counter(blob, core, c));
    }
    unsigned r = below(NDS_RECORDS);
    unsigned char bytes[NDS_MODEL_SIZE];
    size_t n = nds_kind_size(nds_record_kind(r)), at = nds_record_offset(r);
    if (matches(blob + at, n) && !zero(blob + at, n)) /* the others pause */
        CHECK(nds_record_read(blob, r, bytes) == NDS_EXACT && memcmp(bytes, blob + at, n) == 0);
    static uint64_t totals[NDS_TOTALS_WORDS];
    nds_totals_add(totals, blob, below(2));
}

/* From one blob to another as changes, there and back; and what becomes of the bytes when some are spoiled. */
static void tape(const unsigned char *blob, const unsigned char *later, uint64_t *played, unsigned char *out)
{
    static struct nds_taped taped;
    nds_tape_begin(&taped);
    memset(played, 0, NDS_REQUIRED_SIZE);
    for (unsigned turn = 0; turn < 2; turn++) {
        const unsigned char *now = turn ? later : blob;
        size_t size = nds_tape_look(&taped, now, 1, out), at = 1, torn = 0;
        CHECK(size <= NDS_BLOCK_MOST);
        if (size) {
            if (out[0] & 1)
                at += 1 + 2 * (size_t)out[1];
            CHECK(nds_changes_apply((nds_word *)played, NDS_REQUIRED_SIZE / 8, out, size, &at, false) && at == size);
        }
        CHECK(memcmp(played, now, NDS_REQUIRED_SIZE) == 0);
        for (unsigned r = 0; r < NDS_RECORDS; r++) {
            uint8_t wanted = first_sight(now, r);
            CHECK(taped.state[r] == wanted || (wanted == NDS_TORN && taped.state[r] == NDS_STALE && turn));
            torn += wanted == NDS_TORN;
        }
        CHECK(taped.torn == torn);
    }
    size_t size = nds_tape_whole(&taped, 1, out), at = 2 + 2 * (size_t)out[1];
    if (!size)
        return;
    noise((unsigned char *)played, NDS_REQUIRED_SIZE);
    CHECK(nds_changes_apply((nds_word *)played, NDS_REQUIRED_SIZE / 8, out, size, &at, true) && at == size);
    CHECK(memcmp(played, later, NDS_REQUIRED_SIZE) == 0);
    for (unsigned i = 0; i < 8; i++)
        out[below((unsigned)size)] = (unsigned char)next();
    unsigned char *exact = malloc(size);
    if (!exact)
        exit(2);
    memcpy(exact, out, size);
    at = below((unsigned)size);
    nds_changes_apply((nds_word *)played, NDS_REQUIRED_SIZE / 8, exact, size, &at, below(2));
    CHECK(at <= size);
    free(exact);
}

int main(int argc, char **argv)
{
    unsigned long long blobs = argc > 1 ? strtoull(argv[1], NULL, 0) : 3000;
    seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    /* Of exactly their size, so that the sanitizer sees the first byte outside. */
    unsigned char *blob = aligned_alloc(64, NDS_REQUIRED_SIZE), *later = aligned_alloc(64, NDS_REQUIRED_SIZE);
    unsigned char *copy = aligned_alloc(64, NDS_REQUIRED_SIZE);
    struct nds_last_good *last = calloc(1, sizeof *last);
    unsigned char *out = malloc(NDS_BLOCK_MOST);
    if (!blob || !later || !copy || !last || !out)
        return 2;
    for (unsigned long long i = 0; i < blobs; i++, seed++) {
        state_of_rng = seed;
        last->have[0] = last->have[1] = 0;
        make_blob(blob);
        make_blob(later);
        look(blob, later, copy, last);
        look(later, blob, copy, last); /* now with a memory of the first */
        tape(blob, later, (uint64_t *)copy, out);
    }
    printf("fuzz_core: %llu blobs, no fault\n", blobs);
    free(out), free(last), free(copy), free(later), free(blob);
    return 0;
}
