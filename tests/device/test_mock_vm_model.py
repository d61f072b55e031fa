"""VM_BIND of the mock against a dictionary of pages, and its fault plan, by plain ioctls."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ze_ipc._xe import ffi, lib
from ze_ipc.errors import InvalidArgument, KernelError
from ze_ipc.mock import EVERY, MockDevice

PAGE = 4096
NUM_PAGES = 24
BASE = 1 << 40
PATS = (1, 2, 4, 5)
OBJECT_PAGES = 8


def call(device: MockDevice, fd: int, name: str, struct: Any) -> Any:
    """One ioctl with a struct of the uapi; returns the struct."""
    device.ioctl(fd, getattr(lib, f"DRM_IOCTL_{name}"), memoryview(ffi.buffer(struct)))
    return struct


def new(name: str, **fields: object) -> Any:
    return ffi.new(f"struct drm_{name} *", fields)


def make_object(device: MockDevice, fd: int, size: int) -> int:
    args = new("xe_gem_create", size=size, placement=1, cpu_caching=1)
    return int(call(device, fd, "XE_GEM_CREATE", args).handle)


Op = tuple[str, int, int, int, int]
"""What, first page, number of pages, object (index) or its first page, page attributes."""


@st.composite
def operations(draw: st.DrawFn) -> Op:
    what = draw(st.sampled_from(["map", "map", "map", "unmap", "unmap", "null", "unmap_all"]))
    pages = draw(st.integers(1, OBJECT_PAGES))
    first = draw(st.integers(0, NUM_PAGES - pages))
    return what, first, pages, draw(st.integers(0, 1)), draw(st.sampled_from(PATS))


class AddressSpaceModel(RuleBasedStateMachine):
    """A page is absent, or belongs to a mapping (a number) with its object and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.device = MockDevice(5)
        self.fd = self.device.open_node()
        self.vm = call(self.device, self.fd, "XE_VM_CREATE", new("xe_vm_create")).vm_id
        self.objects = [
            make_object(self.device, self.fd, OBJECT_PAGES * PAGE),
            make_object(self.device, self.fd, OBJECT_PAGES * PAGE),
        ]
        self.pages: dict[int, tuple[int, int, int]] = {}
        self.mappings = count()

    def teardown(self) -> None:
        self.device.close_node(self.fd)
        stats = self.device.stats()
        assert (stats.objects, stats.handles, stats.vms, stats.mappings) == (0, 0, 0, 0)

    def clear(self, pages: dict[int, tuple[int, int, int]], first: int, end: int) -> None:
        for page in range(first, end):
            pages.pop(page, None)
        if end in pages:  # what is left behind a cut is a mapping of its own
            old, back = pages[end][0], next(self.mappings)
            page = end
            while page in pages and pages[page][0] == old:
                pages[page] = (back, *pages[page][1:])
                page += 1

    def apply(self, pages: dict[int, tuple[int, int, int]], op: Op) -> None:
        what, first, number, obj, pat = op
        if what == "unmap_all":
            for page in [page for page, value in pages.items() if value[1] == obj]:
                del pages[page]
            return
        self.clear(pages, first, first + number)
        if what != "unmap":
            mapping = next(self.mappings)
            for page in range(first, first + number):
                pages[page] = (mapping, obj if what == "map" else -1, pat)

    def bind_op(self, op: Op) -> dict[str, int]:
        what, first, number, obj, pat = op
        fields = {"addr": BASE + first * PAGE, "range": number * PAGE, "pat_index": pat}
        if what == "map":
            fields["obj"] = self.objects[obj]
        elif what == "null":
            fields["flags"] = lib.DRM_XE_VM_BIND_FLAG_NULL
        elif what == "unmap":
            fields["op"] = lib.DRM_XE_VM_BIND_OP_UNMAP
        else:
            fields |= {"op": lib.DRM_XE_VM_BIND_OP_UNMAP_ALL, "addr": 0, "range": 0}
            fields["obj"] = self.objects[obj]
        return fields

    def bind(self, ops: list[dict[str, int]]) -> None:
        vector = ffi.new("struct drm_xe_vm_bind_op[]", ops)
        args = new("xe_vm_bind", vm_id=self.vm, num_binds=len(ops))
        if len(ops) == 1:
            args.bind = vector[0]
        else:
            args.vector_of_binds = int(ffi.cast("uintptr_t", vector))
        call(self.device, self.fd, "XE_VM_BIND", args)

    @rule(ops=st.lists(operations(), min_size=1, max_size=6))
    def array(self, ops: list[Op]) -> None:
        self.bind([self.bind_op(op) for op in ops])
        for op in ops:
            self.apply(self.pages, op)

    @rule(ops=st.lists(operations(), max_size=5), bad=st.sampled_from(["memory", "handle", "flag"]))
    def array_that_fails_at_its_end(self, ops: list[Op], bad: str) -> None:
        last = {"addr": BASE, "range": PAGE, "pat_index": PATS[0], "obj": 99}
        wrong = errno.ENOENT
        if bad == "memory":  # noticed when all before it is done already
            userptr = {"op": lib.DRM_XE_VM_BIND_OP_MAP_USERPTR, "obj": 0, "userptr": PAGE}
            last, wrong = last | userptr, errno.EFAULT
        elif bad == "flag":
            last, wrong = last | {"flags": 1 << 30}, errno.EINVAL
        with pytest.raises(KernelError) as caught:
            self.bind([*(self.bind_op(op) for op in ops), last])
        assert caught.value.errno == wrong

    @rule(error=st.sampled_from([errno.ENOMEM, errno.EINTR, errno.ENOBUFS]))
    def planned_failure(self, error: int) -> None:
        self.device.fail("VM_BIND", 1, error)
        with pytest.raises(KernelError) as caught:
            self.bind([self.bind_op(("unmap", 0, NUM_PAGES, 0, 1))])
        assert caught.value.errno == error

    @invariant()
    def layout_is_the_model(self) -> None:
        args = new("xe_vm_query_mem_range_attr", vm_id=self.vm, start=BASE, range=NUM_PAGES * PAGE)
        number = call(self.device, self.fd, "XE_VM_QUERY_MEM_RANGE_ATTRS", args).num_mem_ranges
        attrs = ffi.new("struct drm_xe_mem_range_attr[]", number + 1)
        args.num_mem_ranges = number + 1
        args.sizeof_mem_range_attr = ffi.sizeof("struct drm_xe_mem_range_attr")
        args.vector_of_mem_attr = int(ffi.cast("uintptr_t", attrs))
        call(self.device, self.fd, "XE_VM_QUERY_MEM_RANGE_ATTRS", args)
        found = [
            ((attr.start - BASE) // PAGE, (attr.end - BASE) // PAGE, attr.pat_index.val)
            for attr in attrs[0 : args.num_mem_ranges]
        ]
        wanted: list[tuple[int, int, int]] = []
        before = None
        for page in sorted(self.pages):
            mapping, _, pat = self.pages[page]
            if before == (page - 1, mapping):
                wanted[-1] = (wanted[-1][0], page + 1, pat)
            else:
                wanted.append((page, page + 1, pat))
            before = (page, mapping)
        assert found == wanted
        assert self.device.stats().mappings == len(wanted)


TestAddressSpace = AddressSpaceModel.TestCase
TestAddressSpace.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


@pytest.fixture
def device() -> Iterator[MockDevice]:
    with MockDevice(6, "lnl") as mock:
        yield mock


def test_fault_plan_counts_from_the_next_call(device: MockDevice) -> None:
    fd = device.open_node()
    device.reset_counts()
    device.fail("DRM_IOCTL_XE_GEM_CREATE", 2, errno.ENOSPC)
    device.fail("gem_close", EVERY, errno.EIO)
    handle = make_object(device, fd, PAGE)
    with pytest.raises(KernelError) as caught:
        make_object(device, fd, PAGE)
    assert (caught.value.errno, caught.value.call) == (errno.ENOSPC, "XE_GEM_CREATE")
    for _ in range(2):
        with pytest.raises(KernelError) as caught:
            call(device, fd, "GEM_CLOSE", new("gem_close", handle=handle))
        assert caught.value.errno == errno.EIO
    device.clear_faults()
    call(device, fd, "GEM_CLOSE", new("gem_close", handle=handle))
    assert device.counts() == {"XE_GEM_CREATE": 2, "GEM_CLOSE": 3}
    device.close_node(fd)


def test_delay_comes_before_the_call(device: MockDevice) -> None:
    fd = device.open_node()
    device.delay("XE_GEM_CREATE", 1, 0.05)
    start = time.monotonic()
    make_object(device, fd, PAGE)
    assert time.monotonic() - start >= 0.05
    device.close_node(fd)


@pytest.mark.parametrize("name", ["XE_NOTHING", "", "open"])
def test_fault_of_an_unknown_ioctl_is_refused(device: MockDevice, name: str) -> None:
    with pytest.raises(InvalidArgument):
        device.fail(name)


@pytest.mark.parametrize("error", [0, -1, 5000])
def test_fault_that_is_no_errno_is_refused(device: MockDevice, error: int) -> None:
    with pytest.raises(KernelError) as caught:
        device.fail("XE_VM_BIND", 1, error)
    assert caught.value.errno == errno.EINVAL


def test_configuration_holds_while_somebody_has_the_device_open(device: MockDevice) -> None:
    fd = device.open_node()
    assert repr(MockDevice(6, "lnl")) == "MockDevice(index=6, profile='lnl')"
    with pytest.raises(InvalidArgument):
        MockDevice(6, "bmg")
    device.close_node(fd)
    small = MockDevice(6, "bmg", 1 << 20)
    fd = small.open_node()
    args = new("xe_gem_create", size=2 << 20, placement=2, cpu_caching=2)
    with pytest.raises(KernelError) as caught:
        call(small, fd, "XE_GEM_CREATE", args)
    assert caught.value.errno == errno.ENOSPC
    small.close_node(fd)


@pytest.mark.parametrize(("index", "vram_size"), [(16, None), (7, 4097)])
def test_impossible_configuration_is_refused(index: int, vram_size: int | None) -> None:
    with pytest.raises(InvalidArgument):
        MockDevice(index, "bmg", vram_size)


def test_import_has_no_side_effects(tmp_path: Any) -> None:
    code = (
        "import os; before = os.listdir('/proc/self/fd'); import ze_ipc.mock;"
        "assert os.listdir('/proc/self/fd') == before;"
        "assert not os.listdir(os.environ['ZE_IPC_MOCK_DIR'])"
    )
    environment = os.environ | {"ZE_IPC_MOCK_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)


def test_environment_chooses_profile_and_faults(tmp_path: Any) -> None:
    code = (
        "from ze_ipc._mock import ffi, lib\n"
        "fd = lib.xe_mock_open(0, False, 0)\n"
        "query = ffi.new('uint64_t[]', [0, 2, 0, 0, 0])\n"  # CONFIG, size 0
        "assert lib.xe_mock_ioctl(fd, 0xc0286440, query) == 0\n"
        "config = ffi.new('uint64_t[]', 6)\n"
        "query[1] = 2 | 48 << 32\n"
        "query[2] = int(ffi.cast('uintptr_t', config))\n"
        "assert lib.xe_mock_ioctl(fd, 0xc0286440, query) == 0\n"
        "assert config[1] == 0x64a0 | 4 << 16, hex(config[1])\n"
        "vm = ffi.new('uint64_t[]', 4)\n"
        "assert lib.xe_mock_ioctl(fd, 0xc0206443, vm) == -28\n"
        "assert lib.xe_mock_ioctl(fd, 0xc0206443, vm) == 0\n"
    )
    environment = os.environ | {
        "ZE_IPC_MOCK_DIR": str(tmp_path),
        "ZE_IPC_MOCK_PROFILE": "lnl",
        "ZE_IPC_MOCK_FAULTS": "VM_CREATE:1=ENOSPC",
    }
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)
