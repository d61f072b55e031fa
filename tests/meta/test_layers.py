"""Imports go down only; the check itself is shown red on every kind of violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import layers

PACKAGE = Path(__file__).resolve().parents[2] / "ze_ipc"


def test_imports_go_down_only() -> None:
    found = [
        violation
        for module, path in layers.modules(PACKAGE)
        for violation in layers.violations(path.read_text(), module)
    ]
    assert not found, "\n" + "\n".join(map(str, found))


def test_the_package_is_looked_at() -> None:
    names = {module for module, _ in layers.modules(PACKAGE)}
    assert {"errors", "mapping_table", "manifest.codec", "backend"} <= names


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("walk", "import ze_ipc.share"),
        ("walk", "from ze_ipc import share"),
        ("walk", "from ze_ipc.broker import Broker"),
        ("walk", "from . import share"),
        ("manifest.codec", "from ..share import export_range"),
        ("manifest.codec", "def f():\n    from ze_ipc.broker_pool import Pool"),
        ("errors", "from ze_ipc.handle import HandleFields"),
        ("fds", "import ze_ipc.backend"),
        ("xe.device", "from ze_ipc.columns import Columns"),
        ("xe.device", "from ze_ipc.device import Device"),
        ("transport", "from ze_ipc.share import open_range"),
        ("share", "from ze_ipc import cli"),
        ("device", "from ze_ipc.cli.demo import main"),
        ("share", "from ze_ipc import _xe"),
        ("share", "from ze_ipc._xe import ffi, lib"),
        ("cli.demo", "import ze_ipc._mock"),
        ("open_device", "from ._ze import lib"),
        ("mapping_table", "import threading"),
        ("walk", "from os import path"),
        ("manifest.codec", "import socket as s"),
        ("device", "import ze_ipc"),
        ("device", "import ctypes"),
        ("cli.demo", "def f():\n    from ctypes import CDLL"),
        ("walk", "from cffi import FFI"),
        (
            "device",
            "if True:\n    try:\n        import ze_ipc.cli\n    except ImportError:\n        raise",
        ),
    ],
)
def test_a_violation_is_found(module: str, source: str) -> None:
    assert layers.violations(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("share", "from ze_ipc.walk import walk"),
        ("share", "from ze_ipc.device import Device"),
        ("walk", "from ze_ipc.errors import InvalidSize"),
        ("walk", "from ze_ipc.columns import Columns"),
        ("manifest.codec", "from .model import Manifest"),
        ("manifest.codec", "from ze_ipc.manifest.model import Manifest"),
        ("manifest.codec", "import struct, hashlib"),
        ("xe.device", "from ze_ipc._xe import ffi, lib"),
        ("mock", "from ze_ipc import _mock"),
        ("cli.demo", "from ze_ipc.share import open_range"),
        ("pidfd", "import ctypes"),
        ("xe.device", "import cffi"),
        (
            "xe.queue",
            "from TYPING import x\nif TYPE_CHECKING:\n    from ze_ipc.device import Device",
        ),
    ],
)
def test_a_lawful_import_is_not(module: str, source: str) -> None:
    assert layers.violations(source, module) == []


def test_an_else_of_type_checking_is_looked_at() -> None:
    source = "if TYPE_CHECKING:\n    import ze_ipc.share\nelse:\n    import ze_ipc.cli"
    (violation,) = layers.violations(source, "walk")
    assert violation.imported == "ze_ipc.cli"
    assert violation.line == 4
