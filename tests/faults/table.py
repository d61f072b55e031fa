"""What each call can fail with, from its manual page and from the kernel's xe driver.

A row is a name and its errnos; details (an operation, an option) have rows of their own. Left out
are errnos that say the caller passed nonsense (EFAULT, EBADF, EINVAL of arguments that never
change): the run shows that it does not. EINTR is here only where a signal can cause it.
"""

from __future__ import annotations

import fcntl
from errno import (
    E2BIG,
    EACCES,
    EADDRINUSE,
    EAGAIN,
    EBUSY,
    ECANCELED,
    ECONNABORTED,
    ECONNREFUSED,
    ECONNRESET,
    EDQUOT,
    EEXIST,
    EINTR,
    EINVAL,
    EIO,
    ELOOP,
    EMFILE,
    EMLINK,
    ENFILE,
    ENOBUFS,
    ENODEV,
    ENOENT,
    ENOMEM,
    ENOPROTOOPT,
    ENOSPC,
    ENOSYS,
    ENOTDIR,
    EOPNOTSUPP,
    EPERM,
    EPIPE,
    EROFS,
    ESRCH,
    ETIME,
    ETOOMANYREFS,
    EXDEV,
)

from faults.native import DEVICE_CALL, Call, call_numbers
from faults.scenes import Side

_FDS = (EMFILE, ENFILE, ENOMEM)
_FILES = (EACCES, ENOENT, ENOTDIR, ELOOP, ENOMEM, EIO)
_MAKE = (EACCES, EPERM, ENOENT, ENOSPC, EDQUOT, EROFS, ENOMEM, EIO)
_RECEIVE = (EINTR, EAGAIN, ECONNRESET, ENOMEM, ENOBUFS)
_SEND = (EINTR, EAGAIN, EPIPE, ECONNRESET, ENOMEM, ENOBUFS)
_DEVICE_GONE = (ENODEV, EIO)

SOCKET, ANONYMOUS, PROC = 1, 2, 3
"""Kinds of files that read, write and close are of: the tracer's details of them."""

NEVER: tuple[int, ...] = ()

