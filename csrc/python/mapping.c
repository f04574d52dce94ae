/* Mapping: a piece of shared memory, the handles on it, and the stores that a slot table and a producer need. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "binding.h"

PyTypeObject *Mapping_Type;

static PyObject *map(PyObject *self, PyObject *args)
{
    (void)self;
    int fd, writable;
    uint64_t offset, size;
    PyObject *label;
    if (!PyArg_ParseTuple(args, "iO&O&pO:map", &fd, u64_arg, &offset, u64_arg, &size, &writable, &label))
        return NULL;
    if (size == 0 || size % 8)
        return raise_error(NULL, REASON_BAD_INDEX, "a mapping is a whole number of words");
    Mapping *m = PyObject_New(Mapping, Mapping_Type);
    if (!m)
        return NULL;
    memset((char *)m + sizeof(PyObject), 0, sizeof *m - sizeof(PyObject));
    if (label != Py_None)
        m->label = Py_NewRef(label);
    int failed = nds_map(&m->map, fd, offset, size, writable);
    if (failed) {
        if (failed == -ENODATA)
            raise_error(m, REASON_TOO_SHORT, "the file ends inside what was to be mapped");
        else
            raise_error(m, failed, "mapping shared memory");
        Py_DECREF((PyObject *)m);
        return NULL;
    }
    return (PyObject *)m;
}

static void mapping_dealloc(Mapping *m)
{
    PyTypeObject *type = Py_TYPE((PyObject *)m);
    if (m->map.live)
        nds_mapping_free(&m->map);
    PyMem_Free(m->last);
    drop_guard_kernel(m);
    Py_XDECREF(m->label);
    Py_XDECREF((PyObject *)m->guard_table);
    Py_XDECREF((PyObject *)m->guard_lock);
    PyObject_Free(m);
    Py_DECREF(type);
}

/* Kills the handles, waits for calls that sleep on the mapping with the GIL released, then unmaps. */
static PyObject *mapping_close(Mapping *m, PyObject *unused)
{
    (void)unused;
    nds_mapping_kill(&m->map);
    while (m->sleepers && !nds_forked(&m->map)) {
        Py_BEGIN_ALLOW_THREADS
        usleep(50);
        Py_END_ALLOW_THREADS
    }
    nds_unmap(&m->map);
    if (!m->sleepers)
        drop_guard_kernel(m); /* else it goes with the object: in a forked child a lost thread may count as asleep */
    Py_RETURN_NONE;
}

static PyObject *mapping_kill(Mapping *m, PyObject *unused)
{
    (void)unused;
    nds_mapping_kill(&m->map);
    Py_RETURN_NONE;
}

static PyObject *mapping_drop_pages(Mapping *m, PyObject *unused)
{
    (void)unused;
    nds_drop_pages(&m->map);
    Py_RETURN_NONE;
}

static PyObject *mapping_state(Mapping *m, void *unused)
{
    (void)unused;
    static const char *const name[] = {"forked", "reader", "producer", "closed"};
    return PyUnicode_FromString(name[*m->map.live]);
}

static PyObject *mapping_size(Mapping *m, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(m->map.size);
}

/* ---- words, for the slot table ---- */

static nds_word *word_at(Mapping *m, uint64_t index, uint64_t count)
{
    uint64_t words = m->map.size / 8;
    if (index > words || count > words - index) {
        raise_error(m, REASON_BAD_INDEX, "outside the mapping");
        return NULL;
    }
    return (nds_word *)m->map.base + index;
}

static PyObject *mapping_load(Mapping *m, PyObject *arg)
{
    uint64_t index;
    if (as_u64(arg, &index) != 0)
        return NULL;
    if (!nds_readable(&m->map))
        return raise_dead(m);
    nds_word *w = word_at(m, index, 1);
    return w ? PyLong_FromUnsignedLongLong(nds_load(w)) : NULL;
}

