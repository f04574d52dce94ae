/* TableLock: the table lock of a device as a context manager, a mutex of this process and a record lock in one.
 *
 * It is in C so that nothing can come between taking and guarding: Python runs signal handlers behind any call of
 * Python code, and an exception there would leave a lock of Python's taken for good. */
#include <errno.h>
#include <time.h>

#include "binding.h"

/* Several times what a holder needs: were it shorter, those who wait would keep the holder from going on. */
#define PAUSE_US 500

typedef struct {
    PyObject_HEAD
    LockFile *file;
    uint64_t byte;
    double wait_s;
    unsigned long owner; /* the thread that is inside, 0: none; guarded by the GIL */
    unsigned depth;      /* how often it has entered */
} TableLock;

static PyTypeObject *TableLock_Type;

static PyObject *new_table_lock(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *file;
    uint64_t byte;
    if (!PyArg_ParseTuple(args, "O!O&:table_lock", LockFile_Type, &file, u64_arg, &byte))
        return NULL;
    TableLock *l = PyObject_New(TableLock, TableLock_Type);
    if (!l)
        return NULL;
    l->file = (LockFile *)Py_NewRef(file);
    l->byte = byte, l->wait_s = 0, l->owner = 0, l->depth = 0;
    return (PyObject *)l;
}

static void table_lock_dealloc(TableLock *l)
{
    PyTypeObject *type = Py_TYPE((PyObject *)l);
    Py_DECREF((PyObject *)l->file);
    PyObject_Free(l);
    Py_DECREF(type);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* 1: go on waiting, 0: the time is up, -1: a signal handler raised. */
static int wait_a_little(double deadline)
{
    if (now_s() > deadline)
        return 0;
    Py_BEGIN_ALLOW_THREADS
    nds_pause_us(PAUSE_US);
    Py_END_ALLOW_THREADS
    return PyErr_CheckSignals() == 0 ? 1 : -1;
}

static PyObject *result_of(int waited)
{
    return waited < 0 ? NULL : Py_NewRef(Py_False);
}

/* True: inside. False: not to be had in time. None: this thread is inside already. */
static PyObject *table_lock_enter(TableLock *l, PyObject *unused)
{
    (void)unused;
    unsigned long me = PyThread_get_thread_ident();
    double deadline = now_s() + l->wait_s;
    int waited;
    if (l->owner == me) {
        l->depth++;
        return Py_NewRef(Py_None);
    }
    while (l->owner)
        if ((waited = wait_a_little(deadline)) <= 0)
            return result_of(waited);
    l->owner = me;
    for (;;) {
        int failed = l->file->file ? nds_lock_take(l->file->file, l->byte) : -EBADF;
        if (!failed) {
            l->depth = 1;
            return Py_NewRef(Py_True);
        }
        waited = failed == -EAGAIN ? wait_a_little(deadline) : -1;
        if (waited <= 0) {
            l->owner = 0;
            return failed == -EAGAIN ? result_of(waited) : raise_error(NULL, failed, "the table lock");
        }
    }
}

static PyObject *table_lock_exit(TableLock *l, PyObject *unused)
{
    (void)unused;
    if (l->owner == PyThread_get_thread_ident() && --l->depth == 0) {
        l->owner = 0;
        if (l->file->file)
            nds_lock_drop(l->file->file, l->byte);
    }
    Py_RETURN_NONE;
}

static PyObject *get_wait(TableLock *l, void *unused)
{
    (void)unused;
    return PyFloat_FromDouble(l->wait_s);
}

static int set_wait(TableLock *l, PyObject *value, void *unused)
{
    (void)unused;
    double seconds = value ? PyFloat_AsDouble(value) : -1;
    if (seconds < 0) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "a wait is 0 seconds or more");
        return -1;
    }
    l->wait_s = seconds;
    return 0;
}

static PyMethodDef table_lock_methods[] = {
    {"__enter__", (PyCFunction)table_lock_enter, METH_NOARGS, "True: inside; False: not in time; None: nested."},
    {"__exit__", (PyCFunction)table_lock_exit, METH_VARARGS, "Leave, if inside."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef table_lock_getset[] = {
    {"wait_s", (getter)get_wait, (setter)set_wait, "How long to wait at most, in seconds.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot table_lock_slots[] = {
    {Py_tp_dealloc, table_lock_dealloc},
    {Py_tp_methods, table_lock_methods},
    {Py_tp_getset, table_lock_getset},
    {Py_tp_doc, "A lock between threads and processes that an interrupt cannot leave taken."},
    {0, NULL},
};

static PyType_Spec table_lock_spec = {
    "neuron_ds._core.TableLock",
    sizeof(TableLock),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    table_lock_slots,
};

PyMethodDef table_lock_functions[] = {
    {"table_lock", new_table_lock, METH_VARARGS, "table_lock(lock_file, byte): a TableLock."},
    {NULL, NULL, 0, NULL},
};

int add_table_lock_types(PyObject *module)
{
    TableLock_Type = (PyTypeObject *)PyType_FromSpec(&table_lock_spec);
    return TableLock_Type ? PyModule_AddObjectRef(module, "TableLock", (PyObject *)TableLock_Type) : -1;
}
