/* The C core of neuron-datastore: what touches the bytes of a live slab.
 *
 * Pure C11 over mapped memory: atomics, records with their hash, whole-slab snapshots, mappings, record locks.
 * It knows the layout from nds_layout.h and nothing of Python, of the slot table's rules or of policy. Functions
 * return 0 or a positive count on success and a negative errno on failure, unless their comment says otherwise.
 *
 * Threads: counters, copies and record transfers may run on many threads of many processes at once. Mappings
 * and lock files are opened and closed by one thread at a time (the binding holds the GIL there).
 */
#ifndef NDS_CORE_H
#define NDS_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nds_layout.h"

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "8-byte atomics must be lock-free: they are shared between processes");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

typedef _Atomic uint64_t nds_word;

/* ---- words ---------------------------------------------------------------------------------------------- */

static inline void nds_add(nds_word *w, uint64_t n)
{
    atomic_fetch_add_explicit(w, n, memory_order_relaxed);
}

static inline void nds_sub(nds_word *w, uint64_t n)
{
    atomic_fetch_sub_explicit(w, n, memory_order_relaxed);
}

static inline void nds_or(nds_word *w, uint64_t bits)
{
    atomic_fetch_or_explicit(w, bits, memory_order_release);
}

static inline void nds_and(nds_word *w, uint64_t bits)
{
    atomic_fetch_and_explicit(w, bits, memory_order_release);
}

static inline void nds_store(nds_word *w, uint64_t v)
{
    atomic_store_explicit(w, v, memory_order_release);
}

static inline uint64_t nds_load(const nds_word *w)
{
    return atomic_load_explicit((nds_word *)w, memory_order_acquire);
}

/* Copies n bytes (a multiple of 8, both ends 8-aligned) out of shared memory by aligned 8-byte atomic loads. */
void nds_copy_out(void *dst, const void *shared, size_t n);

/* The same to a 64-byte aligned destination that no cache holds, as the arena of a large pass: the stores go past the
 * caches, which saves reading what they overwrite. */
void nds_copy_out_past_cache(void *dst, const void *shared, size_t n);

/* Zeroes n bytes (a multiple of 8, 8-aligned) of shared memory by 8-byte release stores, in address order. What is zero
 * already may get none. */
void nds_zero(void *shared, size_t n);

/* ---- addresses: the word of a counter inside a blob, or NULL when the index is none -------------------------- */

nds_word *nds_nd_counter(void *blob, unsigned counter);
nds_word *nds_nc_counter(void *blob, unsigned core, unsigned counter);

/* Value of a core's counter in the layout its producer uses: where the word of today's extension is zero, looks
 * whether the blob is of the older layout and if so reads the counter there (two 4-byte loads, may tear).
 * `word` must be what nds_nc_counter gave. */
uint64_t nds_nc_value(const void *blob, const nds_word *word, unsigned core, unsigned counter);

/* True when the older extension is not all zero and everything behind it is: a producer of the older layout. */
bool nds_is_older(const void *blob);

/* Adds deltas[0..n-1] to counters 0..n-1 of a core. n <= 95. Zero deltas cost no atomic. */
void nds_add_many(void *blob, unsigned core, const uint64_t *deltas, unsigned n);

/* ---- device totals ---------------------------------------------------------------------------------------------- */

/* One copy of a device's totals: counter c of core n at word n * NDS_EXT_NC_STRIDE + c, then the device counters, then
 * for each of the three packed versions up to 16 pairs {version, processes} and the number of processes that found no
 * pair free. */
enum {
    NDS_TOTALS_ND = NDS_MAX_CORES * NDS_EXT_NC_STRIDE,
    NDS_TOTALS_TALLIES = NDS_TOTALS_ND + 32,
    NDS_TALLY_KINDS = 3,
    NDS_TALLY_PAIRS = 16,
    NDS_TALLY_WORDS = 2 * NDS_TALLY_PAIRS + 1,
    NDS_TOTALS_WORDS = 2048
};

/* Adds a blob to private totals: counters that only grow are added, bitmaps OR-ed, versions tallied. With `gauges`
 * memory gauges are added too, those that fell below zero (2^63 or more) left out: only the living have any. */
void nds_totals_add(uint64_t totals[NDS_TOTALS_WORDS], const void *blob, bool gauges);

/* target = source + the blob, without gauges; all in shared memory. */
void nds_roll_up(nds_word *target, const nds_word *source, const void *blob);

/* ---- one execution has ended -------------------------------------------------------------------------------- */