static PyObject *mapping_load_many(Mapping *m, PyObject *args)
{
    uint64_t first, count, stride = 1;
    if (!PyArg_ParseTuple(args, "O&O&|O&:load_many", u64_arg, &first, u64_arg, &count, u64_arg, &stride))
        return NULL;
    if (!nds_readable(&m->map))
        return raise_dead(m);
    if (count == 0)
        return PyTuple_New(0);
    if (count > m->map.size || stride > m->map.size || stride == 0)
        return raise_error(m, REASON_BAD_INDEX, "outside the mapping");
    nds_word *w = word_at(m, first, (count - 1) * stride + 1);
    PyObject *result = w ? PyTuple_New((Py_ssize_t)count) : NULL;
    for (uint64_t i = 0; result && i < count; i++) {
        PyObject *v = PyLong_FromUnsignedLongLong(nds_load(w + i * stride));
        if (!v || PyTuple_SetItem(result, (Py_ssize_t)i, v) != 0)
            Py_CLEAR(result);
    }
    return result;
}

static PyObject *mapping_store(Mapping *m, PyObject *args)
{
    uint64_t index, v;
    if (!PyArg_ParseTuple(args, "O&O&:store", u64_arg, &index, u64_arg, &v))
        return NULL;
    if (!nds_writable(&m->map))
        return raise_dead(m);
    nds_word *w = word_at(m, index, 1);
    if (!w)
        return NULL;
    nds_store(w, v);
    Py_RETURN_NONE;
}

static PyObject *mapping_zero(Mapping *m, PyObject *args)
{
    uint64_t first, count;
    if (!PyArg_ParseTuple(args, "O&O&:zero", u64_arg, &first, u64_arg, &count))
        return NULL;
    if (!nds_writable(&m->map))
        return raise_dead(m);
    nds_word *w = word_at(m, first, count);
    if (!w)
        return NULL;
    nds_zero(w, count * 8);
    Py_RETURN_NONE;
}

static PyObject *mapping_copy(Mapping *m, PyObject *args)
{
    uint64_t first, count;
    if (!PyArg_ParseTuple(args, "O&O&:copy", u64_arg, &first, u64_arg, &count))
        return NULL;
    if (!nds_readable(&m->map))
        return raise_dead(m);
    nds_word *w = word_at(m, first, count);
    if (!w)
        return NULL;
    PyObject *result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * 8));
    if (result)
        nds_copy_out(PyBytes_AsString(result), w, count * 8);
    return result;
}

/* roll_up(source, target, slab) of a mapping with the two copies of a device's totals. */
static PyObject *mapping_roll_up(Mapping *m, PyObject *args)
{
    unsigned source, target;
    Mapping *slab;
    if (!PyArg_ParseTuple(args, "O&O&O!:roll_up", index_arg, &source, index_arg, &target, Mapping_Type, &slab))
        return NULL;
    if (!nds_writable(&m->map))
        return raise_dead(m);
    if (!nds_readable(&slab->map))
        return raise_dead(slab);
    if (source > 1 || target > 1 || source == target || m->map.size < 2 * NDS_TOTALS_WORDS * 8 ||
        slab->map.size < NDS_REQUIRED_SIZE)
        return raise_error(m, REASON_BAD_INDEX, "totals are two copies, 0 and 1, of 2048 words");
    nds_word *words = (nds_word *)m->map.base;
    nds_roll_up(words + target * NDS_TOTALS_WORDS, words + source * NDS_TOTALS_WORDS, slab->map.base);
    Py_RETURN_NONE;
}

/* add_to(totals, first, gauges): adds the blob at a word index to private totals. */
static PyObject *mapping_add_to(Mapping *m, PyObject *args)
{
    Py_buffer totals;
    uint64_t first;
    int gauges;
    if (!PyArg_ParseTuple(args, "w*O&p:add_to", &totals, u64_arg, &first, &gauges))
        return NULL;
    PyObject *result = NULL;
    nds_word *blob = NULL;
    if (!nds_readable(&m->map))
        raise_dead(m);
    else if ((size_t)totals.len != NDS_TOTALS_WORDS * 8 || (uintptr_t)totals.buf % 8)
        raise_error(m, REASON_BAD_INDEX, "totals are 2048 aligned words");
    else
        blob = word_at(m, first, NDS_REQUIRED_SIZE / 8);
    if (blob) {
        nds_totals_add(totals.buf, blob, gauges);
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&totals);
    return result;
}

