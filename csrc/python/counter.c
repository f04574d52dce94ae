/* Counter and Core: handles on words of a mapped slab. The hot path of a producer is in this file. */
#include "binding.h"

typedef struct {
    PyObject_HEAD
    nds_word *word;
    uint64_t *live;
    Mapping *mapping;
    int core; /* -1 for a counter of the device */
    unsigned counter;
} Counter;

PyTypeObject *Counter_Type, *Core_Type;

PyObject *new_counter(Mapping *m, nds_word *word, int core, unsigned counter)
{
    Counter *c = PyObject_New(Counter, Counter_Type);
    if (!c)
        return NULL;
    Py_INCREF((PyObject *)m);
    c->mapping = m, c->word = word, c->live = m->map.live;
    c->core = core, c->counter = counter;
    return (PyObject *)c;
}

static void counter_dealloc(Counter *c)
{
    PyTypeObject *type = Py_TYPE((PyObject *)c);
    Py_DECREF((PyObject *)c->mapping);
    PyObject_Free(c);
    Py_DECREF(type);
}

#define WRITABLE(c) __builtin_expect(*(c)->live == NDS_LIVE_WRITE, 1)

static PyObject *counter_add(Counter *c, PyObject *arg)
{
    uint64_t n;
    if (as_u64(arg, &n) != 0)
        return NULL;
    if (!WRITABLE(c))
        return raise_dead(c->mapping);
    nds_add(c->word, n);
    Py_RETURN_NONE;
}

static PyObject *counter_inc(Counter *c, PyObject *unused)
{
    (void)unused;
    if (!WRITABLE(c))
        return raise_dead(c->mapping);
    nds_add(c->word, 1);
    Py_RETURN_NONE;
}

static PyObject *counter_sub(Counter *c, PyObject *arg)
{
    uint64_t n;
    if (as_u64(arg, &n) != 0)
        return NULL;
    if (!WRITABLE(c))
        return raise_dead(c->mapping);
    nds_sub(c->word, n);
    Py_RETURN_NONE;
}

static PyObject *counter_or(Counter *c, PyObject *arg)
{
    uint64_t bits;
    if (as_u64(arg, &bits) != 0)
        return NULL;
    if (!WRITABLE(c))
        return raise_dead(c->mapping);
    nds_or(c->word, bits);
    Py_RETURN_NONE;
}

static PyObject *counter_set(Counter *c, PyObject *arg)
{
    uint64_t v;
    if (as_u64(arg, &v) != 0)
        return NULL;
    if (!WRITABLE(c))
        return raise_dead(c->mapping);
    nds_store(c->word, v);
    Py_RETURN_NONE;
}

/* A reader's value counts only if the slab still was its producer's after the load. */
static PyObject *reader_get(Counter *c)
{
    const Mapping *m = c->mapping;
    if (!nds_readable(&m->map))
        return raise_dead(m);
    uint64_t v = c->core < 0 ? nds_load(c->word) : nds_nc_value(m->map.base, c->word, (unsigned)c->core, c->counter);
    int reason = check_guard(m, false);
    return reason ? raise_error(m, reason, "") : PyLong_FromUnsignedLongLong(v);
}

static PyObject *counter_get(Counter *c, PyObject *unused)
{
    (void)unused;
    if (!WRITABLE(c))
        return reader_get(c);
    return PyLong_FromUnsignedLongLong(nds_load(c->word));
}

static PyObject *counter_noop(Counter *c, PyObject *unused)
{
    (void)c, (void)unused;
    Py_RETURN_NONE;
}

static PyObject *counter_repr(Counter *c)
{
    PyObject *value = nds_readable(&c->mapping->map) ? counter_get(c, NULL) : PyUnicode_FromString("closed");
    if (!value)
        return NULL;
    PyObject *text = c->core < 0 ? PyUnicode_FromFormat("<Counter %u of the device: %S>", c->counter, value)
                                 : PyUnicode_FromFormat("<Counter %u of core %d: %S>", c->counter, c->core, value);
    Py_DECREF(value);
    return text;
}

