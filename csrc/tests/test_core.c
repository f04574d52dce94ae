/* Tests of the C core, for the address and undefined-behaviour sanitizers: words and records here, mappings and lock
 * files in lifetimes.h, changed words in changes.h. One thread except where a retry needs a second; test_races.c is for many. */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "changes.h"
#include "check.h"
#include "lifetimes.h"

/* A blob between two pages that may not be touched: a byte outside it ends the test. */
static unsigned char *new_blob(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (NDS_REQUIRED_SIZE + page - 1) / page * page;
    unsigned char *all = mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED);
    CHECK(mprotect(all + page, room, PROT_READ | PROT_WRITE) == 0);
    return all + page + room - NDS_REQUIRED_SIZE; /* its end is the page's end: that side is watched to the byte */
}

static void free_blob(unsigned char *blob)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (NDS_REQUIRED_SIZE + page - 1) / page * page;
    CHECK(munmap(blob + NDS_REQUIRED_SIZE - room - page, room + 2 * page) == 0);
}

/* ---- words ---- */

static void test_word_operations(void)
{
    nds_word w = 0;
    nds_add(&w, UINT64_MAX);
    nds_add(&w, 3);
    CHECK(nds_load(&w) == 2);
    nds_sub(&w, 3);
    CHECK(nds_load(&w) == UINT64_MAX);
    nds_store(&w, 8);
    nds_or(&w, 3);
    CHECK(nds_load(&w) == 11);
    nds_and(&w, ~UINT64_C(2));
    CHECK(nds_load(&w) == 9);
}

static void test_copy_and_zero(void)
{
    enum { WORDS = 70 };
    uint64_t from[WORDS], to[WORDS + 2];
    for (size_t i = 0; i < WORDS; i++)
        from[i] = UINT64_C(0x0101010101010101) * (i + 1);
    for (size_t n = 0; n <= WORDS; n++) {
        memset(to, 0xee, sizeof to);
        nds_copy_out(to + 1, from, n * 8);
        CHECK(memcmp(to + 1, from, n * 8) == 0);
        CHECK(to[0] == UINT64_C(0xeeeeeeeeeeeeeeee) && to[n + 1] == UINT64_C(0xeeeeeeeeeeeeeeee));
        nds_zero(to + 1, n * 8);
        for (size_t i = 1; i <= n; i++)
            CHECK(to[i] == 0);
        CHECK(to[0] == UINT64_C(0xeeeeeeeeeeeeeeee) && to[n + 1] == UINT64_C(0xeeeeeeeeeeeeeeee));
    }
}

/* Every length that leaves a rest behind the lines, from a source in every place of a line. */
static void test_copy_past_caches(void)
{
    enum { WORDS = 70 };
    _Alignas(64) uint64_t from[WORDS + 8], to[WORDS + 2];
    for (size_t i = 0; i < WORDS + 8; i++)
        from[i] = UINT64_C(0x0101010101010101) * (i + 1);
    for (size_t n = 0; n <= WORDS; n++)
        for (size_t at = 0; at < 8; at++) {
            memset(to, 0xee, sizeof to);
            nds_copy_out_past_cache(to, from + at, n * 8);
            CHECK(memcmp(to, from + at, n * 8) == 0);
            CHECK(to[n] == UINT64_C(0xeeeeeeeeeeeeeeee) && to[n + 1] == UINT64_C(0xeeeeeeeeeeeeeeee));
        }
}

static void test_addresses(void)
{
    unsigned char *blob = new_blob();
    static unsigned char seen[NDS_REQUIRED_SIZE / 8];
    for (unsigned i = 0; i < NDS_ND_COUNTERS; i++)
        seen[((unsigned char *)nds_nd_counter(blob, i) - blob) / 8]++;
    for (unsigned core = 0; core < NDS_MAX_CORES; core++)
        for (unsigned i = 0; i < NDS_NC_COUNTERS; i++)
            seen[((unsigned char *)nds_nc_counter(blob, core, i) - blob) / 8]++;
    unsigned found = 0;
    for (size_t i = 0; i < sizeof seen; i++) {
        CHECK(seen[i] <= 1);
        found += seen[i];
    }
    CHECK(found == NDS_ND_COUNTERS + NDS_MAX_CORES * NDS_NC_COUNTERS);
    CHECK(nds_nd_counter(blob, NDS_ND_COUNTERS) == NULL && nds_nd_counter(blob, UINT32_MAX) == NULL);
    for (unsigned core = 0; core < NDS_MAX_CORES; core++)
        CHECK(nds_nc_counter(blob, core, NDS_NC_COUNTERS) == NULL && nds_nc_counter(blob, core, UINT32_MAX) == NULL);
    CHECK(nds_nc_counter(blob, NDS_MAX_CORES, 0) == NULL && nds_nc_counter(blob, UINT32_MAX, 0) == NULL);
    free_blob(blob);
}

