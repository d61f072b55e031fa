"""Points of timelines wherever they get to: a fence that is a point stays one.

A syncobj is a place for a fence. The last point of a timeline is a fence, too, and holds those
before it: moved into another syncobj (by TRANSFER or a sync_file) it brings its numbers along.

A sync_file of a point is never put in as a point (flag TIMELINE) here: 7.2.13 does it, but warns of
it (a WARN_ON of dma_fence_chain_init), and what warned is no judge any more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from .checks_exec import BATCH, DATA, Gpu
from .common import BATCH_END, SECOND, Platform
from .script import Script, Value

SYNC_FILE, SYNC_FILE_POINT = 1, 3
"""Flags of both calls about descriptors: a fence, and that of a point."""
LAST_SUBMITTED = 1
MERGE, MERGE_SIZE = 0xC0303E03, 48
"""SYNC_IOC_MERGE; fd2 is its field 32:4, the new descriptor 36:4."""
JOBS = 2


class Points:
    """Syncobjs of one file, and jobs that end when the script says so."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.gpu: Gpu | None = None
        self._running: dict[int, str] = {}
        """Syncobjs that jobs signal, by number."""
        self.fd = script.open()
        self._handles, self._points = script.buffer(4096), script.buffer(4096)

    def syncobj(self, flags: int = 0) -> str:
        return self.script.ioctl(self.fd, "SYNCOBJ_CREATE", {"flags": flags}, keep="handle")

    def _array(self, call: str, handle: str, point: Value, **more: Value) -> None:
        self.script.write_words(self._handles, [handle], 4)
        self.script.write_words(self._points, [point], 8)
        fields: dict[str, Value] = {"handles": self._handles, "count_handles": 1, **more}
        if call not in ("SYNCOBJ_RESET", "SYNCOBJ_SIGNAL", "SYNCOBJ_WAIT"):
            fields["points"] = self._points
        show = ["first_signaled"] if "WAIT" in call else []
        self.script.ioctl(self.fd, call, fields, show=show)

    def signal(self, handle: str, point: Value = 0) -> None:
        self._array("SYNCOBJ_TIMELINE_SIGNAL" if point else "SYNCOBJ_SIGNAL", handle, point)

    def reset(self, handle: str) -> None:
        self._array("SYNCOBJ_RESET", handle, 0)

    def wait(self, handle: str, point: Value, seconds: float = 0) -> None:
        timeout: Value = f"@{int(seconds * SECOND)}" if seconds else 0
        self._array("SYNCOBJ_TIMELINE_WAIT", handle, point, timeout_nsec=timeout)

    def query(self, handle: str) -> None:
        for flags in (0, LAST_SUBMITTED):
            self._array("SYNCOBJ_QUERY", handle, 99, flags=flags)
            self.script.read(self._points, "0:8")

    def transfer(self, source: str, point: Value, target: str, to_point: Value) -> None:
        fields: dict[str, Value] = {
            "src_handle": source, "src_point": point, "dst_handle": target, "dst_point": to_point,
        }  # fmt: skip
        self.script.ioctl(self.fd, "SYNCOBJ_TRANSFER", fields)

    def to_file(self, handle: str, point: Value = 0) -> str:
        flags = SYNC_FILE_POINT if point else SYNC_FILE
        fields: dict[str, Value] = {"handle": handle, "flags": flags, "point": point}
        return self.script.ioctl(self.fd, "SYNCOBJ_HANDLE_TO_FD", fields, keep="fd")

    def from_file(self, file: str, handle: str, point: Value = 0) -> None:
        flags = SYNC_FILE_POINT if point else SYNC_FILE
        fields: dict[str, Value] = {"fd": file, "handle": handle, "flags": flags, "point": point}
        self.script.ioctl(self.fd, "SYNCOBJ_FD_TO_HANDLE", fields)

    def merge(self, one: str, other: str) -> str:
        slot = self.script.slot()
        self.script.raw(one, MERGE, MERGE_SIZE, f"32:4={other}", f"36:4>{slot[1:]}")
        return slot

    def look(self, handle: str) -> None:
        self.query(handle)
        for point in (0, 1, 4, 5, 6, 9, 10, 20, 21):
            self.wait(handle, point)

    def start(self, handle: str, point: Value, job: int) -> None:
        """Job 0 or 1 signals the point (0: the syncobj's fence) once it is let go."""
        gpu = self.gpu or Gpu(self.script, fd=self.fd)
        script = self.script
        if self.gpu is None:
            self.gpu = gpu
            for number in range(JOBS):
                # MI_SEMAPHORE_WAIT, polling, until the dword is 1 or more.
                words = (0x1C << 23 | 3 | 1 << 15 | 1 << 12, 1, DATA + 64 * number, 0, 0, BATCH_END)
                for at, word in enumerate(words):
                    script.store(gpu.batch, 0x100 * number + 4 * at, word)
        fields: dict[str, Value] = {
            "type": 1 if point else 0, "flags": 1, "handle": handle, "timeline_value": point,
        }  # fmt: skip
        syncs = script.buffer(4096)
        script.write(syncs, "drm_xe_sync", fields)
        self._running[job] = self.syncobj()
        script.write(syncs, "drm_xe_sync", {"flags": 1, "handle": self._running[job]}, 48)
        call: dict[str, Value] = {
            "exec_queue_id": gpu.queue, "num_syncs": 2, "syncs": syncs, "num_batch_buffer": 1,
            "address": BATCH + 0x100 * job,
        }  # fmt: skip
        script.ioctl(self.fd, "XE_EXEC", call)

    def let_go(self, job: int) -> None:
        if self.gpu is not None and job in self._running:
            self.script.store(self.gpu.data, 64 * job, 1)
            self.wait(self._running.pop(job), 0, 5)


