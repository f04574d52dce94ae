/* Tape: one call looks at all slabs and writes down what changed; apply_changes plays it into memory again. A look that
 * finds a slab given away writes nothing of it and says so. */
#include <stdlib.h>

#include "binding.h"
#include "nds_delta.h"

/* What is kept of a slab on the tape. */
struct track {
    uint64_t id;
    Mapping *mapping;
    struct nds_taped *taped;
};

typedef struct {
    PyObject_HEAD
    struct track *tracks; /* by id, ascending */
    size_t count;
    unsigned char *out; /* ticks that nobody has taken yet */
    size_t used, room;
} Tape;

static PyTypeObject *Tape_Type;

/* ---- tracks ---- */

static void drop_track(Tape *t, size_t i)
{
    struct track gone = t->tracks[i];
    t->count--;
    memmove(t->tracks + i, t->tracks + i + 1, (t->count - i) * sizeof *t->tracks);
    free(gone.taped);
    Py_DECREF((PyObject *)gone.mapping);
}

static void tape_dealloc(Tape *t)
{
    PyTypeObject *type = Py_TYPE((PyObject *)t);
    while (t->count)
        drop_track(t, t->count - 1);
    free(t->tracks);
    free(t->out);
    PyObject_Free(t);
    Py_DECREF(type);
}

static PyObject *new_tape(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Tape *t = PyObject_New(Tape, Tape_Type);
    if (t) {
        t->tracks = NULL, t->out = NULL;
        t->count = t->used = t->room = 0;
    }
    return (PyObject *)t;
}

/* add(id, mapping): ids only rise, so that a number names one producer's use of a slab for good. */
static PyObject *tape_add(Tape *t, PyObject *args)
{
    uint64_t id;
    PyObject *mapping;
    if (!PyArg_ParseTuple(args, "O&O!:add", u64_arg, &id, Mapping_Type, &mapping))
        return NULL;
    Mapping *m = (Mapping *)mapping;
    if (m->map.size < NDS_REQUIRED_SIZE)
        return raise_error(m, REASON_TOO_SHORT, "");
    if (id >= UINT64_C(1) << 62 || (t->count && id <= t->tracks[t->count - 1].id))
        return raise_error(m, REASON_BAD_INDEX, "the numbers on a tape only rise");
    struct track *tracks = realloc(t->tracks, (t->count + 1) * sizeof *tracks);
    if (tracks)
        t->tracks = tracks;
    struct nds_taped *taped = tracks ? malloc(sizeof *taped) : NULL;
    if (!taped)
        return PyErr_NoMemory();
    nds_tape_begin(taped);
    t->tracks[t->count++] = (struct track){id, (Mapping *)Py_NewRef(mapping), taped};
    Py_RETURN_NONE;
}

/* The track of an id, -1 where there is none. */
static Py_ssize_t find(const Tape *t, uint64_t id)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->tracks[i].id == id)
            return (Py_ssize_t)i;
    return -1;
}

static PyObject *tape_remove(Tape *t, PyObject *arg)
{
    uint64_t id;
    if (as_u64(arg, &id) != 0)
        return NULL;
    Py_ssize_t i = find(t, id);
    if (i >= 0)
        drop_track(t, (size_t)i);
    return PyBool_FromLong(i >= 0);
}

/* The bytes of a slab as of the last look. */
static PyObject *tape_copy(Tape *t, PyObject *arg)
{
    uint64_t id;
    if (as_u64(arg, &id) != 0)
        return NULL;
    Py_ssize_t i = find(t, id);
    if (i < 0)
        return raise_error(NULL, REASON_BAD_INDEX, "no slab of this number is on the tape");
    return PyBytes_FromStringAndSize((const char *)t->tracks[i].taped->words, NDS_REQUIRED_SIZE);
}

/* ---- looking ---- */

