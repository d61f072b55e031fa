"""Runs a record of ``ze_ipc.trace`` again on the mock, and says where it goes another way.

All processes of the record are played in one, each with devices of its own. An ioctl that failed in
the record fails here with the same errno, so that a driver's refusal is met by the same code.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ze_ipc import mock, trace
from ze_ipc.device import Device, OpenCheck
from ze_ipc.errors import InvalidArgument, ZeIpcError
from ze_ipc.open_device import open_device
from ze_ipc.policy import Policy


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a replay ended."""

    calls: int
    """Calls that did as recorded."""
    ioctls: int
    """Ioctls in the record."""
    line: int = 0
    """Of the first call that did something else; 0: none."""
    call: str = ""
    recorded: Any = None
    seen: Any = None

    @property
    def same(self) -> bool:
        return not self.line


def replay(path: Path) -> Outcome:
    """Play a record to its first difference; InvalidArgument for a file that is none."""
    with ExitStack() as held:
        return _Player(held).play(path)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}", call="replay") from error
    for number, line in enumerate(text.splitlines(), 1):
        try:
            parsed = json.loads(line)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict) or not isinstance(parsed.get("pid"), int):
            raise InvalidArgument(
                f"line {number} of {path} is none of a trace",
                call="replay",
                hint="make one with ze-ipc trace -- COMMAND",
            )
        if "trace" in parsed and parsed["trace"] != trace.VERSION:
            raise InvalidArgument(
                f"a trace of version {parsed['trace']}", call="replay", hint="replay it there"
            )
        yield number, parsed


class _Player:
    def __init__(self, held: ExitStack) -> None:
        self._held = held
        self._owners: dict[str, Any] = {}
        self._handles: dict[str, bytes] = {}
        self._places: dict[str, int] = {}
        """Mock devices by the recorded UUID: the same GPU in all processes."""
        self._failed: dict[int, list[tuple[int, int, int]]] = {}
        """By thread: (ioctl, how many of its kind since its last call, errno)."""
        self._made: dict[int, Counter[int]] = {}

    def play(self, path: Path) -> Outcome:
        calls = ioctls = 0
        for number, line in _lines(path):
            if "ioctl" in line:
                ioctls += 1
                self._remember(line)
            elif "opened" in line:
                self._open(line)
            elif "call" in line:
                recorded = self._known(line)
                seen = self._known(self._again(line))
                if recorded != seen:
                    return Outcome(calls, ioctls, number, line["call"], recorded, seen)
                calls += 1
        return Outcome(calls, ioctls)

    def _remember(self, line: dict[str, Any]) -> None:
        tid = line["tid"]
        made = self._made.setdefault(tid, Counter())
        made[line["ioctl"]] += 1
        if line["errno"]:
            failure = line["ioctl"], made[line["ioctl"]], line["errno"]
            self._failed.setdefault(tid, []).append(failure)

    def _open(self, line: dict[str, Any]) -> None:
        place = self._places.setdefault(line["device"]["uuid"], len(self._places))
        # What a device asks when it is opened is answered by the mock as it likes.
        self._forget(line["tid"])
        self._owners[line["opened"]] = self._held.enter_context(open_device("mock", place))

    def _forget(self, tid: int) -> list[tuple[int, int, int]]:
        self._made.pop(tid, None)
        return self._failed.pop(tid, [])

    def _again(self, line: dict[str, Any]) -> dict[str, Any]:
        failed = self._forget(line["tid"])
        owner = self._owners.get(line["on"])
        if owner is None:
            return {"raised": {"error": f"{line['on']} was never made"}}
        method = getattr(owner, line["call"].partition(".")[2])
        device = owner if isinstance(owner, Device) else owner._device
        faults = mock.MockDevice.attached(int(device.render_node.rpartition(":")[2]))
        try:
            given = {name: self._given(name, value) for name, value in line["given"].items()}
            for request, nth, error in failed:
                faults.fail_number(request, nth, error)
            result = method(**given)
        except ZeIpcError as error:
            return {"raised": trace.raised(error)}
        finally:
            faults.clear_faults()
        return {"result": self._result(line.get("result"), result, device)}

    def _given(self, name: str, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if "ref" in value:
            return self._owners[value["ref"]]
        if "handle" in value:
            return self._handles.get(value["handle"], bytes(64))
        if "bytes" in value:
            return bytes(value["bytes"])
        if "policy" in value:
            return Policy(read_only=value["policy"])
        if "in" in value:
            return self._owners[value["in"]].ptr + value["at"]
        return value["address"]

    def _result(self, recorded: Any, value: Any, device: Device) -> Any:
        """A result as the trace would write it, under the names of the record."""
        if type(value) in trace.KINDS and isinstance(recorded, dict) and "new" in recorded:
            self._owners[recorded["new"]] = self._held.enter_context(value)
            found = {"new": recorded["new"]}
            if "size" in recorded:
                found["size"] = value.size
            if "handle" in recorded:
                self._handles[recorded["handle"]] = bytes(value)
                found["handle"] = recorded["handle"]
            return found
        if isinstance(value, bytes):
            return {"bytes": len(value)}
        if isinstance(value, OpenCheck):
            return {"ok": value.ok, "error": value.error and trace.raised(value.error)}
        if isinstance(value, tuple):
            start, size = value
            spans = {name: owner for name, owner in self._owners.items() if hasattr(owner, "ptr")}
            found = trace.place(start, device, spans.values())
            if found is None:
                return {"range": [{"address": start}, size]}
            (name,) = (name for name, owner in spans.items() if owner is found)
            return {"range": [{"in": name, "at": start - found.ptr}, size]}
        return value

    def _known(self, line: dict[str, Any]) -> Any:
        return {"raised": line["raised"]} if "raised" in line else {"result": line.get("result")}
