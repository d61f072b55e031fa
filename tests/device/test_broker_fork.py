"""A broker belongs to the process that made it: the child of a fork neither answers nor uses it."""

from __future__ import annotations

import os
import time
import traceback
import warnings
from collections.abc import Callable

import pytest

from helpers.broker_fakes import FakeExport, expected, fd_count, open_range
from helpers.waiting import eventually
from ze_ipc.broker import Broker
from ze_ipc.errors import ExporterGone, ForkedProcess, HandleRevoked


def in_child(work: Callable[[], None]) -> int:
    """Fork and run ``work`` there; the pid, with status 0 to come if nothing was raised."""
    with warnings.catch_warnings():
        # 3.12 warns of fork() beside threads, which is what this is about.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_child_cannot_use_it() -> None:
    with Broker() as broker:
        export = FakeExport()
        handle = broker.handle_fields(*broker.register(export))

        def work() -> None:
            for use in (
                lambda: broker.register(FakeExport()),
                lambda: broker.revoke(handle.generation),
                lambda: broker.importers(handle.generation),
            ):
                with pytest.raises(ForkedProcess):
                    use()
            broker.revoke_later(handle.generation)
            broker.close()
            assert repr(broker)
            assert export.events == []
            # The parent answers, also to its child.
            assert open_range(handle) == expected(export)

        assert status_of(in_child(work)) == 0
        assert open_range(handle) == expected(export)
    with pytest.raises(ExporterGone):
        open_range(handle)


def test_child_holds_none_of_its_fds() -> None:
    fds = fd_count()
    with Broker() as broker:
        open_range(broker.handle_fields(*broker.register(FakeExport())))
        assert eventually(lambda: broker.importers(1) != [])
        assert fd_count() > fds

        def work() -> None:
            assert fd_count() == fds

        assert status_of(in_child(work)) == 0


def test_child_does_not_keep_the_door_open() -> None:
    """While a forked child lives, the parent's end is still an end."""
    broker = Broker()
    handle = broker.handle_fields(*broker.register(FakeExport()))
    read, write = os.pipe()

    def wait_for_the_parent() -> None:
        os.close(write)
        os.read(read, 1)

    pid = in_child(wait_for_the_parent)
    try:
        broker.close()
        begun = time.monotonic()
        with pytest.raises(ExporterGone):
            open_range(handle)
        with pytest.raises(ExporterGone):
            open_range(handle, transport="pidfd")
        assert time.monotonic() - begun < 1
    finally:
        os.close(read)
        os.close(write)
        assert status_of(pid) == 0


def test_child_may_have_a_broker_of_its_own() -> None:
    with Broker() as broker:
        old = broker.handle_fields(*broker.register(FakeExport()))

        def work() -> None:
            with Broker() as own:
                export = FakeExport(4)
                handle = own.handle_fields(*own.register(export))
                assert handle.broker != old.broker
                assert open_range(handle) == expected(export)
                own.revoke(handle.generation)
                with pytest.raises(HandleRevoked):
                    open_range(handle)

        assert status_of(in_child(work)) == 0


def test_fork_during_service() -> None:
    with Broker() as broker:
        export = FakeExport(50)
        handle = broker.handle_fields(*broker.register(export))
        pids: list[int] = []
        export.before_object = lambda index: (
            pids.append(in_child(lambda: time.sleep(0.5))) if index == 25 else None
        )
        begun = time.monotonic()
        assert open_range(handle) == expected(export)
        assert time.monotonic() - begun < 0.5
        assert [status_of(pid) for pid in pids] == [0]