SYSCALLS: dict[str, tuple[int, ...]] = {
    # Sockets.
    "socket": (*_FDS, ENOBUFS, EACCES),
    "socketpair": (*_FDS, ENOBUFS),
    "bind": (EADDRINUSE, *_MAKE),
    "listen": (EADDRINUSE, ENOBUFS),
    "connect": (EINTR, EAGAIN, ECONNREFUSED, EACCES, EPERM, ENOENT, ENOTDIR, ENOMEM, ECONNRESET),
    "accept": (EINTR, EAGAIN, ECONNABORTED, *_FDS, ENOBUFS, EPERM),
    "accept4": (EINTR, EAGAIN, ECONNABORTED, *_FDS, ENOBUFS, EPERM),
    "sendto": _SEND,
    "sendmsg": (*_SEND, ETOOMANYREFS),
    "recvfrom": _RECEIVE,
    "recvmsg": _RECEIVE,
    "getsockname": (ENOBUFS,),
    "getsockopt": (ENOPROTOOPT, ENOBUFS, ENOMEM, EMFILE, ESRCH),
    "setsockopt": (ENOPROTOOPT, ENOBUFS, ENOMEM, EPERM),
    "shutdown": (),
    # Files.
    "open": (*_FILES, *_FDS, EINTR),
    "openat": (*_FILES, *_FDS, EINTR),
    "read": (EINTR, EIO),
    "write": (EINTR, EIO, ENOSPC),
    "readlink": _FILES,
    "readlinkat": _FILES,
    "stat": _FILES,
    "lstat": _FILES,
    "newfstatat": _FILES,
    "statx": _FILES,
    "fstat": (ENOMEM, EIO),
    "statfs": (EIO, ENOMEM),
    "access": _FILES,
    "faccessat": _FILES,
    "faccessat2": _FILES,
    "getdents64": (ENOENT, ENOMEM, EIO),
    "lseek": (),
    "mkdir": (*_MAKE, EEXIST, ENOTDIR),
    "mkdirat": (*_MAKE, EEXIST, ENOTDIR),
    "rename": _MAKE,
    "renameat": _MAKE,
    "renameat2": _MAKE,
    "unlink": (EACCES, EPERM, ENOENT, EBUSY, EROFS, EIO, ENOMEM),
    "unlinkat": (EACCES, EPERM, ENOENT, EBUSY, EROFS, EIO, ENOMEM),
    "rmdir": (EACCES, EBUSY, ENOENT, EIO),
    "linkat": (*_MAKE, EEXIST, EMLINK, EXDEV),
    "chmod": (EACCES, EPERM, EROFS, EIO),
    "fchmod": (EPERM, EROFS, EIO),
    "fchmodat": (EACCES, EPERM, EROFS, EIO),
    "fchmodat2": (EACCES, EPERM, EROFS, EIO, ENOSYS),
    "ftruncate": (EINTR, EIO, ENOSPC, EPERM),
    "fallocate": (EINTR, EIO, ENOSPC, EOPNOTSUPP),
    "flock": (EINTR, EAGAIN, ENOMEM),
    "pread64": (EINTR, EIO),
    "pwrite64": (EINTR, EIO, ENOSPC),
    "close": (EINTR, EIO),
    "dup": (EMFILE,),
    "pipe2": (*_FDS,),
    "memfd_create": _FDS,
    "process_vm_readv": (EPERM, ESRCH, ENOMEM),
    "process_vm_writev": (EPERM, ESRCH, ENOMEM),
    # Waiting.
    "epoll_create1": _FDS,
    "epoll_wait": (EINTR,),
    "epoll_pwait": (EINTR,),
    "epoll_pwait2": (EINTR,),
    "eventfd2": (*_FDS, ENODEV),
    "poll": (EINTR, ENOMEM),
    "ppoll": (EINTR, ENOMEM),
    "select": (EINTR, ENOMEM),
    "pselect6": (EINTR, ENOMEM),
    "clock_nanosleep": (EINTR,),
    "nanosleep": (EINTR,),
    "sched_yield": NEVER,
    # Processes and threads.
    "clone": (EAGAIN, ENOMEM, EPERM),
    "clone3": (EAGAIN, ENOMEM, ENOSYS),
    "pidfd_open": (*_FDS, ESRCH, EPERM, ENOSYS, ENODEV),
    "pidfd_getfd": (*_FDS, EPERM, ESRCH, ENOSYS),
    "kill": (EPERM, ESRCH),
    "sched_getaffinity": (),
    "sched_setaffinity": (),
    "set_robust_list": NEVER,
    "rseq": NEVER,
    "rt_sigprocmask": NEVER,
    "rt_sigaction": NEVER,
    "rt_sigreturn": NEVER,
    "gettid": NEVER,
    "getpid": NEVER,
    "getuid": NEVER,
    "geteuid": NEVER,
    "uname": NEVER,
    "getcpu": NEVER,
    "sysinfo": NEVER,
    "clock_gettime": NEVER,
    "gettimeofday": NEVER,
    "membarrier": (ENOSYS, EPERM),
    "prctl": NEVER,
    "prlimit64": NEVER,
    "getrlimit": NEVER,
    "getrandom": (EINTR,),
    "restart_syscall": NEVER,
    # Memory.
    "mmap": (ENOMEM, EAGAIN),
    "munmap": (ENOMEM,),
    "mremap": (ENOMEM, EAGAIN),
    "mprotect": (ENOMEM,),
    "madvise": (ENOMEM, EAGAIN),
    "brk": (ENOMEM,),
}
"""By name; an unknown one is only killed at, and reported as unknown."""

DETAILS: dict[tuple[str, int], tuple[int, ...]] = {
    ("read", SOCKET): _RECEIVE,
    ("read", ANONYMOUS): (EINTR, EAGAIN),
    ("read", PROC): (EINTR, ENOMEM, ESRCH),
    ("write", SOCKET): _SEND,
    # Only a file system has something to say at the end.
    ("close", SOCKET): NEVER,
    ("close", ANONYMOUS): NEVER,
    ("close", PROC): NEVER,
    ("write", ANONYMOUS): (EINTR,),
    # FUTEX_WAIT and FUTEX_WAIT_BITSET; glibc ends the process at an errno that cannot be.
    ("futex", 0): (EINTR, EAGAIN),
    ("futex", 9): (EINTR, EAGAIN),
    ("fcntl", fcntl.F_DUPFD): (EMFILE,),
    ("fcntl", fcntl.F_DUPFD_CLOEXEC): (EMFILE,),
    # EPOLL_CTL_ADD, _DEL, _MOD.
    ("epoll_ctl", 1): (ENOMEM, ENOSPC),
    ("epoll_ctl", 2): (ENOMEM,),
    ("epoll_ctl", 3): (ENOMEM,),
}
ON_SIDE: dict[tuple[Side, str], tuple[int, ...]] = {
    # A starting broker tries the sockets it finds; who refuses is dead, and his file is removed.
    ("exporter", "connect"): tuple(e for e in SYSCALLS["connect"] if e != ECONNREFUSED),
}
DEFAULTS: dict[str, tuple[int, ...]] = {"futex": (), "fcntl": (), "epoll_ctl": (), "ioctl": ()}

