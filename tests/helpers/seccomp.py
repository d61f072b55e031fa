"""Filters of system calls, as containers have them, for a process that starts Python in them:
``python seccomp.py FILTER COMMAND...`` runs the command under ``docker`` or ``no-ptrace``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
_AUDIT_ARCH = {"x86_64": 0xC000003E}
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
_NAMESPACES = 0x7E020000
"""CLONE_NEW* but that of time, which clone() does not know."""

PTRACE_LIKE = {
    "ptrace": 101,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "pidfd_getfd": 438,
    "process_madvise": 440,
}
"""Calls that ask for the right to ptrace another process; numbers of x86-64."""

ADMINISTRATION = {
    "uselib": 134,
    "ustat": 136,
    "sysfs": 139,
    "pivot_root": 155,
    "clock_settime": 227,
    "acct": 163,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "iopl": 172,
    "ioperm": 173,
    "init_module": 175,
    "delete_module": 176,
    "quotactl": 179,
    "nfsservctl": 180,
    "lookup_dcookie": 212,
    "mbind": 237,
    "set_mempolicy": 238,
    "get_mempolicy": 239,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "migrate_pages": 256,
    "unshare": 272,
    "move_pages": 279,
    "perf_event_open": 298,
    "fanotify_init": 300,
    "open_by_handle_at": 304,
    "clock_adjtime": 305,
    "setns": 308,
    "finit_module": 313,
    "kexec_file_load": 320,
    "bpf": 321,
    "userfaultfd": 323,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "vhangup": 153,
    "settimeofday": 164,
    "syslog": 103,
}
"""What Docker's default profile keeps from a container without capabilities; x86-64."""
_CLONE, _CLONE3 = 56, 435


def machine_is_known() -> bool:
    """Whether the numbers here are this machine's."""
    return platform.machine() in _AUDIT_ARCH


def program(name: str) -> bytes:
    """The filter as BPF.

    ``docker``: EPERM for administration and for what needs ptrace's right, clone() of namespaces,
    and ENOSYS for clone3(), whose flags a filter cannot see. ``no-ptrace``: death by ptrace.
    """
    lines = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _AUDIT_ARCH[platform.machine()]),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    refused = {
        "docker": {
            **dict.fromkeys([*ADMINISTRATION.values(), *PTRACE_LIKE.values()], ERRNO | errno.EPERM),
            _CLONE3: ERRNO | errno.ENOSYS,
        },
        "no-ptrace": dict.fromkeys(PTRACE_LIKE.values(), KILL),
    }[name]
    for number, answer in refused.items():
        lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, answer)]
    if name == "docker":
        lines += [
            (_EQUAL, 0, 3, _CLONE),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_ANY_BIT, 0, 1, _NAMESPACES),
            (_RETURN, 0, 0, ERRNO | errno.EPERM),
        ]
    lines.append((_RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def install(name: str) -> None:
    """Put this process, and all that it starts, under a filter, for ever."""
    code = ctypes.create_string_buffer(program(name))
    count = len(program(name)) // 8
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", count, ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, header, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    install(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])