static void test_add_many(void)
{
    unsigned char *blob = new_blob();
    for (unsigned core = 0; core < NDS_MAX_CORES; core++)
        for (unsigned n = 0; n <= NDS_NC_COUNTERS; n++) {
            uint64_t deltas[NDS_NC_COUNTERS] = {0};
            for (unsigned i = 0; i < n; i++)
                deltas[i] = i % 3 ? i : 0;
            nds_add_many(blob, core, deltas, n);
        }
    for (unsigned core = 0; core < NDS_MAX_CORES; core++)
        for (unsigned i = 0; i < NDS_NC_COUNTERS; i++) /* counter i was in n = i + 1 ... 95 of the calls */
            CHECK(nds_load(nds_nc_counter(blob, core, i)) == (i % 3 ? i * (NDS_NC_COUNTERS - i) : 0));
    free_blob(blob);
}

static void test_execution_ended(void)
{
    unsigned char *blob = new_blob();
    struct nds_core_words core = {nds_nc_counter(blob, 9, 0), nds_nc_counter(blob, 9, NDS_BASE_NC_COUNTERS)};
    struct nds_execution e = {.status = NDS_NC_COUNTER_INFER_COMPLETED, .busy_us = 7, .macs = 11};
    e.latencies_set = 1u << NDS_EXEC_TOTAL_US | 1u << NDS_EXEC_CC_US;
    e.latency_us[NDS_EXEC_TOTAL_US] = 100, e.latency_us[NDS_EXEC_CC_US] = 3, e.latency_us[NDS_EXEC_NC_US] = 99;
    CHECK(nds_execution_ended(&core, &e) == 0 && nds_execution_ended(&core, &e) == 0);
    unsigned nonzero = 0;
    for (unsigned i = 0; i < NDS_NC_COUNTERS; i++)
        nonzero += nds_load(nds_nc_counter(blob, 9, i)) != 0;
    CHECK(nonzero == 6);
    CHECK(nds_load(core.base + NDS_NC_COUNTER_INFER_COMPLETED) == 2);
    CHECK(nds_load(core.base + NDS_NC_COUNTER_INFERENCE_COUNT) == 2);
    CHECK(nds_load(core.base + NDS_NC_COUNTER_TIME_IN_USE) == 14);
    CHECK(nds_load(core.base + NDS_NC_COUNTER_MAC_COUNT) == 22);
    CHECK(nds_load(core.base + NDS_NC_COUNTER_LATENCY_TOTAL) == 100);
    CHECK(nds_load(core.base + NDS_NC_COUNTER_CC_TIME) == 3);
    unsigned known = 0;
    for (unsigned status = 0; status < 200; status++) {
        e = (struct nds_execution){.status = status};
        int done = nds_execution_ended(&core, &e);
        CHECK((done == 0) == !(nds_exec_effects(status) & NDS_EXEC_UNKNOWN));
        known += done == 0;
    }
    CHECK(known == 14);
    uint64_t before[NDS_NC_COUNTERS], after[NDS_NC_COUNTERS];
    nds_copy_out(before, core.base, sizeof before);
    e = (struct nds_execution){.status = NDS_NC_COUNTER_INFER_COMPLETED, .error_class = NDS_NC_COUNTER_ERR_MODEL};
    CHECK(nds_execution_ended(&core, &e) == -1);
    e = (struct nds_execution){.status = NDS_NC_COUNTER_INFER_COMPLETED, .software_error = NDS_NC_COUNTERS};
    CHECK(nds_execution_ended(&core, &e) == -1);
    nds_copy_out(after, core.base, sizeof after);
    CHECK(memcmp(before, after, sizeof before) == 0);
    free_blob(blob);
}

static void store_older(unsigned char *blob, unsigned core, unsigned counter, uint64_t value)
{
    size_t at =
        core < NDS_BASE_CORES
            ? NDS_OLDER_EXT_NC_COUNTERS_OFFSET + (core * NDS_OLDER_EXT_NC_STRIDE + counter - NDS_BASE_NC_COUNTERS) * 8
            : NDS_OLDER_EXT_NC_DATA_OFFSET + ((core - NDS_BASE_CORES) * NDS_EXT_NC_STRIDE + counter) * 8;
    memcpy(blob + at, &value, sizeof value);
}

