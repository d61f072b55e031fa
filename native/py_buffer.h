#pragma once
/* The buffer protocol for every Python from 3.10 on: the structure and the numbers are of CPython's stable ABI since
   3.11; 3.10 has the same layout without promising it. */
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
#define PyBUF_SIMPLE 0
#define PyBUF_WRITABLE 0x0001
#define PyBUF_FORMAT 0x0004
#define PyBUF_ND 0x0008
#define PyBUF_STRIDES (0x0010 | PyBUF_ND)
#define PyBUF_C_CONTIGUOUS (0x0020 | PyBUF_STRIDES)
#define PyBUF_F_CONTIGUOUS (0x0040 | PyBUF_STRIDES)
#define PyBUF_ANY_CONTIGUOUS (0x0080 | PyBUF_STRIDES)
int PyBuffer_FillInfo(Py_buffer *view, PyObject *owner, void *address, Py_ssize_t size, int readonly, int flags);
int PyObject_GetBuffer(PyObject *owner, Py_buffer *view, int flags);
void PyBuffer_Release(Py_buffer *view);
#endif
