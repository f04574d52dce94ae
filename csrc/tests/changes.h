/* Tests of changed words as bytes: numbers, changes there and back, what a slab's records do on a tape.
 * Included by test_core.c; one thread. */
#ifndef NDS_TESTS_CHANGES_H
#define NDS_TESTS_CHANGES_H

#include "check.h"
#include "nds_delta.h"

static void test_numbers(void)
{
    unsigned char out[NDS_VARINT_MOST];
    for (unsigned bit = 0; bit < 64; bit++)
        for (uint64_t near = 0; near < 3; near++) {
            uint64_t v = (UINT64_C(1) << bit) - 1 + near, back;
            size_t at = 0, n = nds_varint(out, v);
            CHECK(n <= NDS_VARINT_MOST && nds_varint_read(out, n, &at, &back) && at == n && back == v);
            CHECK(nds_unzigzag(nds_zigzag(v)) == v);
            at = 0;
            CHECK(!nds_varint_read(out, n - 1, &at, &back) && at == 0);
        }
    const unsigned char too_long[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02};
    size_t at = 0;
    uint64_t v;
    CHECK(!nds_varint_read(too_long, sizeof too_long, &at, &v));
}

static void test_changes_there_and_back(void)
{
    enum { WORDS = 75 };
    uint64_t now[WORDS] = {0}, before[WORDS] = {0}, played[WORDS] = {0}, started[WORDS] = {0};
    unsigned char out[NDS_CHANGES_MOST(WORDS)];
    uint64_t seed = 1;
    for (unsigned round = 0; round < 2000; round++) {
        for (unsigned i = 0; i < round % 9; i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            now[(seed >> 33) % WORDS] += round % 3 ? seed >> (seed >> 58) : (uint64_t)0 - (seed >> 60);
        }
        size_t n = nds_changes_write(out, (nds_word *)now, before, WORDS, NULL), at = 0;
        CHECK(n <= sizeof out && memcmp(now, before, sizeof now) == 0);
        CHECK(nds_changes_apply((nds_word *)played, WORDS, out, n, &at, false) && at == n);
        CHECK(memcmp(now, played, sizeof now) == 0);
        uint64_t zero[WORDS] = {0};
        n = nds_changes_write(out, (nds_word *)now, zero, WORDS, NULL), at = 0;
        CHECK(nds_changes_apply((nds_word *)started, WORDS, out, n, &at, true) && at == n);
        CHECK(memcmp(now, started, sizeof now) == 0);
        if (n > 1)
            for (at = 0; at < n;) {
                size_t begin = 0, cut = at++;
                CHECK(!nds_changes_apply((nds_word *)played, WORDS, out, cut, &begin, false));
            }
        memcpy(played, now, sizeof now);
    }
    const unsigned char outside[] = {WORDS + 1, 2, 0}, behind[] = {WORDS, 2, 1, 2, 0};
    size_t at = 0;
    CHECK(!nds_changes_apply((nds_word *)played, WORDS, outside, sizeof outside, &at, false));
    at = 0;
    CHECK(!nds_changes_apply((nds_word *)played, WORDS, behind, sizeof behind, &at, false));
}

static void test_records_on_a_tape(void)
{
    static struct nds_taped taped;
    static unsigned char out[NDS_BLOCK_MOST];
    static uint64_t blob[NDS_REQUIRED_SIZE / 8], played[NDS_REQUIRED_SIZE / 8];
    unsigned char record[NDS_MODEL_SIZE];
    size_t at;
    nds_tape_begin(&taped);
    CHECK(nds_tape_look(&taped, blob, 1, out) == 0 && nds_tape_whole(&taped, 1, out) == 0);
    blob[0] = NDS_HEADER_WORD;
    fill_record(63, 9, record);
    nds_record_publish(blob, 63, record);
    nds_or((nds_word *)blob + NDS_MODEL_BITMAP_OFFSET / 8, UINT64_C(1) << 63);
    size_t n = nds_tape_look(&taped, blob, 1, out);
    CHECK(n && out[0] == 3 && out[1] == 1 && out[2] == 63 && out[3] == NDS_EXACT && taped.torn == 0);
    at = 4;
    CHECK(nds_changes_apply((nds_word *)played, NDS_REQUIRED_SIZE / 8, out, n, &at, false) && at == n);
    CHECK(memcmp(played, blob, sizeof blob) == 0);

    blob[(NDS_REQUIRED_SIZE / 8) - 1] = 5; /* no record: no state */
    CHECK(nds_tape_look(&taped, blob, 1, out) && out[0] == 2);
    uint64_t *middle = blob + (nds_record_offset(63) + 80) / 8, good = *middle;
    *middle ^= 1;
    CHECK(nds_tape_look(&taped, blob, 1, out) && out[2] == 63 && out[3] == NDS_STALE && taped.torn == 1);
    *middle = good;
    CHECK(nds_tape_look(&taped, blob, 1, out) && out[3] == NDS_EXACT && taped.torn == 0);
    nds_and((nds_word *)blob + NDS_MODEL_BITMAP_OFFSET / 8, 0);
    CHECK(nds_tape_look(&taped, blob, 1, out) && out[2] == 63 && out[3] == NDS_ABSENT);
    *middle ^= 1;
    nds_or((nds_word *)blob + NDS_MODEL_BITMAP_OFFSET / 8, UINT64_C(1) << 63);
    CHECK(nds_tape_look(&taped, blob, 1, out) && out[3] == NDS_TORN && taped.torn == 1);

    n = nds_tape_whole(&taped, 70, out);
    CHECK(n && out[0] == (unsigned char)(141 | 0x80) && out[1] == 1 && out[2] == 3);
    memset(played, 0xee, sizeof played);
    at = 3 + 2 * 3;
    CHECK(nds_changes_apply((nds_word *)played, NDS_REQUIRED_SIZE / 8, out, n, &at, true) && at == n);
    CHECK(memcmp(played, blob, sizeof blob) == 0);

    for (size_t i = 0; i < NDS_REQUIRED_SIZE / 8; i++) /* as long as a block gets */
        blob[i] = blob[i] + (UINT64_C(1) << 63) + (i & 1);
    CHECK(nds_tape_look(&taped, blob, UINT64_C(1) << 62, out) <= sizeof out);
}

static void test_changes(void)
{
    test_numbers();
    test_changes_there_and_back();
    test_records_on_a_tape();
}

#endif
