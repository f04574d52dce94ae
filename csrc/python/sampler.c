/* Sampler: one call looks at all slabs. A look asks nobody whose a slab is: whoever takes the samples must find out that
 * it still is its producer's, which it then was at every look before. */
#include <stdlib.h>

#include "binding.h"
#include "nds_sampler.h"

typedef struct {
    PyObject_HEAD
    PyObject *mappings; /* a tuple of Mapping */
    struct nds_sampled *slabs;
    unsigned *cores;
    Py_ssize_t count;
} Sampler;

static PyTypeObject *Sampler_Type;

static void sampler_dealloc(Sampler *s)
{
    PyTypeObject *type = Py_TYPE((PyObject *)s);
    for (Py_ssize_t i = 0; s->slabs && i < s->count; i++)
        free(s->slabs[i].kept);
    PyMem_Free(s->slabs);
    PyMem_Free(s->cores);
    Py_XDECREF(s->mappings);
    PyObject_Free(s);
    Py_DECREF(type);
}

/* sampler(mappings, cores): how many cores of each slab to look at. */
static PyObject *new_sampler(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *mappings, *cores;
    if (!PyArg_ParseTuple(args, "O!O!:sampler", &PyTuple_Type, &mappings, &PyTuple_Type, &cores))
        return NULL;
    Py_ssize_t n = PyTuple_Size(mappings);
    if (PyTuple_Size(cores) != n) {
        PyErr_SetString(PyExc_ValueError, "as many numbers of cores as mappings");
        return NULL;
    }
    Sampler *s = PyObject_New(Sampler, Sampler_Type);
    if (!s)
        return NULL;
    s->count = n;
    s->mappings = Py_NewRef(mappings);
    s->slabs = PyMem_Calloc(n ? (size_t)n : 1, sizeof *s->slabs);
    s->cores = PyMem_Calloc(n ? (size_t)n : 1, sizeof *s->cores);
    bool bad = !s->slabs || !s->cores;
    if (bad)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; !bad && i < n; i++) {
        PyObject *m = PyTuple_GetItem(mappings, i);
        if (!PyObject_TypeCheck(m, Mapping_Type)) {
            PyErr_SetString(PyExc_TypeError, "a sampler takes Mappings");
            bad = true;
        } else if (as_index(PyTuple_GetItem(cores, i), &s->cores[i]) != 0) {
            bad = true;
        } else if (s->cores[i] > NDS_MAX_CORES || ((Mapping *)m)->map.size < NDS_REQUIRED_SIZE) {
            raise_error((Mapping *)m, REASON_BAD_INDEX, "a slab has 16 cores at most");
            bad = true;
        }
    }
    if (bad)
        Py_CLEAR(s);
    return (PyObject *)s;
}

static PyObject *sampler_look(Sampler *s, PyObject *unused)
{
    (void)unused;
    for (Py_ssize_t i = 0; i < s->count; i++) {
        const Mapping *m = (Mapping *)PyTuple_GetItem(s->mappings, i);
        if (nds_readable(&m->map))
            nds_sample(&s->slabs[i], m->map.base, s->cores[i]);
    }
    Py_RETURN_NONE;
}

/* What was kept since the last take: for each slab (pairs of u64 as bytes, dropped). */
static PyObject *sampler_take(Sampler *s, PyObject *unused)
{
    (void)unused;
    PyObject *list = PyList_New(s->count);
    for (Py_ssize_t i = 0; list && i < s->count; i++) {
        struct nds_sampled *slab = &s->slabs[i];
        PyObject *one =
            Py_BuildValue("(y#K)", slab->kept ? (char *)slab->kept : "", (Py_ssize_t)(slab->count * sizeof *slab->kept),
                          (unsigned long long)slab->dropped);
        if (!one || PyList_SetItem(list, i, one) != 0)
            Py_CLEAR(list);
        slab->count = 0;
        slab->dropped = 0;
    }
    return list;
}

static PyMethodDef sampler_methods[] = {
    {"look", (PyCFunction)sampler_look, METH_NOARGS, "Look at every slab once."},
    {"take", (PyCFunction)sampler_take, METH_NOARGS,
     "Per slab: (total, device) latencies in us as u64 pairs, dropped."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot sampler_slots[] = {
    {Py_tp_dealloc, sampler_dealloc},
    {Py_tp_methods, sampler_methods},
    {Py_tp_doc, "Looks at the latencies of many slabs in one call."},
    {0, NULL},
};

static PyType_Spec sampler_spec = {
    "neuron_ds._core.Sampler",
    sizeof(Sampler),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    sampler_slots,
};

PyMethodDef sampler_functions[] = {
    {"sampler", new_sampler, METH_VARARGS, "sampler(mappings, cores): a Sampler over the first cores of each."},
    {NULL, NULL, 0, NULL},
};

int add_sampler_types(PyObject *module)
{
    Sampler_Type = (PyTypeObject *)PyType_FromSpec(&sampler_spec);
    return Sampler_Type ? PyModule_AddObjectRef(module, "Sampler", (PyObject *)Sampler_Type) : -1;
}