Fill = Callable[[Points, str], None]


def _signalled(points: Points, handle: str) -> None:
    points.signal(handle, 5)
    points.signal(handle, 9)


def _pending(points: Points, handle: str) -> None:
    points.signal(handle, 3)
    points.start(handle, 5, 0)
    points.signal(handle, 9)


def _two_pending(points: Points, handle: str) -> None:
    points.start(handle, 5, 0)
    points.signal(handle, 7)
    points.start(handle, 9, 1)


def _going_back(points: Points, handle: str) -> None:
    points.start(handle, 5, 0)
    points.signal(handle, 9)
    points.signal(handle, 4)


def _twice(points: Points, handle: str) -> None:
    points.start(handle, 9, 0)
    points.start(handle, 9, 1)


def _behind_a_binary_one(points: Points, handle: str) -> None:
    points.start(handle, 0, 0)
    points.signal(handle, 5)
    points.start(handle, 9, 1)


FILLS: dict[str, Fill] = {
    "signalled": _signalled, "pending": _pending, "two-pending": _two_pending,
    "going-back": _going_back, "twice": _twice, "behind-a-binary-one": _behind_a_binary_one,
}  # fmt: skip


def _move(points: Points, way: str, source: str, target: str) -> None:
    verb, _, rest = way.partition("-")
    point, _, to_point = rest.partition("-to-")
    if verb == "transfer":
        points.transfer(source, int(point), target, int(to_point))
        return
    file = points.to_file(source, int(point))
    if verb == "merge":
        other = points.syncobj(1)
        file = points.merge(file, points.to_file(other) if to_point == "other" else file)
        to_point = "0"
    points.from_file(file, target, int(to_point))


WAYS = (
    "transfer-0-to-0", "transfer-5-to-0", "transfer-6-to-0", "transfer-9-to-0", "transfer-0-to-20",
    "transfer-5-to-4", "file-0-to-0", "file-5-to-0", "file-6-to-0", "file-10-to-0",
    "merge-0-to-self", "merge-9-to-other",
)  # fmt: skip


def moved(platform: Platform) -> Iterator[Script]:
    """Every kind of point by every way into every kind of place; while jobs run and after."""
    places = ("empty", "signalled", "timeline")
    for (name, fill), way, place in itertools.product(FILLS.items(), WAYS, places):
        if place != "empty" and name in ("pending", "twice"):
            continue
        script = Script(f"timeline/{name}/{way}/{place}")
        points = Points(script)
        source, target = points.syncobj(), points.syncobj()
        if place != "empty":
            points.signal(target, 10 if place == "timeline" else 0)
        fill(points, source)
        points.query(source)
        _move(points, way, source, target)
        points.look(target)
        points.let_go(0)
        points.look(target)
        points.let_go(1)
        points.look(target)
        yield script


def gone_on(platform: Platform) -> Iterator[Script]:
    """What is done to a syncobj that a point was moved into, and to the timeline it left."""
    plans: dict[str, Callable[[Points, str, str], None]] = {
        "point-after": lambda points, source, target: points.signal(target, 20),
        "point-before": lambda points, source, target: points.signal(target, 4),
        "same-point": lambda points, source, target: points.signal(target, 9),
        "job": lambda points, source, target: points.start(target, 10, 1),
        "binary-job": lambda points, source, target: points.start(target, 0, 1),
        "signal": lambda points, source, target: points.signal(target),
        "reset": lambda points, source, target: points.reset(target),
        "source-goes-on": lambda points, source, target: points.signal(source, 20),
        "source-reset": lambda points, source, target: points.reset(source),
        "both-go-on": lambda points, source, target: (
            points.signal(source, 20), points.signal(target, 10), None)[-1],
        "back-again": lambda points, source, target: points.transfer(target, 0, source, 0),
        "in-a-circle": lambda points, source, target: points.transfer(target, 0, source, 20),
        "onto-itself": lambda points, source, target: points.transfer(target, 0, target, 20),
    }  # fmt: skip
    for (name, plan), fill, way in itertools.product(
        plans.items(), ("signalled", "pending", "going-back"), ("transfer-9-to-0", "file-5-to-0")
    ):
        script = Script(f"timeline/then/{name}/{fill}/{way}")
        points = Points(script)
        source, target, extra = points.syncobj(), points.syncobj(), points.syncobj()
        FILLS[fill](points, source)
        _move(points, way, source, target)
        plan(points, source, target)
        for handle in (source, target):
            points.look(handle)
        # A file made earlier, imported when what it stands for has happened.
        file = points.to_file(target)
        points.let_go(0)
        points.look(target)
        points.let_go(1)
        points.from_file(file, extra)
        for handle in (source, target, extra):
            points.look(handle)
        yield script


def binary_files(platform: Platform) -> Iterator[Script]:
    """A fence that is no point, put in as one: from a sync_file, with the flag TIMELINE."""
    for pending, place, point in itertools.product(
        (False, True), ("empty", "timeline", "pending"), (1, 6, 20)
    ):
        script = Script(f"timeline/binary-file/pending={pending}/{place}/point={point}")
        points = Points(script)
        source, target = points.syncobj(0 if pending else 1), points.syncobj()
        if pending:
            points.start(source, 0, 0)
        file = points.to_file(source)
        if place == "timeline":
            points.signal(target, 5)
        if place == "pending":
            points.start(target, 5, 1)
        points.from_file(file, target, point)
        points.look(target)
        points.from_file(points.to_file(target, point), source)
        points.look(source)
        points.let_go(0)
        points.let_go(1)
        points.look(target)
        points.look(source)
        yield script


FAMILIES = (moved, gone_on, binary_files)
