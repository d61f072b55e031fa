"""Permissions that a process gives away only when it is asked to, and takes back."""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ze_ipc.errors import InvalidArgument, KernelError
from ze_ipc.host import yama_scope

_log = logging.getLogger(__name__)

_PR_SET_PTRACER = 0x59616D61
"""linux/prctl.h; Yama's."""

ANY_PTRACER = -1
"""Every process that the other rules of ptrace permit, not only one."""

_libc = ctypes.CDLL(None, use_errno=True)
_lock = threading.Lock()
_granted: list[int] = []


@contextmanager
def allow_ptracer(pid: int) -> Iterator[None]:
    """Let process ``pid`` (in our pid namespace) or ANY_PTRACER ptrace this one, under Yama 1.

    That process may then take any fd and read any memory of this one: it is for
    ZE_IPC_TRANSPORT=pidfd in the exporter, and never done unless asked for. Yama remembers one
    process; nested uses restore the outer one, the last one leaves nobody permitted. Without Yama
    there is nothing to permit.
    """
    if pid <= 0 and pid != ANY_PTRACER:
        raise InvalidArgument("not a pid", call="allow_ptracer", pid=pid)
    if yama_scope() is None:
        _log.debug("there is no Yama: nothing to permit")
        yield
        return
    with _lock:
        _set_ptracer(pid)
        _granted.append(pid)
    try:
        yield
    finally:
        with _lock:
            # The last such entry: contexts of several threads may end in any order.
            del _granted[len(_granted) - 1 - _granted[::-1].index(pid)]
            _set_ptracer(_granted[-1] if _granted else 0)


def _set_ptracer(pid: int) -> None:
    if _libc.prctl(_PR_SET_PTRACER, *map(ctypes.c_ulong, (pid, 0, 0, 0))):
        code = ctypes.get_errno()
        raise KernelError(
            f"cannot let process {pid} trace us: {os.strerror(code)}",
            call="prctl(PR_SET_PTRACER)",
            errno=code,
        )
