"""The directory tree that stands for /dev/dri, /sys and debugfs when programs run on the mock.

Standard library only. libxe_mock.so redirects paths into it; it recognises the device nodes by
inode, so the nodes are plain files, and the file systems by a mark in the modification times
(native/preload/tree.c has the same numbers).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ze_ipc import mock_pat

MAX_DEVICES = 8
DRM_MAJOR = 226
FIRST_RENDER_MINOR = 128

_BAR0_SIZE = 16 << 20
_BAR0_ADDRESS = 0x6000000000

_STATS = (
    "svm_pagefault_count",
    "tlb_inval_count",
    "svm_tlb_inval_count",
    "svm_tlb_inval_us",
    "vma_pagefault_count",
    "vma_pagefault_kb",
    "invalid_prefetch_pagefault_count",
)
"""Counters of a GT in debugfs. The mock counts none of them: they are there, and zero."""

_MARKS = {"sys": 226_000_001, "sys/kernel/debug": 226_000_002, "dev": 226_000_003}


@dataclass(frozen=True, slots=True)
class Platform:
    """What sysfs says of a device; the numbers behind its ioctls are in native/mock/profile.c."""

    name: str
    device_id: int
    revision: int
    discrete: bool
    vram_size: int
    """Bytes, when the caller gives none; 0 on integrated devices."""
    max_mhz: int
    pat_entries: int
    gts: tuple[tuple[str, ...], ...]
    """Engine classes of each GT of tile 0."""

    def pci_address(self, index: int) -> str:
        """``dddd:bb:dd.f`` of the device with this index."""
        return f"0000:{3 + index:02x}:00.0" if self.discrete else f"0000:00:{2 + index:02x}.0"


PLATFORMS = {
    "bmg": Platform(
        "bmg", 0xE20B, 0, True, 8 << 30, 2850, 28, (("rcs", "bcs", "ccs"), ("vcs", "vecs"))
    ),
    "lnl": Platform("lnl", 0x64A0, 4, False, 0, 2050, 32, (("rcs", "bcs", "ccs"), ("vcs", "vecs"))),
}


def build_tree(root: Path, platform: Platform, devices: int, vram_size: int | None = None) -> None:
    """Fill the existing, empty directory ``root``; ``vram_size`` is bytes a device."""
    if not 1 <= devices <= MAX_DEVICES:
        raise ValueError(f"1 to {MAX_DEVICES} devices, not {devices}")
    tree = _Tree(root)
    vram = platform.vram_size if vram_size is None else vram_size
    for index in range(devices):
        device = _Device(tree, platform, index)
        device.nodes()
        device.pci()
        device.drm()
        device.gts(vram)
        device.debugfs()
    _class_drm(tree)
    _driver(tree)
    # Each open of it is a software timeline of fences, for tests of sync objects.
    tree.write("sys/kernel/debug/sync/sw_sync", "", 0o600)
    tree.mark()


class _Tree:
    """Writes files and links below a root, making directories on the way."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def directory(self, path: str) -> None:
        (self.root / path).mkdir(parents=True, exist_ok=True)

    def write(self, path: str, content: str | bytes, mode: int = 0o444) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        file.chmod(mode)

    def zeros(self, path: str, size: int) -> None:
        """A sparse file of ``size`` bytes."""
        with (self.root / path).open("wb") as file:
            file.truncate(size)

    def link(self, path: str, target: str) -> None:
        """``target`` is a path from the root. As in sysfs the link goes up to a directory above it
        and ends in its name, since programs take that for the device's address.
        """
        file, aim = self.root / path, self.root / target
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(f"{os.path.relpath(aim.parent, file.parent)}/{aim.name}")

    def mark(self) -> None:
        """Say of every file which file system it belongs to."""
        for top, mark in _MARKS.items():
            for folder, folders, files in os.walk(self.root / top, topdown=False):
                for name in [*files, *folders]:
                    self._touch(Path(folder, name), mark)
            self._touch(self.root / top, mark)

    def _touch(self, path: Path, mark: int) -> None:
        seconds = int(path.lstat().st_mtime)
        stamp = seconds * 1_000_000_000 + mark
        os.utime(path, ns=(stamp, stamp), follow_symlinks=False)


