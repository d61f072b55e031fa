/* ze_ipc._held: C functions called without giving up the GIL.

   cffi gives it up around every call. A thread that computes takes it then, and keeps it for a whole switch interval
   (5 ms), which is far more than a short call needs. What is called here has to bound its own waiting. */
#include <Python.h>

typedef int (*function)(void *, void *);

static PyObject *call(PyObject *module, PyObject *arguments)
{
    unsigned long long address, first, second;

    (void)module;
    if (!PyArg_ParseTuple(arguments, "KKK", &address, &first, &second))
        return NULL;
    return PyLong_FromLong(((function)(uintptr_t)address)((void *)(uintptr_t)first, (void *)(uintptr_t)second));
}

static PyMethodDef methods[] = {
    {"call", call, METH_VARARGS, "call(function, first, second): what int function(void *, void *) returns."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_held",    .m_doc = "C functions called without giving up the GIL.",
    .m_size = 0,           .m_methods = methods,
};

PyMODINIT_FUNC PyInit__held(void);
PyMODINIT_FUNC PyInit__held(void)
{
    return PyModule_Create(&definition);
}
