/* Rows: the counters of the cores that a private copy of a slab shows as used, as tuples of ints. What is as it was an
 * earlier time is handed out again, so that who keeps many looks keeps what changed. */
#include "binding.h"

/* The first `count` counters of a core. */
static void row_of(const unsigned char *blob, unsigned core, unsigned count, uint64_t row[NDS_NC_COUNTERS])
{
    unsigned base = count < NDS_BASE_NC_COUNTERS ? count : NDS_BASE_NC_COUNTERS;
    memcpy(row, nds_nc_counter((void *)blob, core, 0), base * sizeof *row);
    if (count > base)
        memcpy(row + base, nds_nc_counter((void *)blob, core, base), (count - base) * sizeof *row);
}

static bool is_zero(const uint64_t *row, unsigned count)
{
    uint64_t any = 0;
    for (unsigned i = 0; i < count; i++)
        any |= row[i];
    return any == 0;
}

/* Whether this is a tuple of these counters. Only plain ints are looked at, so that no code of others runs meanwhile. */
static bool holds(PyObject *tuple, const uint64_t *row, unsigned count)
{
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != (Py_ssize_t)count)
        return false;
    for (unsigned i = 0; i < count; i++) {
        PyObject *item = PyTuple_GetItem(tuple, (Py_ssize_t)i);
        uint64_t value;
        if (!PyLong_CheckExact(item))
            return false;
        if (as_u64(item, &value) != 0) {
            PyErr_Clear(); /* no counter has such a value */
            return false;
        }
        if (value != row[i])
            return false;
    }
    return true;
}

static PyObject *new_row(const uint64_t *row, unsigned count)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    for (unsigned i = 0; tuple && i < count; i++) {
        PyObject *value = PyLong_FromUnsignedLongLong(row[i]);
        if (!value || PyTuple_SetItem(tuple, (Py_ssize_t)i, value) != 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* Adds a core's row to `rows`, the one of before if it holds the same. 1 if it does, 0 if not, -1 on an error. */
static int add_row(PyObject *rows, PyObject *before, unsigned core, const uint64_t *row, unsigned count)
{
    PyObject *key = PyLong_FromUnsignedLong(core), *old, *now = NULL;
    int same = -1;
    if (key && ((old = PyDict_GetItemWithError(before, key)) || !PyErr_Occurred())) {
        same = old && holds(old, row, count);
        now = same ? Py_NewRef(old) : new_row(row, count);
        if (!now || PyDict_SetItem(rows, key, now) != 0)
            same = -1;
    }
    Py_XDECREF(now);
    Py_XDECREF(key);
    return same;
}

static PyObject *used_rows(PyObject *self, PyObject *args)
{
    (void)self;
    Py_buffer view;
    PyObject *before;
    unsigned count;
    if (!PyArg_ParseTuple(args, "y*O&O!:used_rows", &view, index_arg, &count, &PyDict_Type, &before))
        return NULL;
    PyObject *rows = NULL;
    if (view.len < NDS_REQUIRED_SIZE)
        raise_error(NULL, REASON_TOO_SHORT, "");
    else if (count > NDS_NC_COUNTERS)
        raise_error(NULL, REASON_BAD_INDEX, "no core has so many counters");
    else
        rows = PyDict_New();
    bool all_same = true;
    for (unsigned core = 0; rows && core < NDS_MAX_CORES; core++) {
        uint64_t row[NDS_NC_COUNTERS];
        row_of(view.buf, core, count, row);
        if (is_zero(row, count))
            continue;
        int same = add_row(rows, before, core, row, count);
        all_same &= same == 1;
        if (same < 0)
            Py_CLEAR(rows);
    }
    PyBuffer_Release(&view);
    if (rows && all_same && PyDict_Size(rows) == PyDict_Size(before)) {
        Py_DECREF(rows);
        return Py_NewRef(before);
    }
    return rows;
}

PyMethodDef rows_functions[] = {
    {"used_rows", used_rows, METH_VARARGS,
     "used_rows(blob, count, before): {core: its first counters} where any is not zero, or before if all are as "
     "there."},
    {NULL, NULL, 0, NULL},
};