class _Device:
    """One device of the tree."""

    def __init__(self, tree: _Tree, platform: Platform, index: int) -> None:
        self.tree = tree
        self.platform = platform
        self.index = index
        self.address = platform.pci_address(index)
        bus = "sys/devices/pci0000:00"
        self.port = f"{bus}/0000:00:{1 + index:02x}.0" if platform.discrete else bus
        self.path = f"{self.port}/{self.address}"
        self.minors = {f"card{index}": index, f"renderD{FIRST_RENDER_MINOR + index}": 128 + index}

    def nodes(self) -> None:
        """/dev/dri: the nodes are plain files, their inode tells the library what they are."""
        kinds = ("card", "render")
        for kind, name in zip(kinds, self.minors, strict=True):
            self.tree.write(f"dev/dri/{name}", "", 0o666)
            self.tree.link(f"dev/dri/by-path/pci-{self.address}-{kind}", f"dev/dri/{name}")

    def pci(self) -> None:
        """The PCI device, its port and the links of the bus."""
        tree, platform = self.tree, self.platform
        if platform.discrete:
            _pci_device(tree, self.port, 0x8086, 0x7D74, 0, 0x060400, "pcieport")
        _pci_device(tree, self.path, 0x8086, platform.device_id, platform.revision, 0x030000, "xe")
        tree.link(f"{self.path}/driver", "sys/bus/pci/drivers/xe")
        tree.link(f"sys/bus/pci/drivers/xe/{self.address}", self.path)
        tree.write(f"{self.path}/ze_ipc_mock", "1\n")
        tree.zeros(f"{self.path}/resource0", _BAR0_SIZE)  # every register reads 0

    def drm(self) -> None:
        """The DRM minors and every way to them."""
        tree = self.tree
        for name, minor in self.minors.items():
            path = f"{self.path}/drm/{name}"
            tree.write(f"{path}/dev", f"{DRM_MAJOR}:{minor}\n")
            tree.write(
                f"{path}/uevent",
                f"MAJOR={DRM_MAJOR}\nMINOR={minor}\nDEVNAME=dri/{name}\nDEVTYPE=drm_minor\n",
                0o644,
            )
            tree.link(f"{path}/device", self.path)
            tree.link(f"{path}/subsystem", "sys/class/drm")
            tree.link(f"sys/class/drm/{name}", path)
            tree.link(f"sys/dev/char/{DRM_MAJOR}:{minor}", path)

    def gts(self, vram: int) -> None:
        """Frequencies and engines; on the PCI device, as the driver has them."""
        tree, mhz = self.tree, self.platform.max_mhz
        for number, engines in enumerate(self.platform.gts):
            gt = f"{self.path}/tile0/gt{number}"
            for name, value in {
                "max_freq": mhz,
                "min_freq": 400,
                "rp0_freq": mhz,
                "rpe_freq": 1200,
                "rpa_freq": mhz,
                "rpn_freq": 400,
                "cur_freq": 400,
                "act_freq": 0,
            }.items():
                mode = 0o644 if name in ("max_freq", "min_freq") else 0o444
                tree.write(f"{gt}/freq0/{name}", f"{value}\n", mode)
            tree.write(f"{gt}/freq0/power_profile", "[base]    power_saving\n", 0o644)
            for name in ("status", "reason_pl1", "reason_pl2", "reason_pl4", "reason_thermal"):
                tree.write(f"{gt}/freq0/throttle/{name}", "0\n")
            tree.write(f"{gt}/gtidle/name", f"gt{number}-rc\n")
            tree.write(f"{gt}/gtidle/idle_status", "gt-c6\n")
            tree.write(f"{gt}/gtidle/idle_residency_ms", "0\n")
            for engine in engines:
                _engine(tree, f"{gt}/engines/{engine}")
        if vram:
            tree.write(f"{self.path}/tile0/physical_vram_size_bytes", f"{vram:#x}\n")

    def debugfs(self) -> None:
        """What IGT reads: name, info, the PAT table, forcewake."""
        tree = self.tree
        top = "sys/kernel/debug/dri"
        path = f"{top}/{self.address}"
        tree.write(f"{path}/name", f"xe dev={self.address} unique={self.address}\n")
        tree.write(f"{path}/clients", "command  tgid dev master a   uid      magic   name id\n")
        tree.write(f"{path}/info", _info(self.platform))
        tree.write(f"{path}/forcewake_all", "")
        for number, _ in enumerate(self.platform.gts):
            table = (self.platform.pat_entries, self.platform.discrete)
            tree.write(f"{path}/gt{number}/pat_sw_config", mock_pat.sw_config(*table))
            tree.write(f"{path}/gt{number}/pat", mock_pat.registers(*table))
            tree.write(f"{path}/gt{number}/stats", "".join(f"{name}: 0\n" for name in _STATS))
            # Resetting an idle GT changes nothing that programs see; a busy one is not reset.
            for name in ("force_reset", "force_reset_sync"):
                tree.write(f"{path}/gt{number}/{name}", "", 0o600)
        for minor in self.minors.values():
            tree.link(f"{top}/{minor}", path)


