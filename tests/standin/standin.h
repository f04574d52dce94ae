/* What the parts of the stand-in share: a device's table, the folder everything lives in, and one locked call.
 *
 * table.c has the rules, folder.c the files, the lock and the look at other processes, nodes.c the descriptors;
 * calls.c, exec.c and stat.c are the interposed functions. The layout of a slab comes from csrc/nds_layout.h; nothing else of the product is used, so
 * that the rules are written down a second time.
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "nds_layout.h"

#define STANDIN_PROCESSES 16 /* that a device can have attached */
#define STANDIN_COUNTERS  64 /* counters of a core that a roll-up may touch: the bits of NDS_NC_TOTALLED */
#define STANDIN_SLABS     (NDS_SLOTS_PER_DEVICE * NDS_SLAB_SIZE)

/* ---- the table of a device, in shared memory ------------------------------------------------------------------- */

struct attached {
    int32_t pid;      /* 0: a free place */
    uint32_t opens;   /* opens of this process that no close has counted down yet */
    uint64_t started; /* tells the process from a later one of the same pid */
};

struct slot {
    int32_t pid; /* the owner; 0: free */
    uint32_t pad;
    uint64_t tick; /* of its last release; 0: never used */
};

struct totals {
    uint64_t total[NDS_MAX_CORES][STANDIN_COUNTERS];
    uint64_t present[NDS_MAX_CORES][STANDIN_COUNTERS]; /* what the last roll-up added */
};

struct table {
    struct attached attached[STANDIN_PROCESSES];
    struct slot slots[NDS_SLOTS_PER_DEVICE];
    struct totals totals;
    uint64_t roll_ups;
    uint32_t open;    /* 1: there was an open description when last looked, and no last close since */
    uint32_t unclean; /* bit s: slab s was given back and its bytes are still to be zeroed */
};

/* ---- the rules (table.c): all work on a private copy that the caller commits ----------------------------------- */

struct view {
    struct table *table;
    const unsigned char *slabs;
    _Atomic uint64_t *tick; /* one for all devices */
};

/* The slot of pid, or -ENOENT. */
int table_find(const struct table *t, int32_t pid);
/* The slot for acquire(wanted) by `caller`, or -ENOENT or -ENOMEM. */
int table_acquire(struct table *t, int32_t wanted, int32_t caller);
/* Gives the slab of pid back, rolled up. False when it has none. */
bool table_release(const struct view *v, int32_t pid);
/* One more open of a process: 0 or -EBUSY. */
int table_attach(struct table *t, int32_t pid, uint64_t started);
/* One close(2) by a process. False when that changes nothing. */
bool table_flush(const struct view *v, int32_t pid);
/* The end of an attached process, whatever its open count. */
void table_exit(const struct view *v, struct attached *a);
/* The end of the last open description. */
void table_last_close(const struct view *v);

/* ---- the folder (folder.c) ------------------------------------------------------------------------------------- */

struct state;

struct folder {
    dev_t dev; /* of the file `state`: another one means that the folder was made anew */
    ino_t ino;
    struct state *state;
    unsigned char *slabs[NDS_MAX_DEVICES];
};

/* One call on one device, from lock to unlock. */
struct call {
    struct folder *folder;
    unsigned device;
    struct view view; /* view.table may be changed at will; only a commit makes it so */
    sigset_t signals;
    int error; /* errno as it was */
};

/* The folder as it is now, or NULL where there is none. */
struct folder *folder_now(void);
/* The device whose node this is, or -1. */
int folder_device(const struct folder *f, const struct stat *st);
/* The device whose sysfs files `path` leads to, or -1. */
int folder_sysfs_device(const char *path, struct folder **f);

/* Locks, finishes what a killed process left half done, and reaps the device's dead. */
void call_enter(struct call *c, struct folder *f, unsigned device);
/* Makes the changes to view.table visible, all at once, and does what follows from them. */
void call_commit(struct call *c);
/* Unlocks. errno is as it was before call_enter. */
void call_leave(struct call *c);

/* Marks fd's open description as one of the device, until nothing refers to it any more. False with errno. */
bool description_mark(int fd);
/* Looks whether the last description of the device has gone; if so clears the table, and commits. */
void call_last_close(struct call *c);

/* When the process started; 0 when it has ended, UINT64_MAX where that can't be told. */
uint64_t process_started(int32_t pid);

/* ---- descriptors (nodes.c) --------------------------------------------------------------------------------------- */

/* The device behind fd, when it is an open node; -1 for everything else. */
int node_of(int fd, struct folder **f);
/* The device whose node is there, or -1. */
int node_at(int dir, const char *path);
/* Opened for writing only: attaches nothing, holds nothing open, has none of the calls. */
bool node_is_restricted(int fd);
/* What a close(2) of a descriptor that isn't restricted does, by this process. */
void node_flushed(struct call *c);
/* Calls `found` for each descriptor of this process that is a node. Allocates nothing: a vforked child comes here. */
void node_for_each(void (*found)(int fd, void *context), void *context);

/* ---- interposing ------------------------------------------------------------------------------------------------ */

#define EXPORT __attribute__((visibility("default")))

/* The next definition of a function in the process: what the program would call without us. Looked up at loading, so
 * that a forked child of a program with threads needn't. */
#define NEXT(name) ((__typeof__(&name))next_function(NEXT_##name, #name))
enum next {
    NEXT_openat,
    NEXT_close,
    NEXT_close_range,
    NEXT_dup2,
    NEXT_dup3,
    NEXT_ioctl,
    NEXT_mmap,
    NEXT_execve,
    NEXT_execvpe,
    NEXT_execveat,
    NEXT_fexecve,
    NEXT_fstat,
    NEXT_fstatat,
    NEXT_statx,
    NEXT_FUNCTIONS
};
void *next_function(enum next which, const char *name);

#endif
