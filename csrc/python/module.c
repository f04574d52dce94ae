/* The module: its functions without an object, errors, and what it reports of its layout. */
#include <malloc.h>

#include "binding.h"

int as_index(PyObject *o, unsigned *out)
{
    int overflow;
    long v = PyLong_AsLongAndOverflow(o, &overflow);
    if (v == -1 && !overflow && PyErr_Occurred())
        return -1;
    *out = overflow || v < 0 || v >= (long)UINT32_MAX ? UINT32_MAX : (unsigned)v;
    return 0;
}

int as_large_u64(PyObject *o, long v, int overflow, uint64_t *out)
{
    if (overflow > 0) {
        PyObject *number = PyNumber_Index(o);
        *out = number ? PyLong_AsUnsignedLongLong(number) : (uint64_t)-1;
        Py_XDECREF(number);
        return *out == (uint64_t)-1 && PyErr_Occurred() ? -1 : 0;
    }
    if (!overflow && v == -1 && PyErr_Occurred())
        return -1;
    PyErr_SetString(PyExc_OverflowError, "the words of a slab are unsigned: 0 to 2**64 - 1");
    return -1;
}

int u64_arg(PyObject *o, void *out)
{
    return as_u64(o, out) == 0;
}

int index_arg(PyObject *o, void *out)
{
    return as_index(o, out) == 0;
}

PyObject *make_error(const Mapping *m, int reason, const char *detail)
{
    PyObject *errors = PyImport_ImportModule("neuron_ds.errors");
    if (!errors)
        return NULL;
    PyObject *label = m && m->label ? m->label : Py_None;
    PyObject *error = PyObject_CallMethod(errors, "from_core", "isO", reason, detail, label);
    Py_DECREF(errors);
    return error;
}

PyObject *raise_error(const Mapping *m, int reason, const char *detail)
{
    PyObject *error = make_error(m, reason, detail);
    if (error) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

int dead_reason(const Mapping *m)
{
    if (nds_forked(&m->map))
        return REASON_FORKED;
    return nds_readable(&m->map) ? REASON_READ_ONLY : REASON_CLOSED;
}

PyObject *raise_dead(const Mapping *m)
{
    return raise_error(m, dead_reason(m), "");
}

/* ---- hashes and stamps of private bytes ---- */

static PyObject *fnv1a(PyObject *self, PyObject *arg)
{
    (void)self;
    Py_buffer view;
    if (PyObject_GetBuffer(arg, &view, PyBUF_SIMPLE) != 0)
        return NULL;
    uint32_t hash = nds_fnv1a(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(hash);
}

static PyObject *record_hash(PyObject *self, PyObject *arg)
{
    (void)self;
    Py_buffer view;
    if (PyObject_GetBuffer(arg, &view, PyBUF_SIMPLE) != 0)
        return NULL;
    PyObject *result = NULL;
    if (view.len < 4)
        PyErr_SetString(PyExc_ValueError, "a record has at least its hash word");
    else
        result = PyLong_FromUnsignedLong(nds_record_hash(view.buf, (size_t)view.len));
    PyBuffer_Release(&view);
    return result;
}

static PyObject *stamp(PyObject *self, PyObject *args)
{
    (void)self;
    int kind;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "iy*:stamp", &kind, &view))
        return NULL;
    PyObject *result = NULL;
    if (kind < NDS_KIND_MODEL_NODE || kind > NDS_KIND_PROCESS_INFO_EXT)
        PyErr_SetString(PyExc_ValueError, "kinds of records are 0, 1 and 2");
    else if ((size_t)view.len != nds_kind_size((enum nds_kind)kind))
        PyErr_SetString(PyExc_ValueError, "the bytes are not of the record's size");
    else if ((result = PyBytes_FromStringAndSize(view.buf, view.len)) != NULL)
        nds_record_stamp((enum nds_kind)kind, PyBytes_AsString(result));
    PyBuffer_Release(&view);
    return result;
}

/* ---- memory ---- */

/* The C library gives each thread a heap of its own, and what one frees another can't have: some MiB where a thread
 * serves one connection. Under the GIL they would hardly ever wait for each other. */
static PyObject *share_heap(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
#ifdef M_ARENA_MAX
    mallopt(M_ARENA_MAX, 1);
#endif
    Py_RETURN_NONE;
}

/* ---- the layout as compiled ---- */

