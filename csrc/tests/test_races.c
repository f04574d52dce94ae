/* Races on one mapping, for the thread sanitizer: counters, records and snapshots from many threads at once.
 * Sums must be exact, and no reader may accept a record that is a mixture of two. */
#include <pthread.h>

#include "check.h"

enum { ADDERS = 3, ROUNDS = 100000, PUBLISHES = 40000, MODELS = 8 };

static struct nds_mapping map;
static _Atomic bool finished;

/* What a thread found; each has its own, so that counting is no race itself. */
struct tally {
    unsigned long good, retried, stale, torn;
};

static nds_word *bitmap(void)
{
    return (nds_word *)(map.base + NDS_MODEL_BITMAP_OFFSET);
}

/* ---- counters ---- */

static void *adder(void *unused)
{
    (void)unused;
    struct nds_core_words core = {nds_nc_counter(map.base, 1, 0), nds_nc_counter(map.base, 1, NDS_BASE_NC_COUNTERS)};
    struct nds_execution e = {.status = NDS_NC_COUNTER_INFER_COMPLETED, .busy_us = 3, .macs = 5};
    uint64_t deltas[NDS_NC_COUNTERS];
    for (unsigned i = 0; i < NDS_NC_COUNTERS; i++)
        deltas[i] = i + 1;
    for (unsigned i = 0; i < ROUNDS; i++) {
        nds_add(nds_nc_counter(map.base, 0, 0), 1);
        nds_add(nds_nc_counter(map.base, 0, 94), UINT64_MAX); /* one less, modulo 2^64 */
        nds_sub(nds_nc_counter(map.base, 15, 94), 2);
        nds_or(nds_nd_counter(map.base, 3), UINT64_C(1) << i % 64);
        nds_execution_ended(&core, &e);
        if (i % 100 == 0)
            nds_add_many(map.base, 7, deltas, NDS_NC_COUNTERS);
    }
    return NULL;
}

static void check_sums(void)
{
    uint64_t n = (uint64_t)ADDERS * ROUNDS;
    CHECK(nds_load(nds_nc_counter(map.base, 0, 0)) == n);
    CHECK(nds_load(nds_nc_counter(map.base, 0, 94)) == 0 - n);
    CHECK(nds_load(nds_nc_counter(map.base, 15, 94)) == 0 - 2 * n);
    CHECK(nds_load(nds_nd_counter(map.base, 3)) == UINT64_MAX);
    CHECK(nds_load(nds_nc_counter(map.base, 1, NDS_NC_COUNTER_INFER_COMPLETED)) == n);
    CHECK(nds_load(nds_nc_counter(map.base, 1, NDS_NC_COUNTER_INFERENCE_COUNT)) == n);
    CHECK(nds_load(nds_nc_counter(map.base, 1, NDS_NC_COUNTER_TIME_IN_USE)) == 3 * n);
    CHECK(nds_load(nds_nc_counter(map.base, 1, NDS_NC_COUNTER_MAC_COUNT)) == 5 * n);
    for (unsigned i = 0; i < NDS_NC_COUNTERS; i++)
        CHECK(nds_load(nds_nc_counter(map.base, 7, i)) == (i + 1) * n / 100);
}

/* ---- records ---- */

static void publish_value(unsigned record, unsigned char value)
{
    unsigned char bytes[NDS_MODEL_SIZE];
    fill_record(record, value, bytes);
    nds_record_publish(map.base, record, bytes);
}

/* The one producer of records: it publishes over and over, and takes models away and brings them back. */
static void *producer(void *unused)
{
    (void)unused;
    for (unsigned i = 0; i < PUBLISHES; i++) {
        unsigned slot = i % MODELS;
        if (i % 64 == slot) {
            nds_and(bitmap(), ~(UINT64_C(1) << slot));
            nds_record_zero(map.base, slot);
        }
        publish_value(slot, (unsigned char)(1 + i % 250));
        nds_or(bitmap(), UINT64_C(1) << slot);
        publish_value(NDS_RECORD_PROCESS_INFO, (unsigned char)(1 + i % 249));
        publish_value(NDS_RECORD_PROCESS_INFO_EXT, (unsigned char)(1 + i % 251));
    }
    atomic_store(&finished, true);
    return NULL;
}

