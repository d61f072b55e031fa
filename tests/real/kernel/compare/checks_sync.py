"""Syncobjs, and syncs as arguments of VM_BIND and EXEC."""

from __future__ import annotations

from collections.abc import Iterator

from .common import KIB, Fence, Platform, gem, op_fields, single, vm
from .script import Script, Value, sweep


def _syncobj(script: Script, fd: str, flags: int = 0) -> str:
    return script.ioctl(fd, "SYNCOBJ_CREATE", {"flags": flags}, keep="handle", show=["handle"])


def ioctls(platform: Platform) -> Iterator[Script]:
    def nothing(script: Script) -> tuple[str, dict[str, Value]]:
        return script.open(), {}

    wrong: dict[str, list[Value]] = {"handle": [5], "flags": [2, 1]}
    yield from sweep("syncobj-create", "SYNCOBJ_CREATE", nothing, wrong, ["handle"])

    def one(script: Script) -> tuple[str, dict[str, Value]]:
        fd = script.open()
        return fd, {"handle": _syncobj(script, fd, 1)}

    wrong = {"handle": [0, 9], "pad": [1]}
    yield from sweep("syncobj-destroy", "SYNCOBJ_DESTROY", one, wrong)
    wrong = {"handle": [0, 9], "flags": [4, 1, 2, 3], "fd": [7], "pad": [1], "point": [1]}
    yield from sweep("syncobj-to-fd", "SYNCOBJ_HANDLE_TO_FD", one, wrong)

    def from_fd(script: Script) -> tuple[str, dict[str, Value]]:
        fd, fields = one(script)
        file = script.ioctl(fd, "SYNCOBJ_HANDLE_TO_FD", fields, keep="fd")
        return fd, {"fd": file}

    wrong = {
        "handle": [1, 9],
        "flags": [4, 1, 2, 3],
        "fd": [0xFFFFFFFF, 0],
        "pad": [1],
        "point": [1],
    }
    yield from sweep("syncobj-from-fd", "SYNCOBJ_FD_TO_HANDLE", from_fd, wrong, ["handle"])

    def sync_file(script: Script) -> tuple[str, dict[str, Value]]:
        fd, fields = one(script)
        file = script.ioctl(fd, "SYNCOBJ_HANDLE_TO_FD", {**fields, "flags": 1}, keep="fd")
        return fd, {"fd": file, "flags": 1, "handle": fields["handle"]}

    wrong = {"handle": [0, 9], "flags": [0, 2, 3], "pad": [1], "point": [1]}
    yield from sweep("sync-file-from-fd", "SYNCOBJ_FD_TO_HANDLE", sync_file, wrong)

    def array(signalled: int) -> object:
        def setup(script: Script) -> tuple[str, dict[str, Value]]:
            fd = script.open()
            handles = script.buffer(4096)
            script.write_words(handles, [_syncobj(script, fd, signalled) for _ in range(2)], 4)
            return fd, {"handles": handles, "count_handles": 2}

        return setup

    for call in ("RESET", "SIGNAL"):
        wrong = {"handles": [0, 0x10], "count_handles": [0, 3, 1], "pad": [1]}
        setup = array(1)
        yield from sweep(f"syncobj-{call.lower()}", f"SYNCOBJ_{call}", setup, wrong)  # type: ignore[arg-type]
    for signalled in (0, 1):
        setup = array(signalled)
        wrong = {
            "handles": [0, 0x10], "timeout_nsec": [1, "@3000000"], "count_handles": [0, 3],
            "flags": [16, 1, 2, 3, 4, 8], "pad": [1], "deadline_nsec": [5],
        }  # fmt: skip
        title = f"syncobj-wait/signalled={signalled}"
        yield from sweep(title, "SYNCOBJ_WAIT", setup, wrong, ["first_signaled"])  # type: ignore[arg-type]
        wrong["points"] = [0x10]
        title = f"syncobj-timeline-wait/signalled={signalled}"
        yield from sweep(title, "SYNCOBJ_TIMELINE_WAIT", setup, wrong, ["first_signaled"])  # type: ignore[arg-type]

    def points(script: Script) -> tuple[str, dict[str, Value]]:
        fd = script.open()
        handles, values = script.buffer(4096), script.buffer(4096)
        script.write_words(handles, [_syncobj(script, fd), _syncobj(script, fd)], 4)
        script.write_words(values, [3, 5], 8)
        fields: dict[str, Value] = {"handles": handles, "points": values, "count_handles": 2}
        script.ioctl(fd, "SYNCOBJ_TIMELINE_SIGNAL", fields)
        return fd, fields

    def show_points(script: Script, fd: str) -> None:
        script.ioctl(fd, "SYNCOBJ_QUERY", {"handles": "&0", "points": "&1", "count_handles": 2})
        script.read("&1", "0:8", "8:8")

    wrong = {"handles": [0x10], "points": [0x10, 0], "count_handles": [0, 3], "flags": [2, 1]}
    for call in ("QUERY", "TIMELINE_SIGNAL"):
        title = f"syncobj-{call.lower().replace('_', '-')}"
        yield from sweep(title, f"SYNCOBJ_{call}", points, wrong, after=show_points)

    def transfer(script: Script) -> tuple[str, dict[str, Value]]:
        fd, _ = points(script)
        return fd, {"src_handle": 1, "dst_handle": 2, "src_point": 3, "dst_point": 7}

    wrong = {
        "src_handle": [9], "dst_handle": [9], "src_point": [4, 0, 2], "dst_point": [0, 5, 1],
        "flags": [1, 2], "pad": [1],
    }  # fmt: skip
    yield from sweep("syncobj-transfer", "SYNCOBJ_TRANSFER", transfer, wrong, after=show_points)

    def event(script: Script) -> tuple[str, dict[str, Value]]:
        fd = script.open()
        return fd, {"handle": _syncobj(script, fd), "fd": fd}

    wrong = {"handle": [9], "flags": [1, 4], "point": [1], "fd": [0xFFFFFFFF], "pad": [1]}
    yield from sweep("syncobj-eventfd", "SYNCOBJ_EVENTFD", event, wrong)


