/* ze_ipc._dlpack: capsules of DLPack, the protocol by which array libraries hand memory to each other.

   The layouts are those of DLPack 1.0, and of 0.x for consumers that do not name a version. A tensor is given back by
   its deleter, from any thread, with or without the interpreter's lock, also after the interpreter has ended. */
#include "py_buffer.h"
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define VERSIONED "dltensor_versioned"
#define PLAIN "dltensor"

struct dl_tensor {
    void *data;
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
};

struct plain {
    struct dl_tensor tensor;
    void *owner;
    void (*deleter)(struct plain *self);
};

struct versioned {
    uint32_t major;
    uint32_t minor;
    void *owner;
    void (*deleter)(struct versioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};

_Static_assert(sizeof(struct dl_tensor) == 48, "DLTensor");
_Static_assert(sizeof(struct plain) == 64, "DLManagedTensor");
_Static_assert(offsetof(struct versioned, tensor) == 32, "DLManagedTensorVersioned");

static void drop(PyObject *owner)
{
    /* Once the interpreter has begun to end, the process's memory goes anyway. */
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(owner);
    PyGILState_Release(state);
}

static void delete_plain(struct plain *self)
{
    drop(self->owner);
    free(self);
}

static void delete_versioned(struct versioned *self)
{
    drop(self->owner);
    free(self);
}

/* A capsule whose tensor nobody took; who takes one renames it. */
static void end_plain(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, PLAIN)) {
        struct plain *tensor = PyCapsule_GetPointer(capsule, PLAIN);
        tensor->deleter(tensor);
    }
}

static void end_versioned(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, VERSIONED)) {
        struct versioned *tensor = PyCapsule_GetPointer(capsule, VERSIONED);
        tensor->deleter(tensor);
    }
}

static int read_columns(PyObject *shape, PyObject *strides, Py_ssize_t ndim, int64_t *columns)
{
    for (Py_ssize_t axis = 0; axis < ndim; axis++) {
        columns[axis] = PyLong_AsLongLong(PyTuple_GetItem(shape, axis));
        columns[ndim + axis] = PyLong_AsLongLong(PyTuple_GetItem(strides, axis));
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

/* capsule(owner, address, (code, bits), shape, strides, (device type, device id), flags, is versioned) */
static PyObject *capsule(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *owner, *shape, *strides;
    unsigned long long address, flags;
    unsigned char code, bits;
    int device_type, device_id, is_versioned;
    if (!PyArg_ParseTuple(arguments, "OK(bb)O!O!(ii)Kp", &owner, &address, &code, &bits, &PyTuple_Type, &shape,
                          &PyTuple_Type, &strides, &device_type, &device_id, &flags, &is_versioned))
        return NULL;
    Py_ssize_t ndim = PyTuple_Size(shape);
    if (PyTuple_Size(strides) != ndim) {
        PyErr_SetString(PyExc_ValueError, "shape and strides differ in length");
        return NULL;
    }
    size_t head = is_versioned ? sizeof(struct versioned) : sizeof(struct plain);
    char *memory = calloc(1, head + 2 * (size_t)ndim * sizeof(int64_t));
    if (!memory)
        return PyErr_NoMemory();
    int64_t *columns = (int64_t *)(memory + head);
    if (read_columns(shape, strides, ndim, columns) < 0) {
        free(memory);
        return NULL;
    }
    struct dl_tensor tensor = {
        .data = (void *)(uintptr_t)address,
        .device_type = device_type,
        .device_id = device_id,
        .ndim = (int32_t)ndim,
        .code = code,
        .bits = bits,
        .lanes = 1,
        .shape = columns,
        .strides = columns + ndim,
    };
    PyObject *made;
    Py_INCREF(owner);
    if (is_versioned) {
        struct versioned *managed = (struct versioned *)memory;
        *managed = (struct versioned){1, 0, owner, delete_versioned, flags, tensor};
        made = PyCapsule_New(managed, VERSIONED, end_versioned);
    } else {
        struct plain *managed = (struct plain *)memory;
        *managed = (struct plain){tensor, owner, delete_plain};
        made = PyCapsule_New(managed, PLAIN, end_plain);
    }
    if (!made) {
        Py_DECREF(owner);
        free(memory);
    }
    return made;
}

static PyObject *address_of(PyObject *module, PyObject *memory)
{
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(memory, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *address = PyLong_FromVoidPtr(view.buf);
    PyBuffer_Release(&view);
    return address;
}

static PyMethodDef methods[] = {
    {"address_of", address_of, METH_O,
     "address_of(memory)\n\nThe CPU address of a contiguous buffer; it is right while somebody holds that."},
    {"capsule", capsule, METH_VARARGS,
     "capsule(owner, address, (code, bits), shape, strides, (device_type, device_id), flags, is_versioned)\n\n"
     "A capsule that holds `owner` until its tensor is deleted; strides count elements."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_dlpack", .m_doc = "Capsules of DLPack.", .m_size = -1, .m_methods = methods,
};

PyMODINIT_FUNC PyInit__dlpack(void);
PyMODINIT_FUNC PyInit__dlpack(void)
{
    return PyModule_Create(&definition);
}
