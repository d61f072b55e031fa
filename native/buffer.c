/* ze_ipc._buffer: a base type that gives Python classes the buffer protocol on every Python from 3.10 on.

   A Python class can only offer a buffer by itself since 3.12 (PEP 688). The structure and the two slot numbers below
   are those of CPython's stable ABI since 3.11; 3.10 has the same layout without promising it. */
#include <Python.h>

#if Py_LIMITED_API + 0 < 0x030b0000
typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len;
    Py_ssize_t itemsize;
    int readonly;
    int ndim;
    char *format;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    Py_ssize_t *suboffsets;
    void *internal;
} Py_buffer;
#define Py_bf_getbuffer 1
#define Py_bf_releasebuffer 2
int PyBuffer_FillInfo(Py_buffer *view, PyObject *owner, void *address, Py_ssize_t size, int readonly, int flags);
#endif

/* Calls owner._acquire_buffer() -> (address, size, read-only). */
static int get_buffer(PyObject *owner, Py_buffer *view, int flags)
{
    view->obj = NULL;
    PyObject *answer = PyObject_CallMethod(owner, "_acquire_buffer", NULL);
    if (!answer)
        return -1;
    unsigned long long address = 0;
    Py_ssize_t size = 0;
    int readonly = 0;
    int parsed = PyArg_ParseTuple(answer, "Knp", &address, &size, &readonly);
    Py_DECREF(answer);
    if (parsed && PyBuffer_FillInfo(view, owner, (void *)(uintptr_t)address, size, readonly, flags) == 0)
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
    (void)view;
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
