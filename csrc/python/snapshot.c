/* Snapshots: copying whole slabs into bytes or an arena, verifying their records, and reads of one record. These are
 * the calls that pause, with the GIL released; a mapping they hold is not unmapped meanwhile. */
#include <stdlib.h>
#include <time.h>

#include "binding.h"

PyTypeObject *Arena_Type;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- one slab of a pass ---- */

/* A pass over so many slabs does not fit the caches: its copies go past them, and leave in them what others need. The
 * price is that records that a reader has not seen whole before are hashed from memory, once. */
#define LARGE_PASS 128

struct shot {
    Mapping *m;
    unsigned char *copy;
    int64_t time_ns;
    int reason; /* 0, or why there is no value to show */
    unsigned torn;
    uint8_t state[NDS_RECORDS];
};

/* Only a reader remembers: a producer's own records are never torn by somebody else. */
static struct nds_last_good *last_of(Mapping *m)
{
    if (!m->last && !nds_writable(&m->map)) {
        m->last = PyMem_Malloc(sizeof *m->last);
        if (m->last)
            m->last->have[0] = m->last->have[1] = 0;
    }
    return m->last;
}

static int header_reason(const struct shot *s)
{
    uint64_t header;
    memcpy(&header, s->copy, sizeof header);
    return (s->m->guard_table || s->m->guard_pid) && header == 0 ? REASON_GONE : 0;
}

static void take(struct shot *s, bool verify, bool large)
{
    Mapping *m = s->m;
    s->torn = 0;
    if (!nds_readable(&m->map)) {
        s->reason = dead_reason(m);
    } else if (m->map.size < NDS_REQUIRED_SIZE) {
        s->reason = REASON_TOO_SHORT;
    } else if ((s->reason = check_guard(m, false)) == 0) {
        if (large)
            nds_copy_out_past_cache(s->copy, m->map.base, NDS_REQUIRED_SIZE);
        else
            nds_copy_out(s->copy, m->map.base, NDS_REQUIRED_SIZE);
        s->time_ns = now_ns();
        /* Whose slab it is, is always checked. Whether that producer lives takes a system call, a third of the copy:
         * a mere copy goes without, as the get of a counter does. */
        s->reason = check_guard(m, verify);
        if (!s->reason)
            s->reason = header_reason(s);
        if (!s->reason && verify)
            s->torn = nds_records_verify(s->copy, s->state, last_of(m));
    }
}

/* One pause for all that mismatched, then a second look. */
static void take_again(struct shot *shots, Py_ssize_t n)
{
    bool any = false;
    for (Py_ssize_t i = 0; i < n; i++)
        if (shots[i].torn) {
            shots[i].m->sleepers++;
            any = true;
        }
    if (!any)
        return;
    Py_BEGIN_ALLOW_THREADS
    nds_pause_us(NDS_RECORD_PAUSE_US);
    Py_END_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < n; i++)
        if (shots[i].torn) {
            struct shot *s = &shots[i];
            if (nds_readable(&s->m->map)) {
                nds_records_verify_again(s->m->map.base, s->copy, s->state, s->m->last);
                s->reason = check_guard(s->m, true);
            } else {
                s->reason = dead_reason(s->m);
            }
            s->m->sleepers--;
        }
}

/* {record number: bytes} of the records that are shown from an earlier read, or None. */
static PyObject *stale_records(const struct shot *s)
{
    PyObject *result = NULL;
    for (unsigned r = 0; r < NDS_RECORDS; r++) {
        if (s->state[r] != NDS_STALE)
            continue;
        if (!result && !(result = PyDict_New()))
            return NULL;
        PyObject *number = PyLong_FromUnsignedLong(r);
        PyObject *bytes = PyBytes_FromStringAndSize((char *)s->m->last->bytes + nds_record_offset(r),
                                                    (Py_ssize_t)nds_kind_size(nds_record_kind(r)));
        if (!number || !bytes || PyDict_SetItem(result, number, bytes) != 0)
            Py_CLEAR(result);
        Py_XDECREF(number);
        Py_XDECREF(bytes);
        if (!result)
            return NULL;
    }
    return result ? result : Py_NewRef(Py_None);
}

/* A tuple of new references; NULL where one of them is. */
static PyObject *tuple_of(PyObject *const *parts, Py_ssize_t n)
{
    PyObject *tuple = PyTuple_New(n);
    bool failed = !tuple;
    for (Py_ssize_t i = 0; i < n; i++) {
        failed |= !parts[i];
        if (tuple)
            PyTuple_SetItem(tuple, i, parts[i]);
        else
            Py_XDECREF(parts[i]);
    }
    if (failed)
        Py_CLEAR(tuple);
    return tuple;
}