DEVICE: dict[str, tuple[int, ...]] = {
    "GEM_CLOSE": (EINVAL, *_DEVICE_GONE),
    "PRIME_HANDLE_TO_FD": (EMFILE, ENFILE, ENOMEM, ENOENT, EPERM, EINTR, EBUSY, *_DEVICE_GONE),
    "PRIME_FD_TO_HANDLE": (ENOMEM, ENOSPC, EINVAL, EOPNOTSUPP, EINTR, *_DEVICE_GONE),
    "SYNCOBJ_CREATE": (ENOMEM, ENOSPC, *_DEVICE_GONE),
    "SYNCOBJ_DESTROY": (EINVAL, *_DEVICE_GONE),
    "SYNCOBJ_WAIT": (EINTR, ENOMEM, ETIME, *_DEVICE_GONE),
    "SYNCOBJ_TIMELINE_WAIT": (EINTR, ENOMEM, ETIME, *_DEVICE_GONE),
    "SYNCOBJ_RESET": (ENOMEM, ENOENT, *_DEVICE_GONE),
    "XE_VM_BIND": (
        *(EINTR, ENOMEM, ENOBUFS, ENOSPC, ENOENT, EINVAL, EBUSY, ECANCELED, EOPNOTSUPP, E2BIG),
        *_DEVICE_GONE,
    ),
    "XE_GEM_CREATE": (EINTR, ENOMEM, ENOSPC, *_DEVICE_GONE),
    "XE_GEM_MMAP_OFFSET": (ENOENT, ENOMEM, *_DEVICE_GONE),
    "XE_VM_CREATE": (ENOMEM, ENOSPC, *_DEVICE_GONE),
    "XE_VM_DESTROY": (ENOENT, EBUSY, *_DEVICE_GONE),
    "XE_EXEC_QUEUE_CREATE": (ENOMEM, ENOENT, *_DEVICE_GONE),
    "XE_EXEC_QUEUE_DESTROY": (ENOENT, *_DEVICE_GONE),
    "XE_EXEC": (EINTR, EAGAIN, ENOMEM, ENOSPC, ECANCELED, *_DEVICE_GONE),
}
DEVICE_DEFAULT = (EINTR, ENOMEM, *_DEVICE_GONE)


def name_of(call: Call) -> str:
    """How a call is called."""
    if call.number == DEVICE_CALL:
        return _device_name(call.detail)
    name = call_numbers().get(call.number, f"call_{call.number}")
    return f"{name}({call.detail})" if call.detail else name


def errnos_of(call: Call, side: Side) -> tuple[int, ...] | None:
    """What it can fail with; None: the table does not know it."""
    if call.number == DEVICE_CALL:
        return DEVICE.get(_device_name(call.detail), DEVICE_DEFAULT)
    name = call_numbers().get(call.number, "")
    if (side, name) in ON_SIDE:
        return ON_SIDE[side, name]
    if (row := DETAILS.get((name, call.detail))) is not None:
        return row
    return SYSCALLS.get(name, DEFAULTS.get(name))


def happens_anyway(call: Call) -> bool:
    """Whether the call has done its work even where it says that it failed."""
    return call_numbers().get(call.number) == "close"


def _device_name(request: int) -> str:
    from ze_ipc._mock import ffi, lib

    name = lib.xe_mock_ioctl_name(request & 0xFF)
    return ffi.string(name).decode() if name != ffi.NULL else hex(request)


ACCEPTED: tuple[tuple[str, int | None, str, str], ...] = (
    (
        *("GEM_CLOSE", None, "logged as an error: generation"),
        "an object that the kernel does not take back is told in the log, and goes with the device",
    ),
    (
        *("unlinkat", None, "socket file"),
        "a socket that cannot be removed goes when the next broker of its directory starts",
    ),
    (
        *("unlinkat", None, "left after device.close(): socket file"),
        "a socket that cannot be removed goes when the next broker of its directory starts",
    ),
    (
        *("mmap", None, "unraisable: MemoryError"),
        "a thread that had no memory to begin: its start() raised",
    ),
    (
        *("unlinkat", None, "left after"),
        "a file of the mock that it cannot remove goes with its process's directory",
    ),
)
"""(call, errno, what a finding begins with, the reason for which it is none)."""


def acceptable(call: Call, error: int, finding: str) -> str | None:
    """Why a finding is none after all, or None."""
    name = call_numbers().get(call.number, name_of(call))
    for known, number, beginning, reason in ACCEPTED:
        if known == name and number in (None, error) and finding.startswith(beginning):
            return f"{known}: {reason}"
    return None