static uint64_t value_of(unsigned char *blob, unsigned core, unsigned counter)
{
    return nds_nc_value(blob, nds_nc_counter(blob, core, counter), core, counter);
}

static void test_older_layout(void)
{
    unsigned char *blob = new_blob();
    CHECK(!nds_is_older(blob));
    for (unsigned core = 0; core < NDS_MAX_CORES; core++)
        for (unsigned i = core < NDS_BASE_CORES ? NDS_BASE_NC_COUNTERS : 0; i < NDS_NC_COUNTERS; i++)
            store_older(blob, core, i, (uint64_t)core << 40 | (i + 1));
    CHECK(nds_is_older(blob));
    nds_store(nds_nc_counter(blob, 2, 3), 77);
    for (unsigned core = 0; core < NDS_MAX_CORES; core++)
        for (unsigned i = core < NDS_BASE_CORES ? NDS_BASE_NC_COUNTERS : 0; i < NDS_NC_COUNTERS; i++)
            CHECK(value_of(blob, core, i) == ((uint64_t)core << 40 | (i + 1)));
    CHECK(value_of(blob, 2, 3) == 77 && value_of(blob, 2, 4) == 0);
    size_t end = NDS_OLDER_EXT_NC_DATA_OFFSET + NDS_OLDER_EXT_NC_DATA_SIZE;
    for (size_t at = end; at < NDS_EXT_NC_COUNTERS_OFFSET; at++) { /* behind its end: a fault, so today's layout */
        blob[at] = 1;
        CHECK(!nds_is_older(blob) && value_of(blob, 5, 1) == 0);
        blob[at] = 0;
    }
    nds_store(nds_nc_counter(blob, 15, 94), 1); /* both layouts in use: today's counts */
    CHECK(!nds_is_older(blob) && value_of(blob, 5, 1) == 0 && value_of(blob, 15, 94) == 1);
    free_blob(blob);
}

/* ---- hashes and stamps ---- */

static void test_hashes(void)
{
    CHECK(nds_fnv1a("", 0) == NDS_FNV_BASIS);
    CHECK(nds_fnv1a("a", 1) == UINT32_C(0xe40c292c));
    CHECK(nds_fnv1a("foobar", 6) == UINT32_C(0xbf9cf968));
    unsigned char record[4][NDS_MODEL_SIZE], zeroed[NDS_MODEL_SIZE];
    for (unsigned i = 0; i < 4; i++)
        for (size_t k = 0; k < NDS_MODEL_SIZE; k++)
            record[i][k] = (unsigned char)(k * (i + 3) + i);
    const void *at[4] = {record[0], record[1], record[2], record[3]};
    for (size_t n = 4; n <= NDS_MODEL_SIZE; n++) {
        uint32_t hash[4];
        nds_record_hash4(at, n, hash);
        for (unsigned i = 0; i < 4; i++) {
            memcpy(zeroed, record[i], n);
            memset(zeroed, 0, 4);
            CHECK(hash[i] == nds_fnv1a(zeroed, n) && hash[i] == nds_record_hash(record[i], n));
        }
    }
}

/* Payloads whose hash comes out 0; five bytes of each were searched for. */
static void zero_hash_record(enum nds_kind kind, bool full_tag, unsigned char *bytes)
{
    static const unsigned char model[] = {0x9a, 0x34, 0xd1, 0x11, 0x00}, info[] = {0x70, 0x2b, 0x05, 0x80, 0x01},
                               full[] = {0x06, 0x7b, 0x8a, 0x31, 0x02}, ext[] = {0x8d, 0x41, 0x6e, 0x04, 0x01};
    memset(bytes, 0, nds_kind_size(kind));
    switch (kind) {
    case NDS_KIND_MODEL_NODE:
        bytes[offsetof(struct nds_model_node, model_id)] = 1;
        memcpy(bytes + offsetof(struct nds_model_node, uuid), model, sizeof model);
        break;
    case NDS_KIND_PROCESS_INFO:
        memcpy(bytes + offsetof(struct nds_process_info, framework_version) + 4, info, sizeof info);
        break;
    default:
        if (full_tag)
            memset(bytes + 4, 'a', sizeof(struct nds_process_info_ext) - 4);
        memcpy(bytes + (full_tag ? 100 : 4), full_tag ? full : ext, sizeof full);
    }
    CHECK(nds_record_hash(bytes, nds_kind_size(kind)) == 0);
}

