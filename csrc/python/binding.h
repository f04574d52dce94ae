/* What the files of the binding share. The binding parses arguments and minds the lifetime of objects; the work
 * is in the C core. Everything here runs under the GIL unless its comment says otherwise. */
#ifndef NDS_BINDING_H
#define NDS_BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "nds_core.h"

/* Python 3.12 and newer hand None out uncounted, as it never dies there. One build of this module serves 3.11 too,
 * whose None is counted, and dies of it: so count always, whichever headers we are built with. */
#undef Py_RETURN_NONE
#define Py_RETURN_NONE return Py_NewRef(Py_None)

/* Reasons, as neuron_ds.errors numbers them; a negative one is -errno. */
enum reason {
    REASON_CLOSED = 1,
    REASON_FORKED = 2,
    REASON_READ_ONLY = 3,
    REASON_BAD_INDEX = 4,
    REASON_TOO_SHORT = 5,
    REASON_GONE = 6
};

typedef struct {
    PyObject_HEAD
    struct nds_lock_file *file; /* NULL once closed */
    PyObject *path;
} LockFile;

typedef struct Mapping {
    PyObject_HEAD
    struct nds_mapping map;
    PyObject *label;            /* (device, pid, slot) for errors, or NULL */
    struct nds_last_good *last; /* a reader's last consistent records, once it verified any */
    unsigned sleepers;          /* calls that hold the mapping with the GIL released */
    /* The guard: while *guard_word has the expected value, and the lock is held, the slab is still its producer's. */
    struct Mapping *guard_table;
    nds_word *guard_word;
    uint64_t guard_value;
    LockFile *guard_lock;
    uint64_t guard_byte;
    /* The same with the kernel driver: the process still owns the slab at this offset. guard_pid 0: none. */
    int guard_fd, guard_pid, guard_pidfd;
    uint64_t guard_offset;
} Mapping;

typedef struct {
    PyObject_HEAD
    unsigned char *base;
    Py_ssize_t slabs;
    Py_ssize_t exports; /* buffers somebody holds */
    bool busy;          /* a pass is writing into it */
} Arena;

extern PyTypeObject *Mapping_Type, *Counter_Type, *Core_Type, *LockFile_Type, *Arena_Type;

int add_mapping_types(PyObject *module);
int add_counter_types(PyObject *module);
int add_lock_types(PyObject *module);
int add_snapshot_types(PyObject *module);
int add_sampler_types(PyObject *module);
int add_tape_types(PyObject *module);
int add_table_lock_types(PyObject *module);
extern PyMethodDef bench_methods[];
extern PyMethodDef mapping_functions[];
extern PyMethodDef lock_functions[];
extern PyMethodDef snapshot_functions[];
extern PyMethodDef rows_functions[];
extern PyMethodDef kernel_functions[];
extern PyMethodDef sampler_functions[];
extern PyMethodDef tape_functions[];
extern PyMethodDef table_lock_functions[];

/* A new exception object of neuron_ds.errors, or NULL with another exception set. */
PyObject *make_error(const Mapping *m, int reason, const char *detail);
/* Sets that exception; returns NULL. */
PyObject *raise_error(const Mapping *m, int reason, const char *detail);
/* Sets the exception of a mapping that failed nds_readable or nds_writable; returns NULL. */
PyObject *raise_dead(const Mapping *m);
int dead_reason(const Mapping *m);

/* The rest of as_u64, out of the hot path's way: what PyLong_AsLongAndOverflow did not give as 0 or more. */
int as_large_u64(PyObject *o, long v, int overflow, uint64_t *out);

/* An int from 0 to 2^64 - 1; returns -1 with an exception set otherwise. */
static inline int as_u64(PyObject *o, uint64_t *out)
{
    int overflow;
    long v = PyLong_AsLongAndOverflow(o, &overflow);
    if (v >= 0) {
        *out = (uint64_t)v;
        return 0;
    }
    return as_large_u64(o, v, overflow, out);
}

/* The same as converters of PyArg_ParseTuple, whose own "K" and "I" silently wrap around. */
int u64_arg(PyObject *o, void *out);
int index_arg(PyObject *o, void *out);

/* An index; values no index can have become UINT_MAX, so that the caller's range check refuses them. */
int as_index(PyObject *o, unsigned *out);

/* 0 while the slab is still its producer's, else a reason. Mappings without a guard always are. */
int check_guard(const Mapping *m, bool lock_too);

PyObject *new_counter(Mapping *m, nds_word *word, int core, unsigned counter);
PyObject *new_core(Mapping *m, unsigned core);

PyObject *mapping_snapshot(Mapping *m, PyObject *const *args, Py_ssize_t n);
PyObject *mapping_guard_kernel(Mapping *m, PyObject *args);
int check_guard_kernel(const Mapping *m);
void drop_guard_kernel(Mapping *m);
PyObject *mapping_read_record(Mapping *m, PyObject *arg);

#endif