/* ---- a slab ---- */

/* The blob of an open mapping, or NULL with an exception set. */
static void *blob_of(Mapping *m, bool write)
{
    if (write ? !nds_writable(&m->map) : !nds_readable(&m->map)) {
        raise_dead(m);
        return NULL;
    }
    if (m->map.size < NDS_REQUIRED_SIZE) {
        raise_error(m, REASON_TOO_SHORT, "");
        return NULL;
    }
    return m->map.base;
}

static PyObject *mapping_header(Mapping *m, PyObject *unused)
{
    (void)unused;
    void *blob = blob_of(m, false);
    return blob ? PyLong_FromUnsignedLongLong(nds_load(blob)) : NULL;
}

static PyObject *mapping_stamp_header(Mapping *m, PyObject *unused)
{
    (void)unused;
    void *blob = blob_of(m, true);
    if (!blob)
        return NULL;
    nds_store(blob, NDS_HEADER_WORD);
    Py_RETURN_NONE;
}

static PyObject *mapping_nd(Mapping *m, PyObject *arg)
{
    unsigned counter;
    if (as_index(arg, &counter) != 0)
        return NULL;
    void *blob = blob_of(m, false);
    if (!blob)
        return NULL;
    nds_word *w = nds_nd_counter(blob, counter);
    return w ? new_counter(m, w, -1, counter) : raise_error(m, REASON_BAD_INDEX, "device counters are 0 to 30");
}

static PyObject *mapping_nc(Mapping *m, PyObject *const *args, Py_ssize_t n)
{
    unsigned core, counter;
    if (n != 2) {
        PyErr_SetString(PyExc_TypeError, "nc takes a core and a counter");
        return NULL;
    }
    if (as_index(args[0], &core) != 0 || as_index(args[1], &counter) != 0)
        return NULL;
    void *blob = blob_of(m, false);
    if (!blob)
        return NULL;
    nds_word *w = nds_nc_counter(blob, core, counter);
    return w ? new_counter(m, w, (int)core, counter)
             : raise_error(m, REASON_BAD_INDEX, "cores are 0 to 15 and their counters 0 to 94");
}

static PyObject *mapping_core(Mapping *m, PyObject *arg)
{
    unsigned core;
    if (as_index(arg, &core) != 0 || !blob_of(m, false))
        return NULL;
    return core < NDS_MAX_CORES ? new_core(m, core) : raise_error(m, REASON_BAD_INDEX, "cores are 0 to 15");
}

static PyObject *mapping_publish(Mapping *m, PyObject *args)
{
    unsigned record;
    Py_buffer view;
    unsigned char bytes[NDS_MODEL_SIZE];
    if (!PyArg_ParseTuple(args, "O&y*:publish", index_arg, &record, &view))
        return NULL;
    size_t n = (size_t)view.len;
    bool fits = record < NDS_RECORDS && n == nds_kind_size(nds_record_kind(record));
    if (fits)
        memcpy(bytes, view.buf, n);
    PyBuffer_Release(&view);
    if (!fits)
        return raise_error(m, REASON_BAD_INDEX, "no such record, or not its size");
    void *blob = blob_of(m, true);
    if (!blob)
        return NULL;
    nds_record_stamp(nds_record_kind(record), bytes);
    nds_record_publish(blob, record, bytes);
    return PyBytes_FromStringAndSize((char *)bytes, (Py_ssize_t)n);
}

static PyObject *mapping_zero_record(Mapping *m, PyObject *arg)
{
    unsigned record;
    if (as_index(arg, &record) != 0)
        return NULL;
    void *blob = blob_of(m, true);
    if (!blob)
        return NULL;
    if (record >= NDS_RECORDS)
        return raise_error(m, REASON_BAD_INDEX, "no such record");
    nds_record_zero(blob, record);
    Py_RETURN_NONE;
}