static int reserve(Tape *t, size_t more)
{
    if (t->room - t->used >= more)
        return 0;
    size_t room = (t->used + more) * 2;
    unsigned char *out = realloc(t->out, room);
    if (!out) {
        PyErr_NoMemory();
        return -1;
    }
    t->out = out, t->room = room;
    return 0;
}

/* 0 with the block in place, else why the slab can't be shown. */
static int look_at(Tape *t, struct track *track, uint64_t gap, size_t *size)
{
    const Mapping *m = track->mapping;
    if (!nds_readable(&m->map))
        return dead_reason(m);
    int reason = check_guard(m, false);
    if (!reason) {
        *size = nds_tape_look(track->taped, m->map.base, gap, t->out + t->used);
        reason = check_guard(m, false);
        if (!reason && !track->taped->words[0])
            reason = REASON_GONE; /* zeroed: released, on a driver without generations */
    }
    return reason;
}

/* look(deviation_us, late_us, missed): one tick. Gives the numbers of the slabs that are their producers' no more, which are
 * off the tape then; nothing of them is written. */
static PyObject *tape_look(Tape *t, PyObject *const *args, Py_ssize_t n)
{
    uint64_t late_us, missed;
    if (n != 3) {
        PyErr_SetString(PyExc_TypeError, "look takes deviation_us, late_us and missed");
        return NULL;
    }
    long long deviation = PyLong_AsLongLong(args[0]);
    if ((deviation == -1 && PyErr_Occurred()) || as_u64(args[1], &late_us) != 0 || as_u64(args[2], &missed) != 0)
        return NULL;
    if (reserve(t, 4 * NDS_VARINT_MOST) != 0)
        return NULL;
    size_t start = t->used;
    bool late = late_us || missed;
    uint64_t zigzag = nds_zigzag((uint64_t)deviation);
    if (zigzag >> 63) {
        PyErr_SetString(PyExc_OverflowError, "a deviation has 62 bits");
        return NULL;
    }
    t->used += nds_varint(t->out + t->used, zigzag << 1 | late);
    if (late) {
        t->used += nds_varint(t->out + t->used, late_us);
        t->used += nds_varint(t->out + t->used, missed);
    }
    PyObject *gone = NULL;
    uint64_t last = 0;
    for (size_t i = 0; i < t->count;) {
        size_t size = 0;
        uint64_t id = t->tracks[i].id;
        if (reserve(t, NDS_BLOCK_MOST + 1) != 0)
            goto failed;
        if (look_at(t, &t->tracks[i], id + 1 - last, &size) != 0) {
            PyObject *number = PyLong_FromUnsignedLongLong(id);
            if (!number || (!gone && !(gone = PyList_New(0))) || PyList_Append(gone, number) != 0) {
                Py_XDECREF(number);
                goto failed;
            }
            Py_DECREF(number);
            drop_track(t, i);
            continue;
        }
        if (size) {
            t->used += size;
            last = id + 1;
        }
        i++;
    }
    t->out[t->used++] = 0;
    return gone ? gone : Py_NewRef(Py_None);
failed:
    t->used = start;
    Py_XDECREF(gone);
    return NULL;
}

/* Every slab as of the last look, whole. */
static PyObject *tape_whole(Tape *t, PyObject *unused)
{
    (void)unused;
    unsigned char *out = malloc(t->count * NDS_BLOCK_MOST + 1);
    if (!out)
        return PyErr_NoMemory();
    size_t used = 0;
    uint64_t last = 0;
    for (size_t i = 0; i < t->count; i++) {
        size_t size = nds_tape_whole(t->tracks[i].taped, t->tracks[i].id + 1 - last, out + used);
        if (size) {
            used += size;
            last = t->tracks[i].id + 1;
        }
    }
    out[used++] = 0;
    PyObject *bytes = PyBytes_FromStringAndSize((char *)out, (Py_ssize_t)used);
    free(out);
    return bytes;
}