static void test_a_hash_of_zero(void)
{
    unsigned char *blob = new_blob();
    static const unsigned number[] = {3, NDS_RECORD_PROCESS_INFO, NDS_RECORD_PROCESS_INFO_EXT};
    for (unsigned kind = 0; kind < 4; kind++) { /* the last round: an ext record without a free byte */
        bool full = kind == 3;
        unsigned record = number[full ? 2 : kind];
        size_t n = record_bytes(record);
        unsigned char before[NDS_MODEL_SIZE], bytes[NDS_MODEL_SIZE], back[NDS_MODEL_SIZE];
        zero_hash_record(nds_record_kind(record), full, before);
        memcpy(bytes, before, n);
        nds_record_stamp(nds_record_kind(record), bytes);
        uint32_t hash;
        memcpy(&hash, bytes, sizeof hash);
        CHECK(hash == nds_record_hash(bytes, n));
        unsigned changed = 0;
        for (size_t i = 4; i < n; i++)
            changed += bytes[i] != before[i];
        CHECK(full ? hash == 0 && changed == 0 : hash != 0 && changed == 1);
        nds_record_publish(blob, record, bytes);
        CHECK(nds_record_read(blob, record, back) == NDS_EXACT && memcmp(back, bytes, n) == 0);
        nds_record_publish(blob, record, before); /* unstamped, as an older producer leaves it: its 0 matches */
        CHECK(nds_record_read(blob, record, back) == NDS_EXACT && memcmp(back, before, n) == 0);
    }
    free_blob(blob);
}

/* ---- records ---- */

static void test_publish_touches_its_record_only(void)
{
    unsigned char *blob = new_blob(), *expected = malloc(NDS_REQUIRED_SIZE);
    for (unsigned r = 0; r < NDS_RECORDS; r++) {
        unsigned char bytes[NDS_MODEL_SIZE], back[NDS_MODEL_SIZE + 1];
        size_t n = record_bytes(r), at = nds_record_offset(r);
        memset(blob, 0xaa, NDS_REQUIRED_SIZE);
        memset(expected, 0xaa, NDS_REQUIRED_SIZE);
        fill_record(r, (unsigned char)(r + 1), bytes);
        nds_record_publish(blob, r, bytes);
        memcpy(expected + at, bytes, n);
        CHECK(memcmp(blob, expected, NDS_REQUIRED_SIZE) == 0);
        back[n] = 0x55;
        nds_record_load(back, blob, r);
        CHECK(memcmp(back, bytes, n) == 0 && back[n] == 0x55);
        nds_record_zero(blob, r);
        memset(expected + at, 0, n);
        CHECK(memcmp(blob, expected, NDS_REQUIRED_SIZE) == 0);
    }
    free(expected);
    free_blob(blob);
}

static char steps[64];

static void note_step(const char *name)
{
    strncat(steps, name, sizeof steps - strlen(steps) - 2);
    strcat(steps, " ");
}

static void test_the_step_hook(void)
{
    unsigned char *blob = new_blob(), bytes[NDS_MODEL_SIZE];
    fill_record(0, 1, bytes);
    nds_step = note_step;
    nds_record_publish(blob, 0, bytes);
    nds_step = NULL;
    CHECK(strcmp(steps, "publish.begin publish.half publish.written ") == 0);
    free_blob(blob);
}

static void set_bitmap(unsigned char *blob, uint64_t bits)
{
    nds_store((nds_word *)(blob + NDS_MODEL_BITMAP_OFFSET), bits);
}

static void publish_value(unsigned char *blob, unsigned record, unsigned char value)
{
    unsigned char bytes[NDS_MODEL_SIZE];
    fill_record(record, value, bytes);
    nds_record_publish(blob, record, bytes);
}

static void tear(unsigned char *blob, unsigned record)
{
    blob[nds_record_offset(record) + 8] ^= 0x10;
}

static void copy_all(unsigned char *copy, const unsigned char *blob)
{
    nds_copy_out(copy, blob, NDS_REQUIRED_SIZE);
}