/* (time_ns, states or None, stale records or None), behind the bytes where there are any. */
static PyObject *shot_tuple(const struct shot *s, bool verify, PyObject *bytes)
{
    PyObject *parts[] = {
        bytes,
        PyLong_FromLongLong(s->time_ns),
        verify ? PyBytes_FromStringAndSize((const char *)s->state, NDS_RECORDS) : Py_NewRef(Py_None),
        verify ? stale_records(s) : Py_NewRef(Py_None),
    };
    return bytes ? tuple_of(parts, 4) : tuple_of(parts + 1, 3);
}

PyObject *mapping_snapshot(Mapping *m, PyObject *const *args, Py_ssize_t n)
{
    int verify = n == 1 ? PyObject_IsTrue(args[0]) : 1;
    if (n > 1 || verify < 0) {
        if (n > 1)
            PyErr_SetString(PyExc_TypeError, "snapshot takes one argument");
        return NULL;
    }
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, NDS_REQUIRED_SIZE);
    if (!bytes)
        return NULL;
    struct shot s = {.m = m, .copy = (unsigned char *)PyBytes_AsString(bytes)};
    take(&s, verify, false);
    take_again(&s, 1);
    if (s.reason) {
        Py_DECREF(bytes);
        return raise_error(m, s.reason, "");
    }
    return shot_tuple(&s, verify, bytes);
}

PyObject *mapping_read_record(Mapping *m, PyObject *arg)
{
    unsigned record;
    unsigned char bytes[NDS_MODEL_SIZE];
    if (as_index(arg, &record) != 0)
        return NULL;
    if (!nds_readable(&m->map))
        return raise_dead(m);
    if (m->map.size < NDS_REQUIRED_SIZE)
        return raise_error(m, REASON_TOO_SHORT, "");
    if (record >= NDS_RECORDS)
        return raise_error(m, REASON_BAD_INDEX, "no such record");
    m->sleepers++;
    bool used = nds_record_used(m->map.base, record);
    enum nds_state state;
    Py_BEGIN_ALLOW_THREADS
    state = nds_record_read(m->map.base, record, bytes);
    Py_END_ALLOW_THREADS
    m->sleepers--;
    if (!nds_readable(&m->map))
        return raise_dead(m);
    int reason = check_guard(m, true);
    if (reason)
        return raise_error(m, reason, "");
    /* Under the GIL again: the last good copies are shared with snapshots. */
    state = nds_record_settle(last_of(m), record, used, state, bytes);
    if (state == NDS_UNPUBLISHED || state == NDS_TORN)
        return Py_BuildValue("(iO)", (int)state, Py_None);
    return Py_BuildValue("(iy#)", (int)state, (char *)bytes, (Py_ssize_t)nds_kind_size(nds_record_kind(record)));
}

/* ---- many slabs into one arena ---- */

static PyObject *new_arena(PyObject *self, PyObject *arg)
{
    (void)self;
    unsigned slabs;
    if (as_index(arg, &slabs) != 0)
        return NULL;
    if (slabs == 0 || slabs > NDS_MAX_DEVICES * NDS_SLOTS_PER_DEVICE)
        return raise_error(NULL, REASON_BAD_INDEX, "an arena holds from 1 to 1024 slabs");
    Arena *a = PyObject_New(Arena, Arena_Type);
    if (!a)
        return NULL;
    a->slabs = slabs, a->exports = 0, a->busy = false;
    a->base = aligned_alloc(64, (size_t)slabs * NDS_REQUIRED_SIZE);
    if (!a->base) {
        Py_DECREF((PyObject *)a);
        return PyErr_NoMemory();
    }
    memset(a->base, 0, (size_t)slabs * NDS_REQUIRED_SIZE);
    return (PyObject *)a;
}

static void arena_dealloc(Arena *a)
{
    PyTypeObject *type = Py_TYPE((PyObject *)a);
    free(a->base);
    PyObject_Free(a);
    Py_DECREF(type);
}

static int arena_getbuffer(Arena *a, Py_buffer *view, int flags)
{
    if (a->busy) {
        PyErr_SetString(PyExc_BufferError, "a pass is writing into this arena");
        return -1;
    }
    if (PyBuffer_FillInfo(view, (PyObject *)a, a->base, a->slabs * NDS_REQUIRED_SIZE, 1, flags) != 0)
        return -1;
    a->exports++;
    return 0;
}

static void arena_releasebuffer(Arena *a, Py_buffer *view)
{
    (void)view;
    a->exports--;
}

static PyObject *arena_in_use(Arena *a, void *unused)
{
    (void)unused;
    return PyBool_FromLong(a->exports > 0 || a->busy);
}