static PyObject *tape_take(Tape *t, PyObject *unused)
{
    (void)unused;
    PyObject *bytes = PyBytes_FromStringAndSize((char *)t->out, (Py_ssize_t)t->used);
    if (bytes)
        t->used = 0;
    return bytes;
}

static PyObject *tape_torn(Tape *t, void *unused)
{
    (void)unused;
    unsigned long torn = 0;
    for (size_t i = 0; i < t->count; i++)
        torn += t->tracks[i].taped->torn;
    return PyLong_FromUnsignedLong(torn);
}

static PyObject *tape_pending(Tape *t, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(t->used);
}

static PyMethodDef tape_methods[] = {
    {"add", (PyCFunction)tape_add, METH_VARARGS, "add(id, mapping): look at this slab from now on."},
    {"remove", (PyCFunction)tape_remove, METH_O, "remove(id): look at it no more; whether it was there."},
    {"copy", (PyCFunction)tape_copy, METH_O, "copy(id): the bytes of a slab as of the last look."},
    {"look", (PyCFunction)(void (*)(void))tape_look, METH_FASTCALL,
     "look(deviation_us, late_us, missed): one tick; the numbers of slabs that were given away, or None."},
    {"whole", (PyCFunction)tape_whole, METH_NOARGS, "Every slab as of the last look, as bytes."},
    {"take", (PyCFunction)tape_take, METH_NOARGS, "The ticks since the last take, as bytes."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef tape_getset[] = {
    {"torn", (getter)tape_torn, NULL, "Records that were stale or torn at the last look.", NULL},
    {"pending", (getter)tape_pending, NULL, "Bytes that nobody has taken.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot tape_slots[] = {
    {Py_tp_dealloc, tape_dealloc},
    {Py_tp_methods, tape_methods},
    {Py_tp_getset, tape_getset},
    {Py_tp_doc, "Writes down what changes in many slabs."},
    {0, NULL},
};

static PyType_Spec tape_spec = {
    "neuron_ds._core.Tape", sizeof(Tape), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, tape_slots,
};

/* ---- playing ---- */

/* apply_changes(mapping, data, offset, whole): the offset behind them. ValueError where the bytes make no sense. */
static PyObject *apply_changes(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    uint64_t offset;
    if (n != 4 || !PyObject_TypeCheck(args[0], Mapping_Type)) {
        PyErr_SetString(PyExc_TypeError, "apply_changes takes a Mapping, bytes, an offset and whether they are whole");
        return NULL;
    }
    int whole = PyObject_IsTrue(args[3]);
    if (as_u64(args[2], &offset) != 0 || whole < 0)
        return NULL;
    Mapping *m = (Mapping *)args[0];
    if (!nds_writable(&m->map))
        return raise_dead(m);
    Py_buffer view;
    if (PyObject_GetBuffer(args[1], &view, PyBUF_SIMPLE) != 0)
        return NULL;
    size_t at = (size_t)offset, size = (size_t)view.len;
    size_t words = (m->map.size < NDS_REQUIRED_SIZE ? m->map.size : NDS_REQUIRED_SIZE) / 8;
    bool good = at <= size && nds_changes_apply((nds_word *)m->map.base, words, view.buf, size, &at, whole);
    PyBuffer_Release(&view);
    if (good)
        return PyLong_FromSize_t(at);
    PyErr_SetString(PyExc_ValueError, "these are no changes of a slab");
    return NULL;
}

PyMethodDef tape_functions[] = {
    {"tape", new_tape, METH_NOARGS, "An empty Tape."},
    {"apply_changes", (PyCFunction)(void (*)(void))apply_changes, METH_FASTCALL,
     "apply_changes(mapping, data, offset, whole): make the changes at an offset; the offset behind them."},
    {NULL, NULL, 0, NULL},
};

int add_tape_types(PyObject *module)
{
    Tape_Type = (PyTypeObject *)PyType_FromSpec(&tape_spec);
    return Tape_Type ? PyModule_AddObjectRef(module, "Tape", (PyObject *)Tape_Type) : -1;
}