static nds_word *bitmap_of(Mapping *m, bool write)
{
    unsigned char *blob = blob_of(m, write);
    return blob ? (nds_word *)(blob + NDS_MODEL_BITMAP_OFFSET) : NULL;
}

static PyObject *mapping_bitmap(Mapping *m, PyObject *unused)
{
    (void)unused;
    nds_word *w = bitmap_of(m, false);
    return w ? PyLong_FromUnsignedLongLong(nds_load(w)) : NULL;
}

static PyObject *bitmap_change(Mapping *m, PyObject *arg, bool set)
{
    unsigned slot;
    if (as_index(arg, &slot) != 0)
        return NULL;
    nds_word *w = bitmap_of(m, true);
    if (!w)
        return NULL;
    if (slot >= NDS_MAX_MODELS)
        return raise_error(m, REASON_BAD_INDEX, "model slots are 0 to 63");
    uint64_t bit = UINT64_C(1) << slot;
    if (set)
        nds_or(w, bit);
    else
        nds_and(w, ~bit);
    Py_RETURN_NONE;
}

static PyObject *mapping_bitmap_set(Mapping *m, PyObject *arg)
{
    return bitmap_change(m, arg, true);
}

static PyObject *mapping_bitmap_clear(Mapping *m, PyObject *arg)
{
    return bitmap_change(m, arg, false);
}

/* ---- the guard of a reader ---- */

static PyObject *mapping_guard(Mapping *m, PyObject *args)
{
    PyObject *table, *lock;
    uint64_t index, value, byte;
    if (!PyArg_ParseTuple(args, "O!O&O&OO&:guard", Mapping_Type, &table, u64_arg, &index, u64_arg, &value, &lock,
                          u64_arg, &byte))
        return NULL;
    if (lock != Py_None && !PyObject_TypeCheck(lock, LockFile_Type)) {
        PyErr_SetString(PyExc_TypeError, "the lock is a LockFile or None");
        return NULL;
    }
    Mapping *t = (Mapping *)table;
    if (!nds_readable(&t->map))
        return raise_dead(t);
    nds_word *w = word_at(t, index, 1);
    if (!w)
        return NULL;
    Py_INCREF(table);
    Py_XDECREF((PyObject *)m->guard_table);
    m->guard_table = t, m->guard_word = w, m->guard_value = value, m->guard_byte = byte;
    Py_XDECREF((PyObject *)m->guard_lock);
    m->guard_lock = lock == Py_None ? NULL : (LockFile *)Py_NewRef(lock);
    Py_RETURN_NONE;
}

int check_guard(const Mapping *m, bool lock_too)
{
    if (m->guard_pid)
        return check_guard_kernel(m);
    if (!m->guard_table)
        return 0;
    if (!nds_readable(&m->guard_table->map))
        return dead_reason(m->guard_table);
    if (nds_load(m->guard_word) != m->guard_value)
        return REASON_GONE;
    if (lock_too && m->guard_lock && m->guard_lock->file) {
        bool held;
        int pid, failed = nds_lock_holder(m->guard_lock->file, m->guard_byte, &held, &pid);
        if (failed)
            return failed;
        if (!held)
            return REASON_GONE;
    }
    return 0;
}

static PyObject *mapping_check(Mapping *m, PyObject *unused)
{
    (void)unused;
    if (!nds_readable(&m->map))
        return raise_dead(m);
    int reason = check_guard(m, true);
    if (reason)
        return raise_error(m, reason, "");
    Py_RETURN_NONE;
}

