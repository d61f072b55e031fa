"""Programs of their own for what must not happen inside the test's process."""

LIMITED = """
import os, resource, sys
import ze_ipc
from helpers.imports import import_everything

import_everything()
device = ze_ipc.open_device("mock")
memory = [device.physical_memory(4096) for _ in range(8)]
range_ = device.reserve(8 * 4096)
for index, each in enumerate(memory):
    range_.map(each, at=index * 4096)
device.write(range_.ptr, b"limits" * 100)
used = int(open("/proc/self/statm").read().split()[0]) * 4096
fds = os.dup(0)  # the lowest that is free
os.close(fds)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
outcomes = set()


def attempt():
    try:
        with device.get_ipc_handle(range_.ptr, 8 * 4096) as handle:
            with device.open_ipc_handle(bytes(handle), timeout=10) as view:
                assert device.read(view.ptr, 600) == b"limits" * 100
        return "good"
    except MemoryError:
        return "MemoryError"
    except ze_ipc.ZeIpcError as error:
        assert error.hint, error
        return type(error).__name__


def restart():
    # The broker stays where one was started: a new device for each limit.
    global device, range_
    range_.close()
    device.close()
    device = ze_ipc.open_device("mock")
    range_ = device.reserve(8 * 4096)
    for index in range(8):
        with device.physical_memory(4096) as memory:
            range_.map(memory, at=index * 4096)
    device.write(range_.ptr, b"limits" * 100)


for step in range(int(sys.argv[1])):
    if sys.argv[2] == "memory":
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        limit = resource.RLIMIT_AS, (used + step * (16 << 20) // int(sys.argv[1]), -1), (-1, -1)
    else:
        limit = resource.RLIMIT_NOFILE, (fds + step, hard), (soft, hard)
    resource.setrlimit(*limit[:2])
    try:
        outcomes.add(attempt())
    finally:
        resource.setrlimit(limit[0], limit[2])
    assert attempt() == "good", step
    restart()
range_.close()
device.close()
print(" ".join(sorted(outcomes)))
"""

FORKS = """
import os, sys, threading, time
import ze_ipc

device = ze_ipc.open_device("mock")
range_ = device.reserve(3 * 4096)
for index in range(3):
    with device.physical_memory(4096) as memory:
        range_.map(memory, at=index * 4096)
stop = threading.Event()
errors = []


def work():
    try:
        while not stop.is_set():
            with device.get_ipc_handle(range_.ptr, 3 * 4096) as handle:
                device.open_ipc_handle(bytes(handle)).close()
    except BaseException as error:
        errors.append(error)


threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for turn in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for call in (lambda: device.reserve(4096), lambda: range_.unmap(0, 4096),
                         lambda: device.get_ipc_handle(range_.ptr, 4096)):
                try:
                    call()
                except ze_ipc.ForkedProcess as error:
                    assert error.hint
                else:
                    raise AssertionError("used after fork")
            range_.close()
            device.close()
            if turn % 4 == 0:  # a device of its own works
                with ze_ipc.open_device("mock") as mine, mine.reserve(4096) as own:
                    with mine.physical_memory(4096) as memory:
                        own.map(memory, at=0)
                    with mine.get_ipc_handle(own.ptr, 4096) as handle:
                        mine.open_ipc_handle(bytes(handle)).close()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + 60
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            assert status == 0, status
            break
        assert time.monotonic() < deadline, "a forked child hangs"
        time.sleep(0.002)
stop.set()
for thread in threads:
    thread.join()
assert not errors, errors
range_.close()
device.close()
"""

GARBAGE = """
import gc, sys, threading, warnings
import ze_ipc
from ze_ipc import leaks

warnings.simplefilter("ignore", ResourceWarning)
before = leaks.take()
device = ze_ipc.open_device("mock")
range_ = device.reserve(8 * 4096)
for index in range(8):
    with device.physical_memory(4096) as memory:
        range_.map(memory, at=index * 4096)
device.write(range_.ptr, b"kept" * 1000)
errors = []


class Cycle:
    pass


def work(number):
    try:
        for turn in range(int(sys.argv[1])):
            handle = device.get_ipc_handle(range_.ptr + number, 4096 * 7)
            view = device.open_ipc_handle(bytes(handle))
            assert device.read(view.ptr, 8) == (b"kept" * 4)[number % 4:][:8]
            # Everything is dropped open, in a cycle that only the collector finds.
            cycle = Cycle()
            cycle.own = cycle, handle, view, device.reserve(4096), device.physical_memory(4096)
            del cycle, handle, view
    except BaseException as error:
        errors.append(error)


gc.set_threshold(3, 2, 2)
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
gc.set_threshold(700, 10, 10)
gc.collect()
assert not errors, errors
assert device.read(range_.ptr, 8) == b"keptkept"
stats = device._backend.live_objects
assert stats == 8, stats
range_.close()
device.close()
del device, range_, memory
left = leaks.left_behind(before)
assert not left, left
"""

SHUTDOWN = """
import sys, threading
import ze_ipc

device = ze_ipc.open_device("mock")
range_ = device.reserve(70 * 4096)
memory = [device.physical_memory(4096) for _ in range(70)]
for index, each in enumerate(memory):
    range_.map(each, at=index * 4096)
handle = device.get_ipc_handle(range_.ptr, 70 * 4096)
view = device.open_ipc_handle(bytes(handle))
window = memoryview(view)
usm = device.allocate(4096)
way = sys.argv[1]
if way == "cycle":
    class Cycle:
        pass
    cycle = Cycle()
    cycle.everything = cycle, device, range_, memory, handle, view, usm
    del device, range_, memory, handle, view, usm, window
elif way == "busy thread":
    begun = threading.Event()
    def work():
        while True:
            try:
                device.open_ipc_handle(bytes(handle)).close()
            except ze_ipc.ZeIpcError:  # the broker closes when the interpreter ends
                return
            begun.set()
    threading.Thread(target=work, daemon=True).start()
    begun.wait(30)
elif way == "exit in a thread":
    thread = threading.Thread(target=sys.exit)
    thread.start()
    thread.join()
elif way == "two devices":
    other = ze_ipc.open_device("mock")
    second = other.open_ipc_handle(bytes(handle))
elif way == "exit":
    sys.exit(0)
"""
