"""Building scripts for guest/runner.c by field names, and reading what it printed.

A value is an int or an expression of the runner: "$N" a slot, "&N" a buffer. Slots and buffers are
handed out by the script, so that what one call returned can be an argument of a later one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from .uapi import UAPI

Value = int | str
Fields = Mapping[str, Value]

STRUCTS = {
    "VERSION": "drm_version", "GET_CAP": "drm_get_cap", "SET_CLIENT_CAP": "drm_set_client_cap",
    "SET_CLIENT_NAME": "drm_set_client_name", "GEM_CLOSE": "drm_gem_close",
    "GEM_FLINK": "drm_gem_flink", "GEM_OPEN": "drm_gem_open",
    "GEM_CHANGE_HANDLE": "drm_gem_change_handle", "PRIME_HANDLE_TO_FD": "drm_prime_handle",
    "PRIME_FD_TO_HANDLE": "drm_prime_handle", "SYNCOBJ_CREATE": "drm_syncobj_create",
    "SYNCOBJ_DESTROY": "drm_syncobj_destroy", "SYNCOBJ_HANDLE_TO_FD": "drm_syncobj_handle",
    "SYNCOBJ_FD_TO_HANDLE": "drm_syncobj_handle", "SYNCOBJ_WAIT": "drm_syncobj_wait",
    "SYNCOBJ_RESET": "drm_syncobj_array", "SYNCOBJ_SIGNAL": "drm_syncobj_array",
    "SYNCOBJ_TIMELINE_WAIT": "drm_syncobj_timeline_wait",
    "SYNCOBJ_QUERY": "drm_syncobj_timeline_array", "SYNCOBJ_TRANSFER": "drm_syncobj_transfer",
    "SYNCOBJ_TIMELINE_SIGNAL": "drm_syncobj_timeline_array",
    "SYNCOBJ_EVENTFD": "drm_syncobj_eventfd", "XE_DEVICE_QUERY": "drm_xe_device_query",
    "XE_GEM_CREATE": "drm_xe_gem_create", "XE_GEM_MMAP_OFFSET": "drm_xe_gem_mmap_offset",
    "XE_VM_CREATE": "drm_xe_vm_create", "XE_VM_DESTROY": "drm_xe_vm_destroy",
    "XE_VM_BIND": "drm_xe_vm_bind", "XE_EXEC_QUEUE_CREATE": "drm_xe_exec_queue_create",
    "XE_EXEC_QUEUE_DESTROY": "drm_xe_exec_queue_destroy",
    "XE_EXEC_QUEUE_GET_PROPERTY": "drm_xe_exec_queue_get_property", "XE_EXEC": "drm_xe_exec",
    "XE_WAIT_USER_FENCE": "drm_xe_wait_user_fence", "XE_OBSERVATION": "drm_xe_observation_param",
    "XE_MADVISE": "drm_xe_madvise",
    "XE_VM_QUERY_MEM_RANGE_ATTRS": "drm_xe_vm_query_mem_range_attr",
    "XE_EXEC_QUEUE_SET_PROPERTY": "drm_xe_exec_queue_set_property",
    "XE_VM_GET_PROPERTY": "drm_xe_vm_get_property", "DMA_BUF_SYNC": "dma_buf_sync",
    "DMA_BUF_EXPORT_SYNC_FILE": "dma_buf_export_sync_file",
    "DMA_BUF_IMPORT_SYNC_FILE": "dma_buf_import_sync_file",
}  # fmt: skip


def request(call: str) -> int:
    if call.startswith("DMA_BUF_"):
        return UAPI.constants["DMA_BUF_IOCTL_" + call.removeprefix("DMA_BUF_")]
    return UAPI.constants["DRM_IOCTL_" + call]


def constant(name: str) -> int:
    return UAPI.constants[name]


class Script:
    """One script; the methods append a line each and return the new slot or buffer, if any."""

    def __init__(self, name: str) -> None:
        if any(character.isspace() for character in name):
            raise ValueError(f"blank in {name!r}")
        self.name = name
        self.lines: list[str] = []
        self._slots = itertools.count()
        self._buffers = itertools.count()

    def __str__(self) -> str:
        return f"S {self.name}\n" + "".join(line + "\n" for line in self.lines)

    def slot(self) -> str:
        return f"${next(self._slots)}"

    def _line(self, *words: object) -> None:
        self.lines.append(" ".join(str(word) for word in words))

    def open(self, node: int = 0) -> str:
        slot = self.slot()
        self._line("O", slot[1:], node)
        return slot

    def ioctl(
        self,
        fd: str,
        call: str,
        fields: Fields | None = None,
        keep: str | None = None,
        show: Sequence[str] = (),
        always: Sequence[str] = (),
    ) -> str:
        """One call; returns the slot of output field `keep` ("$255", never set, without it)."""
        layout = UAPI.structs[STRUCTS[call]]
        words = [f"{layout[name]}={value}" for name, value in (fields or {}).items()]
        slot = "$255"
        if keep is not None:
            slot = self.slot()
            words.append(f"{layout[keep]}>{slot[1:]}")
        words.extend(f"{layout[name]}?" for name in show)
        words.extend(f"{layout[name]}!" for name in always)
        self._line("I", fd[1:], hex(request(call)), layout.size, *words)
        return slot

    def raw(self, fd: str, number: int, size: int, *words: str) -> None:
        """A call with a number, a size and words of the runner's own syntax."""
        self._line("I", fd[1:], hex(number), size, *words)

    def buffer(self, size: int) -> str:
        name = f"&{next(self._buffers)}"
        self._line("B", name[1:], size)
        return name

    def write(self, buffer: str, struct: str, fields: Fields, at: int = 0) -> None:
        layout = UAPI.structs[struct]
        words = []
        for name, value in fields.items():
            field = layout[name]
            words.append(f"{at + field.offset}:{field.width}={value}")
        if words:
            self._line("W", buffer[1:], *words)

    def write_words(self, buffer: str, values: Sequence[Value], width: int, at: int = 0) -> None:
        words = [f"{at + width * i}:{width}={value}" for i, value in enumerate(values)]
        self._line("W", buffer[1:], *words)

    def read(self, buffer: str, *fields: str) -> None:
        self._line("R", buffer[1:], *fields)

    def mmap(self, size: int, fd: Value, offset: Value, prot: int = 3, flags: int = 1) -> str:
        slot = self.slot()
        self._line("M", slot[1:], size, prot, flags, fd, offset)
        return slot

    def munmap(self, address: str, size: int) -> None:
        self._line("U", address[1:], size)

    def load(self, address: str, offset: int, width: int = 4) -> None:
        self._line("G", address[1:], f"{offset}:{width}")

    def store(self, address: str, offset: int, value: Value, width: int = 4) -> None:
        self._line("T", address[1:], f"{offset}:{width}={value}")

    def memfd(self, size: int) -> str:
        slot = self.slot()
        self._line("V", slot[1:], size)
        return slot

    def dup(self, fd: str) -> str:
        slot = self.slot()
        self._line("D", slot[1:], fd[1:])
        return slot

    def close(self, fd: str) -> None:
        self._line("X", fd[1:])

    def lseek(self, fd: str, offset: int, whence: int) -> None:
        self._line("K", fd[1:], offset, whence)

    def same_inode(self, one: str, other: str) -> None:
        self._line("Q", one[1:], other[1:])

    def if_done(self) -> None:
        """The next line is left out if the last call failed."""
        self._line("E", 0)

    def dup_if_failed(self, slot: str, fd: str) -> None:
        """After a call that failed: `slot`, which it did not set, becomes a duplicate of `fd`."""
        self._line("E", 1)
        self._line("D", slot[1:], fd[1:])

    def sleep(self, milliseconds: int) -> None:
        self._line("Z", milliseconds)


