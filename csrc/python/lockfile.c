/* LockFile: record locks on the bytes of a file, through the process's one descriptor of it. */
#include <errno.h>

#include "binding.h"

PyTypeObject *LockFile_Type;

static PyObject *open_lock_file(PyObject *self, PyObject *args)
{
    (void)self;
    int dir;
    PyObject *name;
    if (!PyArg_ParseTuple(args, "iO&:open_lock_file", &dir, PyUnicode_FSConverter, &name))
        return NULL;
    struct nds_lock_file *file;
    int failed = nds_lock_file_open(dir, PyBytes_AsString(name), &file);
    if (failed) {
        raise_error(NULL, failed, PyBytes_AsString(name));
        Py_DECREF(name);
        return NULL;
    }
    LockFile *f = PyObject_New(LockFile, LockFile_Type);
    if (!f) {
        nds_lock_file_close(file);
        Py_DECREF(name);
        return NULL;
    }
    f->file = file;
    f->path = name;
    return (PyObject *)f;
}

static PyObject *lock_close(LockFile *f, PyObject *unused)
{
    (void)unused;
    if (f->file)
        nds_lock_file_close(f->file);
    f->file = NULL;
    Py_RETURN_NONE;
}

static void lock_dealloc(LockFile *f)
{
    PyTypeObject *type = Py_TYPE((PyObject *)f);
    if (f->file)
        nds_lock_file_close(f->file);
    Py_XDECREF(f->path);
    PyObject_Free(f);
    Py_DECREF(type);
}

static PyObject *failure(LockFile *f, int failed)
{
    return raise_error(NULL, failed, PyBytes_AsString(f->path));
}

static bool byte_of(LockFile *f, PyObject *arg, uint64_t *byte)
{
    if (as_u64(arg, byte) != 0)
        return false;
    if (!f->file)
        raise_error(NULL, REASON_CLOSED, "lock file");
    return f->file != NULL;
}

static PyObject *lock_take(LockFile *f, PyObject *arg)
{
    uint64_t byte;
    if (!byte_of(f, arg, &byte))
        return NULL;
    int failed = nds_lock_take(f->file, byte);
    if (failed && failed != -EAGAIN)
        return failure(f, failed);
    return PyBool_FromLong(!failed);
}

static PyObject *lock_drop(LockFile *f, PyObject *arg)
{
    uint64_t byte;
    if (!byte_of(f, arg, &byte))
        return NULL;
    int failed = nds_lock_drop(f->file, byte);
    if (failed)
        return failure(f, failed);
    Py_RETURN_NONE;
}

static PyObject *lock_holder(LockFile *f, PyObject *arg)
{
    uint64_t byte;
    bool held;
    int pid;
    if (!byte_of(f, arg, &byte))
        return NULL;
    int failed = nds_lock_holder(f->file, byte, &held, &pid);
    if (failed)
        return failure(f, failed);
    if (!held)
        Py_RETURN_NONE;
    return PyLong_FromLong(pid);
}

static PyObject *lock_writable(LockFile *f, void *unused)
{
    (void)unused;
    return PyBool_FromLong(f->file && nds_lock_file_writable(f->file));
}

static PyObject *lock_intact(LockFile *f, void *unused)
{
    (void)unused;
    return PyBool_FromLong(f->file && nds_lock_file_intact(f->file));
}

static PyMethodDef lock_methods[] = {
    {"take", (PyCFunction)lock_take, METH_O, "Lock a byte without waiting; False when another process has it."},
    {"drop", (PyCFunction)lock_drop, METH_O, "Unlock a byte."},
    {"holder", (PyCFunction)lock_holder, METH_O, "Pid of the holder, 0 in another pid namespace, None if free."},
    {"close", (PyCFunction)lock_close, METH_NOARGS, "Give the descriptor up, unless others need it."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef lock_getset[] = {
    {"writable", (getter)lock_writable, NULL, "Whether locks can be taken, not only seen.", NULL},
    {"intact", (getter)lock_intact, NULL, "False once the descriptor was closed behind our back.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot lock_slots[] = {
    {Py_tp_dealloc, lock_dealloc},
    {Py_tp_methods, lock_methods},
    {Py_tp_getset, lock_getset},
    {Py_tp_doc, "Record locks on one file."},
    {0, NULL},
};

static PyType_Spec lock_spec = {
    "neuron_ds._core.LockFile", sizeof(LockFile), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, lock_slots,
};

static PyObject *process_epoch(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromUnsignedLongLong(nds_process_epoch());
}

PyMethodDef lock_functions[] = {
    {"open_lock_file", open_lock_file, METH_VARARGS, "open_lock_file(dir_fd, name): a LockFile."},
    {"process_epoch", process_epoch, METH_NOARGS, "A number that a forked child does not share with its parent."},
    {NULL, NULL, 0, NULL},
};

int add_lock_types(PyObject *module)
{
    LockFile_Type = (PyTypeObject *)PyType_FromSpec(&lock_spec);
    return LockFile_Type ? PyModule_AddObjectRef(module, "LockFile", (PyObject *)LockFile_Type) : -1;
}