enum {
    NDS_EXEC_TIME = 1,      /* time_in_use += busy_us */
    NDS_EXEC_LATENCY = 2,   /* the last values are set */
    NDS_EXEC_SUCCESS = 4,   /* inference_count += 1, mac_count += macs */
    NDS_EXEC_CLASS = 8,     /* an error class 7-12 may be given */
    NDS_EXEC_UNKNOWN = 0x80 /* no status has this number */
};

/* Which of the above belong to a status. A status is the index of the counter it adds 1 to. */
unsigned nds_exec_effects(uint64_t status);

enum { NDS_EXEC_DEVICE_US, NDS_EXEC_TOTAL_US, NDS_EXEC_NC_US, NDS_EXEC_CC_US, NDS_EXEC_LATENCIES };

struct nds_execution {
    uint64_t status;
    uint64_t busy_us, macs;
    uint64_t latency_us[NDS_EXEC_LATENCIES];
    uint64_t error_class;    /* counter 7-12, or 0 for none */
    uint64_t software_error; /* counter 36-39, or 0 for none */
    unsigned latencies_set;  /* bit i: latency_us[i] was given */
};

/* The words of one core that an execution may touch: its counters 0-30 and its counters from 31 on. */
struct nds_core_words {
    nds_word *base;
    nds_word *ext;
};

/* Makes all updates of an ended execution. -1 (and nothing done) when status, error_class or software_error is none. */
int nds_execution_ended(const struct nds_core_words *core, const struct nds_execution *e);

/* ---- records --------------------------------------------------------------------------------------------------- */

#define NDS_FNV_BASIS UINT32_C(0x811c9dc5)
#define NDS_FNV_PRIME UINT32_C(0x01000193)

/* The numbers of a blob's records: 0-63 the model slots, then these two. */
enum { NDS_RECORD_PROCESS_INFO = NDS_MAX_MODELS, NDS_RECORD_PROCESS_INFO_EXT, NDS_RECORDS };

enum nds_kind { NDS_KIND_MODEL_NODE, NDS_KIND_PROCESS_INFO, NDS_KIND_PROCESS_INFO_EXT };

static inline enum nds_kind nds_record_kind(unsigned record)
{
    return record < NDS_MAX_MODELS             ? NDS_KIND_MODEL_NODE
           : record == NDS_RECORD_PROCESS_INFO ? NDS_KIND_PROCESS_INFO
                                               : NDS_KIND_PROCESS_INFO_EXT;
}

size_t nds_record_offset(unsigned record);
size_t nds_kind_size(enum nds_kind kind);

/* FNV-1a-32 of a record of n >= 4 bytes with its hash word taken as zero. */
uint32_t nds_record_hash(const void *record, size_t n);

/* The same for four records at once, interleaved so that the multiply chains overlap. */
void nds_record_hash4(const void *const record[4], size_t n, uint32_t hash[4]);

/* Plain byte-loop FNV-1a-32 of n bytes; the yardstick of the benches. */
uint32_t nds_fnv1a(const void *bytes, size_t n);

/* Hashes a private record and stores the hash in it. A hash of 0 looks unpublished to old readers: where a byte
 * carries nothing (padding, or behind the NUL of an ext tag) it is changed and the record hashed again. */
void nds_record_stamp(enum nds_kind kind, void *record);

/* Stores a stamped private record into the blob word by word (release). */
void nds_record_publish(void *blob, unsigned record, const void *bytes);
/* Loads a record from the blob word by word (acquire). */
void nds_record_load(void *bytes, const void *blob, unsigned record);
/* Zeroes a record in the blob. */
void nds_record_zero(void *blob, unsigned record);

/* Called with the name of a step inside publish; NULL, the default, calls nothing. For kill tests. */
extern void (*nds_step)(const char *name);

/* How a record was read. The numbers are what a Snapshot stores. */
enum nds_state {
    NDS_ABSENT,      /* its model bit is clear */
    NDS_UNPUBLISHED, /* all zero */
    NDS_EXACT,       /* matched at the first read */
    NDS_RETRIED,     /* matched at the second read */
    NDS_STALE,       /* matched at neither: the reader's last consistent copy is shown */
    NDS_TORN         /* matched at neither, and there is no earlier copy */
};

/* A reader's last consistent copy of each record of one slab; bit r of have[r / 64]. */
struct nds_last_good {
    uint64_t have[2];
    unsigned char bytes[NDS_REQUIRED_SIZE];
};

/* First look at all records of a private copy of a blob: fills state[NDS_RECORDS], with NDS_TORN for every one
 * that mismatches, and returns how many do. Good copies go to `last` (may be NULL). */
unsigned nds_records_verify(const void *copy, uint8_t state[NDS_RECORDS], struct nds_last_good *last);