def _pci_device(
    tree: _Tree, path: str, vendor: int, device: int, revision: int, kind: int, driver: str
) -> None:
    """A function on the PCI bus with the attributes that clients read."""
    address = path.rsplit("/", 1)[1]
    subsystem = (vendor, 0x1100)
    attributes = {
        "vendor": f"{vendor:#06x}",
        "device": f"{device:#06x}",
        "revision": f"{revision:#04x}",
        "class": f"{kind:#08x}",
        "subsystem_vendor": f"{subsystem[0]:#06x}",
        "subsystem_device": f"{subsystem[1]:#06x}",
        "enable": "1",
        "irq": "0",
        "boot_vga": "0",
        "numa_node": "-1",
        "local_cpulist": f"0-{(os.cpu_count() or 1) - 1}",
        "current_link_speed": "16.0 GT/s PCIe",
        "current_link_width": "8",
        "max_link_speed": "16.0 GT/s PCIe",
        "max_link_width": "8",
        "modalias": f"pci:v{vendor:08X}d{device:08X}sv{subsystem[0]:08X}sd{subsystem[1]:08X}"
        f"bc{kind >> 16:02X}sc{kind >> 8 & 0xFF:02X}i{kind & 0xFF:02X}",
        "resource": "\n".join(
            [_bar0(kind), *["0x0000000000000000 " * 2 + "0x0000000000000000"] * 12]
        ),
    }
    for name, value in attributes.items():
        tree.write(f"{path}/{name}", f"{value}\n")
    tree.write(
        f"{path}/uevent",
        f"DRIVER={driver}\nPCI_CLASS={kind:X}\nPCI_ID={vendor:04X}:{device:04X}\n"
        f"PCI_SUBSYS_ID={subsystem[0]:04X}:{subsystem[1]:04X}\nPCI_SLOT_NAME={address}\n"
        f"MODALIAS={attributes['modalias']}\n",
        0o644,
    )
    tree.write(f"{path}/config", _config_space(vendor, device, revision, kind, subsystem), 0o644)
    tree.write(f"{path}/power/control", "on\n", 0o644)
    tree.write(f"{path}/power/runtime_status", "active\n")
    tree.write(f"{path}/power/runtime_suspended_time", "0\n")
    tree.link(f"{path}/subsystem", "sys/bus/pci")
    tree.link(f"sys/bus/pci/devices/{address}", path)