static void test_states(void)
{
    unsigned char *blob = new_blob(), *copy = new_blob();
    struct nds_last_good *last = calloc(1, sizeof *last);
    uint8_t state[NDS_RECORDS];
    for (unsigned used = 0; used <= NDS_MAX_MODELS; used++) { /* every number of lanes, full and not */
        memset(blob, 0, NDS_REQUIRED_SIZE);
        set_bitmap(blob, used == 64 ? UINT64_MAX : (UINT64_C(1) << used) - 1);
        for (unsigned r = 0; r < used; r++)
            publish_value(blob, r, (unsigned char)(r + 1));
        if (used)
            tear(blob, used - 1);
        copy_all(copy, blob);
        CHECK(nds_records_verify(copy, state, NULL) == (used != 0));
        for (unsigned r = 0; r < NDS_MAX_MODELS; r++)
            CHECK(state[r] == (r >= used ? NDS_ABSENT : r == used - 1 ? NDS_TORN : NDS_EXACT));
        CHECK(state[NDS_RECORD_PROCESS_INFO] == NDS_UNPUBLISHED);
        CHECK(state[NDS_RECORD_PROCESS_INFO_EXT] == NDS_UNPUBLISHED);
    }
    memset(blob, 0, NDS_REQUIRED_SIZE);
    set_bitmap(blob, 0xff);
    publish_value(blob, 20, 1); /* under a clear bit */
    for (unsigned r = 1; r < 8; r++)
        publish_value(blob, r, (unsigned char)(r + 1));
    publish_value(blob, NDS_RECORD_PROCESS_INFO, 9);
    copy_all(copy, blob);
    CHECK(nds_records_verify(copy, state, last) == 0);
    CHECK(state[20] == NDS_ABSENT && state[0] == NDS_UNPUBLISHED && state[7] == NDS_EXACT);
    publish_value(blob, 8, 9);
    set_bitmap(blob, 0x1ff);
    tear(blob, 8); /* never seen whole */
    for (unsigned r = 1; r < 6; r++)
        tear(blob, r);
    tear(blob, NDS_RECORD_PROCESS_INFO);
    copy_all(copy, blob);
    CHECK(nds_records_verify(copy, state, last) == 7);
    publish_value(blob, 1, 41);                /* its producer finishes during the pause */
    nds_record_zero(blob, 2);                  /* goes away */
    set_bitmap(blob, 0x1ff & ~UINT64_C(0x08)); /* 3 goes away too, its record only half zeroed */
    CHECK(nds_records_verify_again(blob, copy, state, last) == 3);
    CHECK(state[1] == NDS_RETRIED && uniform_value(1, copy + nds_record_offset(1)) == 41);
    CHECK(state[2] == NDS_UNPUBLISHED);
    CHECK(state[3] == NDS_TORN);
    CHECK(state[4] == NDS_STALE && uniform_value(4, last->bytes + nds_record_offset(4)) == 5);
    CHECK(state[5] == NDS_STALE && state[NDS_RECORD_PROCESS_INFO] == NDS_STALE);
    CHECK(state[6] == NDS_EXACT && state[7] == NDS_EXACT && state[8] == NDS_TORN);
    CHECK(nds_records_verify(copy, state, NULL) != 0 && nds_records_verify_again(blob, copy, state, NULL) == 0);
    CHECK(state[4] == NDS_TORN); /* without a memory there is no stale */
    free(last);
    free_blob(copy);
    free_blob(blob);
}

/* A slot that went out of use and came back holds another model: what was known of the first may not be shown. */
static void test_stale_ends_with_the_use_of_the_slot(void)
{
    unsigned char *blob = new_blob(), *copy = new_blob();
    struct nds_last_good *last = calloc(1, sizeof *last);
    uint8_t state[NDS_RECORDS];
    for (int during_pause = 0; during_pause < 2; during_pause++) {
        set_bitmap(blob, 1);
        publish_value(blob, 0, 1);
        copy_all(copy, blob);
        CHECK(nds_records_verify(copy, state, last) == 0 && state[0] == NDS_EXACT);
        if (during_pause) { /* the record is whole again and its bit already clear when it is read again */
            tear(blob, 0);
            copy_all(copy, blob);
            CHECK(nds_records_verify(copy, state, last) == 1);
            tear(blob, 0);
            set_bitmap(blob, 0);
            CHECK(nds_records_verify_again(blob, copy, state, last) == 0 && state[0] == NDS_RETRIED);
        } else {
            set_bitmap(blob, 0);
            copy_all(copy, blob);
            CHECK(nds_records_verify(copy, state, last) == 0 && state[0] == NDS_ABSENT);
        }
        publish_value(blob, 0, 2);
        set_bitmap(blob, 1);
        tear(blob, 0);
        copy_all(copy, blob);
        CHECK(nds_records_verify(copy, state, last) == 1);
        CHECK(nds_records_verify_again(blob, copy, state, last) == 0 && state[0] == NDS_TORN);
    }
    free(last);
    free_blob(copy);
    free_blob(blob);
}