def in_binds(platform: Platform) -> Iterator[Script]:
    """Every field of a sync wrong in turn and in pairs, in binds of one and of no operation."""
    kinds: dict[str, dict[str, Value]] = {
        "signal": {"type": 0, "flags": 1}, "wait": {"type": 0},
        "timeline-signal": {"type": 1, "flags": 1, "timeline_value": 4},
        "timeline-wait": {"type": 1, "timeline_value": 1},
        "fence": {"type": 2, "flags": 1, "timeline_value": 1},
    }  # fmt: skip
    wrong: tuple[tuple[str, Value], ...] = (
        ("extensions", 1), ("type", 3), ("flags", 2), ("flags", 0), ("flags", 1), ("handle", 9),
        ("addr", 2**40 | 1), ("addr", 4), ("addr", 0x10), ("timeline_value", 0),
        ("timeline_value", 99), ("reserved[0]", 1), ("reserved[1]", 1),
    )  # fmt: skip
    for kind, right in kinds.items():
        for mode in (0, 2):
            for binds in (0, 1):
                changes: list[tuple[tuple[str, Value], ...]] = [()]
                changes += [(change,) for change in wrong]
                changes += (
                    [(a, b) for i, a in enumerate(wrong) for b in wrong[i + 1 :] if a[0] != b[0]]
                    if mode == 0 and binds == 1
                    else []
                )
                for change in changes:
                    text = "+".join(f"{name}={value}" for name, value in change) or "right"
                    script = Script(f"sync/{kind}/mode={mode}/binds={binds}/{text}")
                    fd = script.open()
                    space = vm(script, fd, mode)
                    handle = gem(script, fd)
                    word, sync = script.buffer(4096), script.buffer(4096)
                    target: dict[str, Value] = {"addr": word}
                    if kind != "fence":
                        target = {"handle": _syncobj(script, fd, 0 if "signal" in kind else 1)}
                    if kind == "timeline-wait":
                        script.write_words(word, [1], 4)
                        script.write_words(word, [1], 8, at=64)
                        more: dict[str, Value] = {
                            "handles": word, "points": f"{word}+64", "count_handles": 1,
                        }  # fmt: skip
                        script.ioctl(fd, "SYNCOBJ_TIMELINE_SIGNAL", more)
                    script.write(sync, "drm_xe_sync", {**right, **target, **dict(change)})
                    fields: dict[str, Value] = {"vm_id": space, "num_syncs": 1, "syncs": sync}
                    operation = single(op_fields(obj=handle)) if binds else {"num_binds": 0}
                    script.ioctl(fd, "XE_VM_BIND", {**fields, **operation})
                    yield script


