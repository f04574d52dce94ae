/* What a recording is made of: the words of a slab that changed since the look before, as bytes of variable length.
 * Knows words, records and the encoding (docs/recording.md draws it); knows no file, no clock and no process. */
#ifndef NDS_DELTA_H
#define NDS_DELTA_H

#include "nds_core.h"

/* The most bytes that one number takes, and the changes of so many words. */
#define NDS_VARINT_MOST         10
#define NDS_CHANGES_MOST(words) ((size_t)(words) * (3 + NDS_VARINT_MOST) + 1)
/* The same for a whole slab: its head, the state of every record, its changes. */
#define NDS_BLOCK_MOST (NDS_VARINT_MOST + 2 + 2 * NDS_RECORDS + NDS_CHANGES_MOST(NDS_REQUIRED_SIZE / 8))

/* 7 bits a byte, the lowest first; the top bit says that more follow. */
size_t nds_varint(unsigned char *out, uint64_t v);

/* A signed number as one without a sign, small where it is near zero: 0, -1, 1, -2 become 0, 1, 2, 3. */
static inline uint64_t nds_zigzag(uint64_t v)
{
    return v << 1 ^ (0 - (v >> 63));
}

static inline uint64_t nds_unzigzag(uint64_t v)
{
    return v >> 1 ^ (0 - (v & 1));
}

/* Reads a number at *at and moves on. False, and *at as it was, where the bytes end before it does or it is too long. */
bool nds_varint_read(const unsigned char *in, size_t size, size_t *at, uint64_t *v);

/* Writes what changed, and a zero behind it; `before` is `now` afterwards. Gives the number of bytes: 1 is no change.
 * Bit r of touched[r / 64] is set where a word of record r changed, or its bit in the bitmap; NULL for words that are
 * no slab. */
size_t nds_changes_write(unsigned char *out, const nds_word *now, uint64_t *before, size_t words, uint64_t touched[2]);

/* Makes those changes to n words, from *at on, which moves behind their end. With `whole` they are changes to zero: every
 * word that isn't named becomes zero, without being so for a moment if it isn't. False where the bytes make no sense;
 * some changes may be made by then, and none outside. */
bool nds_changes_apply(nds_word *words, size_t n, const unsigned char *in, size_t size, size_t *at, bool whole);

/* One slab as it is taped: what it was at the last look. Before the first it is as nds_tape_begin leaves it. */
struct nds_taped {
    uint64_t words[NDS_REQUIRED_SIZE / 8];
    uint8_t state[NDS_RECORDS]; /* an nds_state; never NDS_RETRIED: nothing is read twice */
    unsigned torn;              /* records that are stale or torn */
};

/* All zero: nothing published, no model. */
void nds_tape_begin(struct nds_taped *t);

/* A look at a live slab: writes a block (docs/recording.md) and gives its size, 0 where nothing changed. `gap` is by how
 * much its number is above that of the block before. `out` has room for NDS_BLOCK_MOST. */
size_t nds_tape_look(struct nds_taped *t, const void *blob, uint64_t gap, unsigned char *out);

/* The same of everything that is remembered, as changes to zero; 0 where all is. */
size_t nds_tape_whole(const struct nds_taped *t, uint64_t gap, unsigned char *out);

#endif