Setup = Callable[[Script], tuple[str, dict[str, Value]]]
"""Prepares a script; returns the fd and the fields of a call that succeeds."""


def sweep(
    title: str,
    call: str,
    setup: Setup,
    wrong: Mapping[str, Sequence[Value]],
    show: Sequence[str] = (),
    after: Callable[[Script, str], None] | None = None,
    pairs: bool = True,
) -> Iterator[Script]:
    """The right call, each field wrong in turn, and every pair of wrong fields (first value each).

    Pairs of fields that share bytes are left out: they are one field.
    """
    layout = UAPI.structs[STRUCTS[call]]

    def build(name: str, changes: Fields) -> Script:
        script = Script(f"{title}/{name}")
        fd, fields = setup(script)
        script.ioctl(fd, call, {**fields, **changes}, show=show)
        if after is not None:
            after(script, fd)
        return script

    yield build("right", {})
    for name, values in wrong.items():
        for value in values:
            yield build(f"{name}={value}", {name: value})
    if not pairs:
        return
    for one, other in itertools.combinations(wrong, 2):
        first, second = layout[one], layout[other]
        if (
            first.offset < second.offset + second.width
            and second.offset < first.offset + first.width
        ):
            continue
        changes = {one: wrong[one][0], other: wrong[other][0]}
        yield build("+".join(f"{name}={value}" for name, value in changes.items()), changes)


def parse(text: str) -> dict[str, list[str]]:
    """What the runner printed, by script name, one string a line."""
    results: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if line.startswith("S "):
            current = results.setdefault(line[2:].strip(), [])
        elif line:
            current.append(line)
    return results