static void *mend(void *blob)
{
    nds_pause_us(60);
    tear(blob, 7);
    return NULL;
}

static void test_reading_one_record(void)
{
    unsigned char *blob = new_blob(), bytes[NDS_MODEL_SIZE];
    for (unsigned r = 0; r < NDS_RECORDS; r++) {
        CHECK(nds_record_read(blob, r, bytes) == NDS_UNPUBLISHED);
        publish_value(blob, r, (unsigned char)(r + 1));
        CHECK(nds_record_read(blob, r, bytes) == NDS_EXACT && uniform_value(r, bytes) == (int)r + 1);
        tear(blob, r);
        CHECK(nds_record_read(blob, r, bytes) == NDS_TORN);
        tear(blob, r);
    }
    free_blob(blob);
}

/* What a reader that remembers makes of such reads; under a clear bit nothing is remembered and nothing shown. */
static void test_settling_a_read(void)
{
    unsigned char *blob = new_blob(), bytes[NDS_MODEL_SIZE];
    struct nds_last_good *last = calloc(1, sizeof *last);
    CHECK(!nds_record_used(blob, 63) && nds_record_used(blob, NDS_RECORD_PROCESS_INFO_EXT));
    set_bitmap(blob, UINT64_C(1) << 63);
    CHECK(nds_record_used(blob, 63) && !nds_record_used(blob, 62));
    fill_record(4, 9, bytes);
    CHECK(nds_record_settle(last, 4, false, NDS_EXACT, bytes) == NDS_EXACT);
    CHECK(nds_record_settle(last, 4, true, NDS_TORN, bytes) == NDS_TORN);
    CHECK(nds_record_settle(last, 4, true, NDS_RETRIED, bytes) == NDS_RETRIED);
    memset(bytes, 0, sizeof bytes);
    CHECK(nds_record_settle(last, 4, true, NDS_TORN, bytes) == NDS_STALE && uniform_value(4, bytes) == 9);
    CHECK(nds_record_settle(last, 4, false, NDS_TORN, bytes) == NDS_TORN);
    CHECK(nds_record_settle(last, 4, true, NDS_TORN, bytes) == NDS_TORN);
    CHECK(nds_record_settle(last, 4, true, NDS_EXACT, bytes) == NDS_EXACT);
    CHECK(nds_record_settle(last, 4, true, NDS_UNPUBLISHED, bytes) == NDS_UNPUBLISHED);
    CHECK(nds_record_settle(last, 4, true, NDS_TORN, bytes) == NDS_TORN);
    CHECK(nds_record_settle(NULL, 4, true, NDS_EXACT, bytes) == NDS_EXACT);
    CHECK(nds_record_settle(NULL, 4, true, NDS_TORN, bytes) == NDS_TORN);
    free(last);
    free_blob(blob);
}

/* Whether the second thread mends the record inside the pause is up to the scheduler: it is tried until it does. */
static void test_the_second_read(void)
{
    struct nds_mapping m;
    unsigned char bytes[NDS_MODEL_SIZE];
    CHECK(nds_map(&m, -1, 0, NDS_SLAB_SIZE, true) == 0);
    bool retried = false;
    for (unsigned i = 0; i < 5000 && !retried; i++) {
        publish_value(m.base, 7, 7);
        tear(m.base, 7);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, mend, m.base) == 0);
        enum nds_state state = nds_record_read(m.base, 7, bytes);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(state == NDS_EXACT || state == NDS_RETRIED || state == NDS_TORN);
        CHECK(state == NDS_TORN || uniform_value(7, bytes) == 7);
        retried = state == NDS_RETRIED;
    }
    CHECK(retried);
    nds_mapping_free(&m);
}

int main(void)
{
    test_word_operations();
    test_copy_and_zero();
    test_copy_past_caches();
    test_addresses();
    test_add_many();
    test_execution_ended();
    test_older_layout();
    test_hashes();
    test_a_hash_of_zero();
    test_publish_touches_its_record_only();
    test_the_step_hook();
    test_states();
    test_stale_ends_with_the_use_of_the_slot();
    test_reading_one_record();
    test_settling_a_read();
    test_the_second_read();
    test_changes();
    test_lifetimes();
    printf("test_core: %lu checks\n", atomic_load(&checks));
    return 0;
}