static PyMethodDef counter_methods[] = {
    {"add", (PyCFunction)counter_add, METH_O, "Add n, modulo 2**64; one atomic instruction."},
    {"inc", (PyCFunction)counter_inc, METH_NOARGS, "Add 1; one atomic instruction."},
    {"sub", (PyCFunction)counter_sub, METH_O, "Subtract n, modulo 2**64; one atomic instruction."},
    {"or_", (PyCFunction)counter_or, METH_O, "Set these bits; one atomic instruction."},
    {"set", (PyCFunction)counter_set, METH_O, "Store a value; one 8-byte store."},
    {"get", (PyCFunction)counter_get, METH_NOARGS, "The value; one 8-byte load."},
    {"_noop", (PyCFunction)counter_noop, METH_NOARGS, "Nothing; the yardstick of inc and get."},
    {"_noop1", (PyCFunction)counter_noop, METH_O, "Nothing; the yardstick of add."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot counter_slots[] = {
    {Py_tp_dealloc, counter_dealloc},
    {Py_tp_methods, counter_methods},
    {Py_tp_repr, counter_repr},
    {Py_tp_doc, "A handle on one counter of a mapped slab."},
    {0, NULL},
};

static PyType_Spec counter_spec = {
    "neuron_ds._core.Counter",
    sizeof(Counter),
    0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    counter_slots,
};

/* ---- Core: what touches several counters of one core in one call ---- */

typedef struct {
    PyObject_HEAD
    struct nds_core_words words;
    uint64_t *live;
    Mapping *mapping;
    unsigned core;
} Core;

PyObject *new_core(Mapping *m, unsigned core)
{
    Core *c = PyObject_New(Core, Core_Type);
    if (!c)
        return NULL;
    Py_INCREF((PyObject *)m);
    c->mapping = m, c->live = m->map.live, c->core = core;
    c->words.base = nds_nc_counter(m->map.base, core, 0);
    c->words.ext = nds_nc_counter(m->map.base, core, NDS_BASE_NC_COUNTERS);
    return (PyObject *)c;
}

static void core_dealloc(Core *c)
{
    PyTypeObject *type = Py_TYPE((PyObject *)c);
    Py_DECREF((PyObject *)c->mapping);
    PyObject_Free(c);
    Py_DECREF(type);
}

/* execution_ended(status, busy_us, macs, device_us, total_us, nc_us, cc_us, error_class, software_error) */
enum { ARG_STATUS, ARG_BUSY, ARG_MACS, ARG_LATENCY, ARG_CLASS = ARG_LATENCY + NDS_EXEC_LATENCIES, ARG_SOFTWARE, ARGS };

struct arguments {
    PyObject *const *at;
    Py_ssize_t count;
};

static inline bool given(const struct arguments *args, Py_ssize_t i)
{
    return i < args->count && args->at[i] != Py_None;
}

/* An argument that is not given leaves its field alone. */
static inline int take(const struct arguments *args, Py_ssize_t i, uint64_t *field)
{
    return given(args, i) ? as_u64(args->at[i], field) : 0;
}

static inline int take_latency(const struct arguments *args, unsigned which, struct nds_execution *e)
{
    if (given(args, ARG_LATENCY + which))
        e->latencies_set |= 1u << which;
    return take(args, ARG_LATENCY + which, &e->latency_us[which]);
}

static PyObject *core_execution_ended(Core *c, PyObject *const *at, Py_ssize_t n)
{
    const struct arguments args = {at, n};
    struct nds_execution e = {0};
    if (n < 1 || n > ARGS) {
        PyErr_SetString(PyExc_TypeError, "execution_ended takes from 1 to 9 arguments");
        return NULL;
    }
    /* Line by line, not in a loop over a table: the parsing is half of this call. */
    if (take(&args, ARG_STATUS, &e.status) || take(&args, ARG_BUSY, &e.busy_us) || take(&args, ARG_MACS, &e.macs) ||
        take_latency(&args, NDS_EXEC_DEVICE_US, &e) || take_latency(&args, NDS_EXEC_TOTAL_US, &e) ||
        take_latency(&args, NDS_EXEC_NC_US, &e) || take_latency(&args, NDS_EXEC_CC_US, &e) ||
        take(&args, ARG_CLASS, &e.error_class) || take(&args, ARG_SOFTWARE, &e.software_error))
        return NULL;
    if (!WRITABLE(c))
        return raise_dead(c->mapping);
    if (nds_execution_ended(&c->words, &e) != 0)
        return raise_error(c->mapping, REASON_BAD_INDEX,
                           "no such execution status, or an error class or subtype that does not go with it");
    Py_RETURN_NONE;
}

static PyObject *core_add_many(Core *c, PyObject *arg)
{
    Py_buffer view;
    uint64_t deltas[NDS_NC_COUNTERS];
    if (PyObject_GetBuffer(arg, &view, PyBUF_SIMPLE) != 0)
        return NULL;
    size_t n = (size_t)view.len;
    if (n % 8 || n > sizeof deltas) {
        PyBuffer_Release(&view);
        return raise_error(c->mapping, REASON_BAD_INDEX, "deltas are 8 bytes each, for counters 0 to 94 at most");
    }
    memcpy(deltas, view.buf, n);
    PyBuffer_Release(&view);
    if (!WRITABLE(c))
        return raise_dead(c->mapping);
    nds_add_many(c->mapping->map.base, c->core, deltas, (unsigned)(n / 8));
    Py_RETURN_NONE;
}

static PyObject *core_noop9(Core *c, PyObject *const *args, Py_ssize_t n)
{
    (void)c, (void)args, (void)n;
    Py_RETURN_NONE;
}

static PyMethodDef core_methods[] = {
    {"execution_ended", (PyCFunction)(void (*)(void))core_execution_ended, METH_FASTCALL,
     "All updates of one ended execution."},
    {"add_many", (PyCFunction)core_add_many, METH_O, "Add u64 deltas from a buffer to counters 0, 1, ..."},
    {"_noop_fast", (PyCFunction)(void (*)(void))core_noop9, METH_FASTCALL, "Nothing; a yardstick."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot core_slots[] = {
    {Py_tp_dealloc, core_dealloc},
    {Py_tp_methods, core_methods},
    {Py_tp_doc, "A handle on all counters of one core of a mapped slab."},
    {0, NULL},
};

static PyType_Spec core_spec = {
    "neuron_ds._core.Core", sizeof(Core), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, core_slots,
};

int add_counter_types(PyObject *module)
{
    Counter_Type = (PyTypeObject *)PyType_FromSpec(&counter_spec);
    Core_Type = (PyTypeObject *)PyType_FromSpec(&core_spec);
    if (!Counter_Type || !Core_Type)
        return -1;
    return PyModule_AddObjectRef(module, "Counter", (PyObject *)Counter_Type) ||
           PyModule_AddObjectRef(module, "Core", (PyObject *)Core_Type);
}