def _bar0(kind: int) -> str:
    """The line of BAR 0 in ``resource``: 64-bit prefetchable memory for GPUs, none for bridges."""
    if kind >> 8 == 0x0604:
        return "0x0000000000000000 0x0000000000000000 0x0000000000000000"
    return f"{_BAR0_ADDRESS:#018x} {_BAR0_ADDRESS + _BAR0_SIZE - 1:#018x} 0x000000000014220c"


def _config_space(
    vendor: int, device: int, revision: int, kind: int, subsystem: tuple[int, int]
) -> bytes:
    """256 bytes of PCI configuration space: the identity, no BARs, no capabilities."""
    space = bytearray(256)
    space[0x00:0x04] = vendor.to_bytes(2, "little") + device.to_bytes(2, "little")
    space[0x04:0x08] = (0x0007).to_bytes(2, "little") + (0x0000).to_bytes(2, "little")
    space[0x08] = revision
    space[0x09:0x0C] = kind.to_bytes(3, "little")
    space[0x0E] = 1 if kind >> 8 == 0x0604 else 0  # header type: bridge or function
    space[0x2C:0x30] = subsystem[0].to_bytes(2, "little") + subsystem[1].to_bytes(2, "little")
    return bytes(space)


def _engine(tree: _Tree, path: str) -> None:
    """The scheduling properties of an engine class: microseconds and milliseconds."""
    limits = {
        "job_timeout": ("ms", 5000, 1, 10000),
        "timeslice_duration": ("us", 1000, 1, 10000000),
        "preempt_timeout": ("us", 640000, 1, 10000000),
    }
    for name, (unit, value, low, high) in limits.items():
        tree.write(f"{path}/{name}_{unit}", f"{value}\n", 0o644)
        tree.write(f"{path}/{name}_min", f"{low}\n", 0o644)
        tree.write(f"{path}/{name}_max", f"{high}\n", 0o644)
        tree.write(f"{path}/.defaults/{name}_{unit}", f"{value}\n")
        tree.write(f"{path}/.defaults/{name}_min", f"{low}\n")
        tree.write(f"{path}/.defaults/{name}_max", f"{high}\n")


def _info(platform: Platform) -> str:
    """debugfs ``info``: the lines that tools look for."""
    lines = {
        "graphics_verx100": 2001 if platform.discrete else 2004,
        "media_verx100": 1301 if platform.discrete else 2000,
        "stepping": "G:A0 M:A0 B:**",
        "is_dgfx": "yes" if platform.discrete else "no",
        "platform": 0,
        "subplatform": 0,
        "devid": f"{platform.device_id:#x}",
        "revid": platform.revision,
        "tile_count": 1,
        "vm_max_level": 3,
        "force_execlist": "no",
        "has_flat_ccs": "yes",
        "has_usm": "yes",
        "skip_guc_pc": "no",
    }
    return "".join(f"{name} {value}\n" for name, value in lines.items())


def _class_drm(tree: _Tree) -> None:
    tree.write("sys/class/drm/version", "drm 1.1.0 20060810\n")


def _driver(tree: _Tree) -> None:
    """The xe module and the links between it and its driver."""
    tree.write("sys/module/xe/initstate", "live\n")
    tree.write("sys/module/xe/refcnt", "1\n")
    tree.write("sys/module/xe/coresize", "4096\n")
    tree.directory("sys/module/xe/holders")
    tree.write("sys/module/xe/parameters/force_probe", "\n")
    tree.write("sys/module/xe/parameters/max_vfs", "0\n", 0o644)
    tree.link("sys/module/xe/drivers/pci:xe", "sys/bus/pci/drivers/xe")
    tree.link("sys/bus/pci/drivers/xe/module", "sys/module/xe")
    tree.write("sys/bus/pci/drivers/xe/bind", "", 0o200)
    tree.write("sys/bus/pci/drivers/xe/unbind", "", 0o200)