/* Second look, after the pause: re-reads every NDS_TORN record from the live blob into the copy. What matches now
 * becomes NDS_RETRIED, what went away NDS_UNPUBLISHED, else NDS_STALE where `last` has a copy of the same use of
 * the slot, else NDS_TORN stays. Returns the number of stale records. */
unsigned nds_records_verify_again(const void *blob, void *copy, uint8_t state[NDS_RECORDS], struct nds_last_good *last);

/* One record by number: two reads at most, 200 us apart, also when it is unpublished. Returns an nds_state
 * (never NDS_ABSENT) with the record in `bytes` unless it is NDS_UNPUBLISHED or NDS_TORN. */
enum nds_state nds_record_read(const void *blob, unsigned record, void *bytes);

/* What a reader makes of one record read by number: a good one is remembered in `last`, and for a torn one the earlier
 * copy of the same use of the slot is put into `bytes`, if there is one, and NDS_STALE returned. `used` is what
 * nds_record_used said before the read: a record whose bit is clear belongs to no use of its slot. */
enum nds_state nds_record_settle(struct nds_last_good *last, unsigned record, bool used, enum nds_state state,
                                 void *bytes);

/* Whether a record's model bit is set in the live blob; the two that have none are always in use. */
bool nds_record_used(const void *blob, unsigned record);

#define NDS_RECORD_PAUSE_US 200
#define NDS_HEADER_PAUSE_US 500
void nds_pause_us(unsigned us);

/* ---- mappings ---------------------------------------------------------------------------------------------------- */

/* Every mapping has a live word on a page that the kernel wipes in a forked child (MADV_WIPEONFORK), so one load
 * tells whether the mapping is open, in this process, and writable. */
enum { NDS_LIVE_FORKED = 0, NDS_LIVE_READ = 1, NDS_LIVE_WRITE = 2, NDS_LIVE_KILLED = 3 };

struct nds_mapping {
    unsigned char *base; /* NULL once unmapped */
    size_t size;
    uint64_t *live; /* belongs to this mapping until nds_mapping_free */
};

/* Maps `size` bytes of fd at offset (shared; fd -1: anonymous). Not inherited over fork. -ENODATA when the file ends
 * before that. */
int nds_map(struct nds_mapping *m, int fd, uint64_t offset, size_t size, bool writable);

/* Makes every handle on the mapping dead. */
void nds_mapping_kill(struct nds_mapping *m);

/* Unmaps a killed mapping. In a forked child touches nothing: the address may belong to something else by now. */
void nds_unmap(struct nds_mapping *m);

/* Takes the pages of a mapping off this process's account until they are touched again; what they hold stays. For
 * mappings that are read now and then. */
void nds_drop_pages(const struct nds_mapping *m);

/* Kills, unmaps and gives the live word back: nobody may look at it any more. */
void nds_mapping_free(struct nds_mapping *m);

static inline bool nds_forked(const struct nds_mapping *m)
{
    return *m->live == NDS_LIVE_FORKED;
}

static inline bool nds_readable(const struct nds_mapping *m)
{
    return *m->live - 1 < 2;
}

static inline bool nds_writable(const struct nds_mapping *m)
{
    return *m->live == NDS_LIVE_WRITE;
}

/* A number that differs between a process and the children it forks, whatever their pids in their namespaces. */
uint64_t nds_process_epoch(void);

/* ---- lock files ------------------------------------------------------------------------------------------------------ */

/* POSIX record locks die with any close(2) of the file in the owner's process. So there is one descriptor per
 * (device, inode) in a process, shared by everybody, and it is closed only when nobody uses it and no lock is
 * held through it. */
struct nds_lock_file;

/* Opens `name` in directory fd `dir`, never through a symlink; read-write where permitted, else read-only. */
int nds_lock_file_open(int dir, const char *name, struct nds_lock_file **out);
void nds_lock_file_close(struct nds_lock_file *f);

/* Write-locks one byte without waiting. -EAGAIN when another process has it. -EBADF when read-only or not intact. */
int nds_lock_take(struct nds_lock_file *f, uint64_t byte);
int nds_lock_drop(struct nds_lock_file *f, uint64_t byte);

/* Who holds the byte: 0 and *pid = holder (0 across pid namespaces) and *held, this process's own locks included. */
int nds_lock_holder(struct nds_lock_file *f, uint64_t byte, bool *held, int *pid);
/* False once somebody closed the descriptor behind our back: every lock of this process on the file is gone then. */
bool nds_lock_file_intact(const struct nds_lock_file *f);
bool nds_lock_file_writable(const struct nds_lock_file *f);

#endif
