/* The kernel driver's ioctls as functions, and the guard of a reader that maps one of its slabs. */
#include <errno.h>
#include <unistd.h>

#include "binding.h"
#include "nds_kernel.h"

static PyObject *failure(int failed, const char *what)
{
    return raise_error(NULL, failed, what);
}

static PyObject *kernel_acquire(PyObject *self, PyObject *args)
{
    (void)self;
    int fd, pid;
    uint64_t offset;
    uint32_t size;
    if (!PyArg_ParseTuple(args, "ii:kernel_acquire", &fd, &pid))
        return NULL;
    int failed = nds_kernel_acquire(fd, pid, &offset, &size);
    if (failed)
        return failure(failed, "acquire");
    return Py_BuildValue("(KI)", (unsigned long long)offset, (unsigned)size);
}

static PyObject *kernel_release(PyObject *self, PyObject *args)
{
    (void)self;
    int fd, pid;
    if (!PyArg_ParseTuple(args, "ii:kernel_release", &fd, &pid))
        return NULL;
    int failed = nds_kernel_release(fd, pid);
    if (failed)
        return failure(failed, "release");
    Py_RETURN_NONE;
}

/* More processes than any driver lets attach to a device. */
#define CAPACITY 128

static PyObject *kernel_apps(PyObject *self, PyObject *arg)
{
    (void)self;
    int fd = (int)PyLong_AsLong(arg);
    if (fd == -1 && PyErr_Occurred())
        return NULL;
    struct nds_ioctl_apps *apps = PyMem_Malloc(sizeof *apps + CAPACITY * sizeof apps->app[0]);
    if (!apps)
        return PyErr_NoMemory();
    int n = nds_kernel_apps(fd, apps, CAPACITY, NDS_APPS_ALL);
    PyObject *list = n < 0 ? failure(n, "list of processes") : PyList_New(n);
    for (int i = 0; list && i < n; i++) {
        const struct nds_ioctl_app *a = &apps->app[i];
        PyObject *one = Py_BuildValue("(iIKK)", (int)a->pid, (unsigned)a->nc_lock_map,
                                      (unsigned long long)a->host_memory, (unsigned long long)a->device_memory);
        if (!one || PyList_SetItem(list, i, one) != 0)
            Py_CLEAR(list);
    }
    PyMem_Free(apps);
    return list;
}

static PyObject *kernel_abi(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return Py_BuildValue("(kkknnn)", (unsigned long)NDS_IOCTL_ACQUIRE, (unsigned long)NDS_IOCTL_RELEASE,
                         (unsigned long)NDS_IOCTL_ALL_APPS_INFO, (Py_ssize_t)sizeof(struct nds_ioctl_slab),
                         (Py_ssize_t)offsetof(struct nds_ioctl_apps, app), (Py_ssize_t)sizeof(struct nds_ioctl_app));
}

PyObject *mapping_guard_kernel(Mapping *m, PyObject *args)
{
    int fd, pid, pidfd;
    uint64_t offset;
    if (!PyArg_ParseTuple(args, "iiO&i:guard_kernel", &fd, &pid, u64_arg, &offset, &pidfd))
        return NULL;
    if (m->guard_pid) {
        PyErr_SetString(PyExc_ValueError, "the mapping has a guard already");
        return NULL;
    }
    m->guard_fd = fd, m->guard_pid = pid, m->guard_offset = offset, m->guard_pidfd = pidfd;
    Py_RETURN_NONE;
}

int check_guard_kernel(const Mapping *m)
{
    int failed = nds_kernel_check(m->guard_fd, m->guard_pid, m->guard_offset, m->guard_pidfd);
    return failed == -ESRCH ? REASON_GONE : failed;
}

void drop_guard_kernel(Mapping *m)
{
    /* In a forked child too: the child has its own copy of the pidfd. */
    if (m->guard_pid && m->guard_pidfd >= 0)
        close(m->guard_pidfd);
    m->guard_pidfd = -1;
}

PyMethodDef kernel_functions[] = {
    {"kernel_acquire", kernel_acquire, METH_VARARGS, "kernel_acquire(fd, pid): (offset, size) to map."},
    {"kernel_release", kernel_release, METH_VARARGS, "kernel_release(fd, pid)."},
    {"kernel_apps", kernel_apps, METH_O, "kernel_apps(fd): (pid, nc_lock_map, host bytes, device bytes) of each."},
    {"kernel_abi", kernel_abi, METH_NOARGS, "Numbers of acquire, release, apps; sizes of slab, list head, entry."},
    {NULL, NULL, 0, NULL},
};