static void *record_reader(void *result)
{
    struct tally *tally = result;
    unsigned char bytes[NDS_MODEL_SIZE];
    for (unsigned i = 0; !atomic_load(&finished); i++) {
        unsigned record = i % 3 == 0 ? i % MODELS : NDS_RECORD_PROCESS_INFO + i % 2;
        enum nds_state state = nds_record_read(map.base, record, bytes);
        if (state == NDS_EXACT || state == NDS_RETRIED) {
            CHECK(uniform_value(record, bytes) > 0);
            tally->good++;
            tally->retried += state == NDS_RETRIED;
        } else {
            CHECK(state == NDS_UNPUBLISHED || state == NDS_TORN);
            tally->torn += state == NDS_TORN;
        }
    }
    return NULL;
}

/* Whole snapshots, as the binding makes them, while counters are added to and records published. */
static void *snapshot_reader(void *result)
{
    struct tally *tally = result;
    struct nds_last_good *last = calloc(1, sizeof *last);
    unsigned char *copy = aligned_alloc(64, NDS_REQUIRED_SIZE);
    uint8_t state[NDS_RECORDS];
    uint64_t before = 0, offset = (uint64_t)((unsigned char *)nds_nc_counter(map.base, 0, 0) - map.base);
    CHECK(last && copy);
    while (!atomic_load(&finished)) {
        nds_copy_out(copy, map.base, NDS_REQUIRED_SIZE);
        if (nds_records_verify(copy, state, last)) {
            nds_pause_us(NDS_RECORD_PAUSE_US);
            nds_records_verify_again(map.base, copy, state, last);
        }
        for (unsigned r = 0; r < NDS_RECORDS; r++) {
            const unsigned char *shown = state[r] == NDS_STALE ? last->bytes : copy;
            if (state[r] >= NDS_EXACT && state[r] <= NDS_STALE) {
                CHECK(uniform_value(r, shown + nds_record_offset(r)) > 0);
                tally->good++;
            }
            tally->retried += state[r] == NDS_RETRIED;
            tally->stale += state[r] == NDS_STALE;
            tally->torn += state[r] == NDS_TORN;
        }
        uint64_t now;
        memcpy(&now, copy + offset, sizeof now);
        CHECK(now >= before && now <= (uint64_t)ADDERS * ROUNDS); /* a counter that only grows never goes back */
        before = now;
    }
    free(copy);
    free(last);
    return NULL;
}

int main(void)
{
    enum { READERS = 2 };
    struct tally tally[2 * READERS] = {{0}};
    pthread_t thread[ADDERS + 1 + 2 * READERS];
    unsigned n = 0;
    CHECK(nds_map(&map, -1, 0, NDS_SLAB_SIZE, true) == 0);
    nds_store((nds_word *)map.base, NDS_HEADER_WORD);
    for (unsigned i = 0; i < READERS; i++)
        CHECK(pthread_create(&thread[n++], NULL, record_reader, &tally[i]) == 0);
    for (unsigned i = 0; i < READERS; i++)
        CHECK(pthread_create(&thread[n++], NULL, snapshot_reader, &tally[READERS + i]) == 0);
    for (unsigned i = 0; i < ADDERS; i++)
        CHECK(pthread_create(&thread[n++], NULL, adder, NULL) == 0);
    CHECK(pthread_create(&thread[n++], NULL, producer, NULL) == 0);
    for (unsigned i = 0; i < n; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    check_sums();
    struct tally sum = {0};
    for (unsigned i = 0; i < 2 * READERS; i++) {
        sum.good += tally[i].good, sum.retried += tally[i].retried;
        sum.stale += tally[i].stale, sum.torn += tally[i].torn;
    }
    CHECK(sum.good > 0);
    nds_mapping_free(&map);
    printf("test_races: %lu checks; records read %lu, of them retried %lu, stale %lu; torn and refused %lu\n",
           atomic_load(&checks), sum.good, sum.retried, sum.stale, sum.torn);
    return 0;
}