static PyObject *layout_report(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    static unsigned char blob[8]; /* only its address counts */
    PyObject *nc = PyList_New(0);
    for (unsigned core = 0; nc && core < NDS_MAX_CORES; core++)
        for (unsigned i = 0; i < NDS_NC_COUNTERS; i++) {
            size_t at = (size_t)((unsigned char *)nds_nc_counter(blob, core, i) - blob);
            PyObject *index = PyLong_FromSize_t(at / 8);
            if (!index || PyList_Append(nc, index) != 0)
                Py_CLEAR(nc);
            Py_XDECREF(index);
            if (!nc)
                break;
        }
    if (!nc)
        return NULL;
    size_t nd = (size_t)((unsigned char *)nds_nd_counter(blob, 0) - blob);
    return Py_BuildValue(
        "(nKnnnnnnnnN)", (Py_ssize_t)NDS_REQUIRED_SIZE, (unsigned long long)NDS_HEADER_WORD, (Py_ssize_t)(nd / 8),
        (Py_ssize_t)nds_record_offset(NDS_RECORD_PROCESS_INFO), (Py_ssize_t)NDS_MODEL_BITMAP_OFFSET,
        (Py_ssize_t)nds_record_offset(0), (Py_ssize_t)nds_record_offset(NDS_RECORD_PROCESS_INFO_EXT),
        (Py_ssize_t)nds_kind_size(NDS_KIND_MODEL_NODE), (Py_ssize_t)nds_kind_size(NDS_KIND_PROCESS_INFO),
        (Py_ssize_t)nds_kind_size(NDS_KIND_PROCESS_INFO_EXT), nc);
}

static PyObject *totals_layout(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return Py_BuildValue("(iiii)", NDS_TOTALS_WORDS, NDS_TOTALS_ND, NDS_TOTALS_TALLIES, NDS_TALLY_PAIRS);
}

/* ---- the step hook of kill tests ---- */

static PyObject *step_hook;

static void call_step_hook(const char *name)
{
    PyObject *hook = Py_NewRef(step_hook); /* it may put another in its place */
    PyObject *result = PyObject_CallFunction(hook, "s", name);
    if (!result)
        PyErr_WriteUnraisable(hook);
    Py_XDECREF(result);
    Py_DECREF(hook);
}

static PyObject *set_step_hook(PyObject *self, PyObject *hook)
{
    (void)self;
    PyObject *old = step_hook;
    step_hook = hook == Py_None ? NULL : Py_NewRef(hook);
    nds_step = step_hook ? call_step_hook : NULL;
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"fnv1a", fnv1a, METH_O, "FNV-1a-32 of some bytes."},
    {"record_hash", record_hash, METH_O, "FNV-1a-32 of a record with its hash word taken as zero."},
    {"stamp", stamp, METH_VARARGS, "stamp(kind, record): the record with its hash in place."},
    {"layout_report", layout_report, METH_NOARGS, "Offsets and sizes as compiled."},
    {"totals_layout", totals_layout, METH_NOARGS, "(words, first device counter, first tally, pairs of a tally)."},
    {"share_heap", share_heap, METH_NOARGS, "One heap for all threads that begin from now on."},
    {"set_step_hook", set_step_hook, METH_O, "Call this with the name of each step inside publish (tests)."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "neuron_ds._core", "The C core of neuron_ds.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__core(void)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        /* Record locks don't hold between two parts of one process. */
        PyErr_SetString(PyExc_ImportError, "neuron_ds can be used in the main interpreter only");
        return NULL;
    }
    PyObject *m = PyModule_Create(&module);
    if (!m)
        return NULL;
    if (add_lock_types(m) || add_table_lock_types(m) || add_mapping_types(m) || add_counter_types(m) ||
        add_snapshot_types(m) || add_sampler_types(m) || add_tape_types(m) ||
        PyModule_AddFunctions(m, mapping_functions) || PyModule_AddFunctions(m, lock_functions) ||
        PyModule_AddFunctions(m, snapshot_functions) || PyModule_AddFunctions(m, rows_functions) ||
        PyModule_AddFunctions(m, kernel_functions) || PyModule_AddFunctions(m, sampler_functions) ||
        PyModule_AddFunctions(m, table_lock_functions) || PyModule_AddFunctions(m, tape_functions) ||
        PyModule_AddFunctions(m, bench_methods)) {
        Py_DECREF((PyObject *)m);
        return NULL;
    }
    return m;
}
