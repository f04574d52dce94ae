/* The rules of a device's table: attached processes, slots, roll-up.
 * Knows tables and slabs as bytes in memory; knows no file, no process and no lock. */
#include <errno.h>
#include <string.h>

#include "standin.h"

/* ---- slots ------------------------------------------------------------------------------------------------------ */

int table_find(const struct table *t, int32_t pid)
{
    for (int s = 0; s < NDS_SLOTS_PER_DEVICE; s++)
        if (t->slots[s].pid && t->slots[s].pid == pid)
            return s;
    return -ENOENT;
}

/* A never-used slot has tick 0, less than any other, and of equals the lowest index comes first. */
static int claim(struct table *t, int32_t pid)
{
    struct slot *best = NULL;
    for (struct slot *s = t->slots; s < t->slots + NDS_SLOTS_PER_DEVICE; s++)
        if (!s->pid && (!best || s->tick < best->tick))
            best = s;
    if (!best)
        return -ENOMEM;
    best->pid = pid;
    return (int)(best - t->slots);
}

int table_acquire(struct table *t, int32_t wanted, int32_t caller)
{
    if (wanted)
        return table_find(t, wanted);
    int s = table_find(t, caller);
    return s >= 0 ? s : claim(t, caller);
}

static uint64_t counter_of(const unsigned char *slab, unsigned core, unsigned counter)
{
    size_t at;
    if (core >= NDS_BASE_CORES)
        at = NDS_EXT_NC_DATA_OFFSET + ((core - NDS_BASE_CORES) * NDS_EXT_NC_STRIDE + counter) * 8;
    else if (counter < NDS_BASE_NC_COUNTERS)
        at = NDS_NC_COUNTERS_OFFSET + (core * NDS_BASE_NC_COUNTERS + counter) * 8;
    else
        at = NDS_EXT_NC_COUNTERS_OFFSET + (core * NDS_EXT_NC_COUNTERS + counter - NDS_BASE_NC_COUNTERS) * 8;
    return __atomic_load_n((const uint64_t *)(slab + at), __ATOMIC_RELAXED);
}

static void roll_up(struct table *t, const unsigned char *slab)
{
    for (unsigned core = 0; core < NDS_MAX_CORES; core++)
        for (unsigned i = 0; i < STANDIN_COUNTERS; i++)
            if (NDS_NC_TOTALLED >> i & 1) {
                t->totals.present[core][i] = counter_of(slab, core, i);
                t->totals.total[core][i] += t->totals.present[core][i];
            }
    t->roll_ups++;
}

static void clear(const struct view *v, unsigned slot)
{
    v->table->unclean |= 1u << slot;
    v->table->slots[slot].tick = atomic_fetch_add(v->tick, 1) + 1;
    v->table->slots[slot].pid = 0;
}

bool table_release(const struct view *v, int32_t pid)
{
    int slot = table_find(v->table, pid);
    if (slot < 0)
        return false;
    roll_up(v->table, v->slabs + slot * NDS_SLAB_SIZE);
    clear(v, slot);
    return true;
}

/* No owner check and no roll-up: after the last close nobody can own a slab. */
void table_last_close(const struct view *v)
{
    for (unsigned s = 0; s < NDS_SLOTS_PER_DEVICE; s++)
        clear(v, s);
    v->table->open = 0;
}

/* ---- attached processes ----------------------------------------------------------------------------------------- */

static struct attached *place_of(struct table *t, int32_t pid)
{
    for (struct attached *a = t->attached; a < t->attached + STANDIN_PROCESSES; a++)
        if (a->pid == pid)
            return a;
    return NULL;
}

int table_attach(struct table *t, int32_t pid, uint64_t started)
{
    struct attached *a = place_of(t, pid);
    if (a) {
        a->opens++;
        return 0;
    }
    a = place_of(t, 0);
    if (!a)
        return -EBUSY;
    *a = (struct attached){pid, 1, started};
    return 0;
}

void table_exit(const struct view *v, struct attached *a)
{
    table_release(v, a->pid);
    *a = (struct attached){0};
}

bool table_flush(const struct view *v, int32_t pid)
{
    struct attached *a = place_of(v->table, pid);
    if (!a) /* it only inherited the descriptor */
        return false;
    if (a->opens > 1)
        a->opens--;
    else
        table_exit(v, a);
    return true;
}