static PyMethodDef mapping_methods[] = {
    {"close", (PyCFunction)mapping_close, METH_NOARGS, "Kill every handle and unmap."},
    {"kill", (PyCFunction)mapping_kill, METH_NOARGS, "Kill every handle, keep the mapping."},
    {"drop_pages", (PyCFunction)mapping_drop_pages, METH_NOARGS, "Give its pages back until the next touch."},
    {"load", (PyCFunction)mapping_load, METH_O, "One word (acquire)."},
    {"load_many", (PyCFunction)mapping_load_many, METH_VARARGS, "load_many(first, count, stride=1): words."},
    {"store", (PyCFunction)mapping_store, METH_VARARGS, "store(index, value): one word (release)."},
    {"zero", (PyCFunction)mapping_zero, METH_VARARGS, "zero(first, count): words, in order (release)."},
    {"roll_up", (PyCFunction)mapping_roll_up, METH_VARARGS, "roll_up(source, target, slab): totals of a device."},
    {"add_to", (PyCFunction)mapping_add_to, METH_VARARGS, "add_to(totals, first, gauges): a blob to private totals."},
    {"copy", (PyCFunction)mapping_copy, METH_VARARGS, "copy(first, count): words as bytes, by atomic loads."},
    {"header", (PyCFunction)mapping_header, METH_NOARGS, "The header word."},
    {"stamp_header", (PyCFunction)mapping_stamp_header, METH_NOARGS, "Store the header word."},
    {"nd", (PyCFunction)mapping_nd, METH_O, "A counter of the device."},
    {"nc", (PyCFunction)(void (*)(void))mapping_nc, METH_FASTCALL, "nc(core, counter): a counter of a core."},
    {"core", (PyCFunction)mapping_core, METH_O, "All counters of a core."},
    {"publish", (PyCFunction)mapping_publish, METH_VARARGS, "publish(record, bytes): stamp and store a record."},
    {"zero_record", (PyCFunction)mapping_zero_record, METH_O, "Zero a record."},
    {"read_record", (PyCFunction)mapping_read_record, METH_O, "(state, bytes or None) of one record; may pause."},
    {"bitmap", (PyCFunction)mapping_bitmap, METH_NOARGS, "The model bitmap."},
    {"bitmap_set", (PyCFunction)mapping_bitmap_set, METH_O, "Set the bit of a model slot."},
    {"bitmap_clear", (PyCFunction)mapping_bitmap_clear, METH_O, "Clear the bit of a model slot."},
    {"guard", (PyCFunction)mapping_guard, METH_VARARGS, "guard(table, word, value, lock_file or None, byte)."},
    {"guard_kernel", (PyCFunction)mapping_guard_kernel, METH_VARARGS, "guard_kernel(fd, pid, offset, pidfd)."},
    {"check", (PyCFunction)mapping_check, METH_NOARGS, "Raise unless the slab is still its producer's."},
    {"snapshot", (PyCFunction)(void (*)(void))mapping_snapshot, METH_FASTCALL,
     "snapshot(verify): (bytes, time_ns, states or None, stale records or None)."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef mapping_getset[] = {
    {"state", (getter)mapping_state, NULL, "'producer', 'reader', 'closed' or 'forked'.", NULL},
    {"size", (getter)mapping_size, NULL, "Bytes mapped.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot mapping_slots[] = {
    {Py_tp_dealloc, mapping_dealloc},
    {Py_tp_methods, mapping_methods},
    {Py_tp_getset, mapping_getset},
    {Py_tp_doc, "A piece of shared memory and the only way to touch it."},
    {0, NULL},
};

static PyType_Spec mapping_spec = {
    "neuron_ds._core.Mapping",
    sizeof(Mapping),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    mapping_slots,
};

PyMethodDef mapping_functions[] = {
    {"map", map, METH_VARARGS, "map(fd, offset, size, writable, label): a Mapping; fd -1 is private to the process."},
    {NULL, NULL, 0, NULL},
};

int add_mapping_types(PyObject *module)
{
    Mapping_Type = (PyTypeObject *)PyType_FromSpec(&mapping_spec);
    return Mapping_Type ? PyModule_AddObjectRef(module, "Mapping", (PyObject *)Mapping_Type) : -1;
}
