/* Yardsticks for benches/: the bare work in C loops, in the same extension and with the same calling conventions. */
#include "binding.h"

static PyObject *bench_adds(PyObject *self, PyObject *args)
{
    (void)self;
    Mapping *m;
    unsigned core;
    unsigned long long rounds;
    if (!PyArg_ParseTuple(args, "O!IK:bench_adds", Mapping_Type, &m, &core, &rounds))
        return NULL;
    if (!nds_writable(&m->map) || m->map.size < NDS_REQUIRED_SIZE || core >= NDS_MAX_CORES)
        return raise_dead(m);
    nds_word *base = nds_nc_counter(m->map.base, core, 0);
    nds_word *ext = nds_nc_counter(m->map.base, core, NDS_BASE_NC_COUNTERS);
    for (unsigned long long r = 0; r < rounds; r++) {
        for (unsigned i = 0; i < NDS_BASE_NC_COUNTERS; i++)
            nds_add(base + i, 1);
        for (unsigned i = 0; i < NDS_EXT_NC_COUNTERS; i++)
            nds_add(ext + i, 1);
    }
    Py_RETURN_NONE;
}

/* Hashes the 64 model records of a blob with the plain byte loop; returns the xor so that nothing is optimised away. */
static PyObject *bench_hash64(PyObject *self, PyObject *arg)
{
    (void)self;
    Py_buffer view;
    if (PyObject_GetBuffer(arg, &view, PyBUF_SIMPLE) != 0)
        return NULL;
    uint32_t sum = 0;
    if (view.len >= NDS_REQUIRED_SIZE)
        for (unsigned r = 0; r < NDS_MAX_MODELS; r++)
            sum ^= nds_fnv1a((unsigned char *)view.buf + nds_record_offset(r), NDS_MODEL_SIZE);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(sum);
}

/* Copies and verifies the 64 records of a live blob in C; returns how many mismatch. */
static PyObject *bench_verify64(PyObject *self, PyObject *args)
{
    (void)self;
    static unsigned char copy[NDS_REQUIRED_SIZE] __attribute__((aligned(64)));
    Mapping *m;
    if (!PyArg_ParseTuple(args, "O!:bench_verify64", Mapping_Type, &m))
        return NULL;
    if (!nds_readable(&m->map) || m->map.size < NDS_REQUIRED_SIZE)
        return raise_dead(m);
    uint8_t state[NDS_RECORDS];
    nds_copy_out(copy + NDS_MODEL_BITMAP_OFFSET, m->map.base + NDS_MODEL_BITMAP_OFFSET,
                 NDS_MODEL_BITMAP_SIZE + NDS_MODELS_SIZE);
    return PyLong_FromUnsignedLong(nds_records_verify(copy, state, NULL));
}

static PyObject *bench_memcpy_bytes(PyObject *self, PyObject *arg)
{
    (void)self;
    Mapping *m = (Mapping *)arg;
    if (!PyObject_TypeCheck(arg, Mapping_Type) || !nds_readable(&m->map) || m->map.size < NDS_REQUIRED_SIZE)
        return raise_error(NULL, REASON_CLOSED, "");
    return PyBytes_FromStringAndSize((char *)m->map.base, NDS_REQUIRED_SIZE);
}

static PyObject *bench_memcpy_many(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *mappings;
    Arena *arena;
    if (!PyArg_ParseTuple(args, "O!O!:bench_memcpy_many", &PyTuple_Type, &mappings, Arena_Type, &arena))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_Size(mappings) && i < arena->slabs; i++) {
        PyObject *m = PyTuple_GetItem(mappings, i);
        if (PyObject_TypeCheck(m, Mapping_Type) && nds_readable(&((Mapping *)m)->map) &&
            ((Mapping *)m)->map.size >= NDS_REQUIRED_SIZE)
            memcpy(arena->base + i * NDS_REQUIRED_SIZE, ((Mapping *)m)->map.base, NDS_REQUIRED_SIZE);
    }
    Py_RETURN_NONE;
}

PyMethodDef bench_methods[] = {
    {"bench_adds", bench_adds, METH_VARARGS, "bench_adds(mapping, core, rounds): 95 atomic adds a round."},
    {"bench_hash64", bench_hash64, METH_O, "64 plain hashes."},
    {"bench_verify64", bench_verify64, METH_VARARGS, "Copy and verify 64 records."},
    {"bench_memcpy_bytes", bench_memcpy_bytes, METH_O, "memcpy of a blob into fresh bytes."},
    {"bench_memcpy_many", bench_memcpy_many, METH_VARARGS, "memcpy of blobs into an arena."},
    {NULL, NULL, 0, NULL},
};