static PyObject *arena_capacity(Arena *a, void *unused)
{
    (void)unused;
    return PyLong_FromSsize_t(a->slabs);
}

static PyGetSetDef arena_getset[] = {
    {"in_use", (getter)arena_in_use, NULL, "Whether somebody still looks at a pass in it.", NULL},
    {"capacity", (getter)arena_capacity, NULL, "Slabs it has room for.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot arena_slots[] = {
    {Py_tp_dealloc, arena_dealloc},
    {Py_tp_getset, arena_getset},
    {Py_bf_getbuffer, arena_getbuffer},
    {Py_bf_releasebuffer, arena_releasebuffer},
    {Py_tp_doc, "Room for the slabs of one pass; may be filled again once nobody looks at it."},
    {0, NULL},
};

static PyType_Spec arena_spec = {
    "neuron_ds._core.Arena", sizeof(Arena), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, arena_slots,
};

static PyObject *snapshot_many(PyObject *self, PyObject *args)
{
    static const uint64_t good_header = NDS_HEADER_WORD;
    (void)self;
    PyObject *list;
    Arena *arena;
    int verify;
    if (!PyArg_ParseTuple(args, "OO!p:snapshot_many", &list, Arena_Type, &arena, &verify))
        return NULL;
    PyObject *mappings = PySequence_Tuple(list); /* our own references: the list may change while we pause */
    if (!mappings)
        return NULL;
    Py_ssize_t n = PyTuple_Size(mappings);
    struct shot *shots = PyMem_Calloc(n ? (size_t)n : 1, sizeof *shots);
    PyObject *result = NULL;
    if (!shots) {
        PyErr_NoMemory();
        goto done;
    }
    if (n > arena->slabs || arena->exports || arena->busy) {
        PyErr_SetString(PyExc_BufferError, "the arena is too small or still in use");
        goto done;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *m = PyTuple_GetItem(mappings, i);
        if (!PyObject_TypeCheck(m, Mapping_Type)) {
            PyErr_SetString(PyExc_TypeError, "snapshot_many takes Mappings");
            goto done;
        }
        shots[i].m = (Mapping *)m;
        shots[i].copy = arena->base + i * NDS_REQUIRED_SIZE;
    }
    Py_INCREF((PyObject *)arena);
    arena->busy = true;
    for (Py_ssize_t i = 0; i < n; i++)
        take(&shots[i], verify, n >= LARGE_PASS);
    take_again(shots, n);
    arena->busy = false;
    result = PyList_New(n);
    for (Py_ssize_t i = 0; result && i < n; i++) {
        /* An error as a value: one bad slab does not fail a pass. A mere copy with a good header is its time alone:
         * a pass over hundreds of slabs has no use for as many tuples. */
        const struct shot *s = &shots[i];
        bool plain = !s->reason && !verify && memcmp(s->copy, &good_header, sizeof good_header) == 0;
        PyObject *one = s->reason ? make_error(s->m, s->reason, "")
                        : plain   ? PyLong_FromLongLong(s->time_ns)
                                  : shot_tuple(s, verify, NULL);
        if (!one || PyList_SetItem(result, i, one) != 0)
            Py_CLEAR(result);
    }
    Py_DECREF((PyObject *)arena);
done:
    PyMem_Free(shots);
    Py_DECREF(mappings);
    return result;
}

static PyObject *verify(PyObject *self, PyObject *arg)
{
    (void)self;
    Py_buffer view;
    if (PyObject_GetBuffer(arg, &view, PyBUF_SIMPLE) != 0)
        return NULL;
    PyObject *result = NULL;
    uint8_t state[NDS_RECORDS];
    if (view.len < NDS_REQUIRED_SIZE) {
        raise_error(NULL, REASON_TOO_SHORT, "");
    } else {
        nds_records_verify(view.buf, state, NULL);
        result = PyBytes_FromStringAndSize((char *)state, NDS_RECORDS);
    }
    PyBuffer_Release(&view);
    return result;
}

PyMethodDef snapshot_functions[] = {
    {"verify", verify, METH_O, "verify(blob): the state of each record of a private copy, as one byte each."},
    {"arena", new_arena, METH_O, "arena(slabs): an Arena."},
    {"snapshot_many", snapshot_many, METH_VARARGS,
     "snapshot_many(mappings, arena, verify): for each (time_ns, states, stale), time_ns alone, or its error."},
    {NULL, NULL, 0, NULL},
};

int add_snapshot_types(PyObject *module)
{
    Arena_Type = (PyTypeObject *)PyType_FromSpec(&arena_spec);
    return Arena_Type ? PyModule_AddObjectRef(module, "Arena", (PyObject *)Arena_Type) : -1;
}
