/* ze_ipc._buffer: a base type that gives Python classes the buffer protocol on every Python from 3.10 on.

   A Python class can only offer a buffer by itself since 3.12 (PEP 688). */
#include "py_buffer.h"
#include <string.h>

#define FORMAT_SIZE 8

/* What a view with a layout points into; its `internal`. */
struct layout {
    char format[FORMAT_SIZE];
    Py_ssize_t columns[];
};

/* Whether elements lie one behind the other, the last axis fastest, or the first one. */
static int is_contiguous(const Py_buffer *view, int first_fastest)
{
    Py_ssize_t expected = view->itemsize;
    if (view->len == 0)
        return 1;
    for (int i = 0; i < view->ndim; i++) {
        int axis = first_fastest ? i : view->ndim - 1 - i;
        if (view->shape[axis] > 1 && view->strides[axis] != expected)
            return 0;
        expected *= view->shape[axis];
    }
    return 1;
}

static const char *why_not(const Py_buffer *view, int flags)
{
    int by_rows = is_contiguous(view, 0), by_columns = is_contiguous(view, 1);
    if ((flags & PyBUF_WRITABLE) && view->readonly)
        return "the memory is read-only";
    if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS && !by_rows)
        return "the elements are not C-contiguous";
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !by_columns)
        return "the elements are not Fortran-contiguous";
    if ((flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS && !by_rows && !by_columns)
        return "the elements are not contiguous";
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !by_rows)
        return "the elements have strides, which this consumer does not ask for";
    return NULL;
}

static int fill_columns(Py_buffer *view, PyObject *shape, PyObject *strides)
{
    for (int axis = 0; axis < view->ndim; axis++) {
        view->shape[axis] = PyLong_AsSsize_t(PyTuple_GetItem(shape, axis));
        view->strides[axis] = PyLong_AsSsize_t(PyTuple_GetItem(strides, axis));
        if (PyErr_Occurred())
            return -1;
        view->len *= view->shape[axis];
    }
    return 0;
}

/* Elements in shape and strides (bytes), both tuples of the same length. */
static int fill_layout(PyObject *owner, Py_buffer *view, int flags, PyObject *answer)
{
    unsigned long long address = 0;
    Py_ssize_t size = 0, itemsize = 0;
    int readonly = 0;
    const char *format = NULL;
    PyObject *shape = NULL, *strides = NULL;
    if (!PyArg_ParseTuple(answer, "KnpsnO!O!", &address, &size, &readonly, &format, &itemsize, &PyTuple_Type, &shape,
                          &PyTuple_Type, &strides))
        return -1;
    Py_ssize_t ndim = PyTuple_Size(shape);
    if (PyTuple_Size(strides) != ndim || strlen(format) >= FORMAT_SIZE) {
        PyErr_SetString(PyExc_ValueError, "shape and strides differ in length");
        return -1;
    }
    struct layout *layout = PyMem_Malloc(sizeof(*layout) + 2 * (size_t)ndim * sizeof(Py_ssize_t));
    if (!layout) {
        PyErr_NoMemory();
        return -1;
    }
    strcpy(layout->format, format);
    *view = (Py_buffer){
        .buf = (void *)(uintptr_t)address,
        .len = itemsize,
        .itemsize = itemsize,
        .readonly = readonly,
        .ndim = (int)ndim,
        .format = flags & PyBUF_FORMAT ? layout->format : NULL,
        .shape = layout->columns,
        .strides = layout->columns + ndim,
        .internal = layout,
    };
    if (fill_columns(view, shape, strides) < 0) {
        PyMem_Free(layout);
        return -1;
    }
    const char *reason = why_not(view, flags);
    if (reason) {
        PyErr_SetString(PyExc_BufferError, reason);
        PyMem_Free(layout);
        return -1;
    }
    if (!(flags & PyBUF_ND)) {
        view->shape = NULL;
        view->ndim = 1;
    }
    if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES)
        view->strides = NULL;
    Py_INCREF(owner);
    view->obj = owner;
    return 0;
}

static int fill_bytes(PyObject *owner, Py_buffer *view, int flags, PyObject *answer)
{
    unsigned long long address = 0;
    Py_ssize_t size = 0;
    int readonly = 0;
    if (!PyArg_ParseTuple(answer, "Knp", &address, &size, &readonly))
        return -1;
    if (PyBuffer_FillInfo(view, owner, (void *)(uintptr_t)address, size, readonly, flags) < 0)
        return -1;
    view->internal = NULL;
    return 0;
}

/* Calls owner._acquire_buffer() -> (address, size, read-only), the same with (format, item size, shape, strides), or
   another object that offers the buffer in its place. */
static int get_buffer(PyObject *owner, Py_buffer *view, int flags)
{
    view->obj = NULL;
    PyObject *answer = PyObject_CallMethod(owner, "_acquire_buffer", NULL);
    if (!answer)
        return -1;
    int rc;
    if (!PyTuple_Check(answer)) {
        rc = PyObject_GetBuffer(answer, view, flags);
        Py_DECREF(answer);
        return rc;
    }
    rc = PyTuple_Size(answer) == 3 ? fill_bytes(owner, view, flags, answer) : fill_layout(owner, view, flags, answer);
    Py_DECREF(answer);
    if (rc == 0)
        return 0;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *ignored = PyObject_CallMethod(owner, "_release_buffer", NULL);
    Py_XDECREF(ignored);
    PyErr_Restore(type, value, traceback);
    return -1;
}

/* Calls owner._release_buffer(); it must not raise. */
static void release_buffer(PyObject *owner, Py_buffer *view)
{
    PyMem_Free(view->internal);
    view->internal = NULL;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *answer = PyObject_CallMethod(owner, "_release_buffer", NULL);
    if (!answer)
        PyErr_WriteUnraisable(owner);
    Py_XDECREF(answer);
    PyErr_Restore(type, value, traceback);
}

static PyType_Slot slots[] = {
    {Py_bf_getbuffer, (void *)get_buffer},
    {Py_bf_releasebuffer, (void *)release_buffer},
    {Py_tp_doc, "Offers a buffer through the methods _acquire_buffer and _release_buffer of a subclass."},
    {0, NULL},
};
static PyType_Spec spec = {
    .name = "ze_ipc._buffer.BufferBase",
    .basicsize = 0,
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_buffer",
    .m_doc = "A base type with the buffer protocol.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__buffer(void);
PyMODINIT_FUNC PyInit__buffer(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    PyObject *type = PyType_FromSpec(&spec);
    if (!type || PyModule_AddObject(module, "BufferBase", type) < 0) {
        Py_XDECREF(type);
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