def several(platform: Platform) -> Iterator[Script]:
    script = Script("sync/two-fences")
    fd = script.open()
    space = vm(script, fd)
    word, syncs = script.buffer(4096), script.buffer(4096)
    for index in range(2):
        fields: dict[str, Value] = {
            "type": 2, "flags": 1, "addr": f"{word}+{8 * index}", "timeline_value": 1,
        }  # fmt: skip
        script.write(syncs, "drm_xe_sync", fields, at=48 * index)
    call: dict[str, Value] = {"vm_id": space, "num_syncs": 2, "syncs": syncs}
    script.ioctl(fd, "XE_VM_BIND", {**call, **single(op_fields(obj=gem(script, fd)))})
    yield script
    for count in (1, 2, 100, 1024, 1025):
        script = Script(f"sync/many={count}")
        fd = script.open()
        space = vm(script, fd)
        syncs = script.buffer(64 * KIB)
        signalled = _syncobj(script, fd, 1)
        for index in range(count):
            script.write(syncs, "drm_xe_sync", {"handle": signalled}, at=48 * index)
        call = {"vm_id": space, "num_syncs": count, "syncs": syncs}
        script.ioctl(fd, "XE_VM_BIND", {**call, **single(op_fields(obj=gem(script, fd)))})
        yield script
    script = Script("sync/bind-waits-for-syncobj")
    fd = script.open()
    space = vm(script, fd)
    gate, done = _syncobj(script, fd), _syncobj(script, fd)
    syncs, handles = script.buffer(4096), script.buffer(4096)
    script.write(syncs, "drm_xe_sync", {"handle": gate})
    script.write(syncs, "drm_xe_sync", {"handle": done, "flags": 1}, at=48)
    call = {"vm_id": space, "num_syncs": 2, "syncs": syncs}
    operation = single(op_fields(obj=gem(script, fd)))
    script.ioctl(fd, "XE_VM_BIND", {**call, **operation})
    script.write_words(handles, [gate], 4)
    script.ioctl(fd, "SYNCOBJ_SIGNAL", {"handles": handles, "count_handles": 1})
    script.ioctl(fd, "XE_VM_BIND", {**call, **operation})
    script.write_words(handles, [done], 4)
    wait: dict[str, Value] = {"handles": handles, "count_handles": 1, "timeout_nsec": "@3000000000"}
    script.ioctl(fd, "SYNCOBJ_WAIT", wait, show=["first_signaled"])
    yield script
    script = Script("sync/fence-blocks-split-until-signalled")
    fd = script.open()
    space = vm(script, fd)
    fence = Fence(script)
    handle = gem(script, fd)
    script.ioctl(fd, "XE_VM_BIND", {"vm_id": space, **single(op_fields(obj=handle)), **fence.arm()})
    fence.wait(fd)
    script.read(fence.word, "0:8")
    script.ioctl(fd, "XE_VM_BIND", {"vm_id": space, **single(op_fields(size=4 * KIB, obj=handle))})
    yield script


FAMILIES = (ioctls, in_binds, several)
