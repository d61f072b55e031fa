"""Types of command-line arguments that several verbs take."""

from __future__ import annotations

import argparse

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size(text: str) -> int:
    """Bytes: a number, or one with K, M or G (powers of 1024; "KiB" and the like are taken too)."""
    word = text.strip().upper().removesuffix("IB").removesuffix("B")
    unit = word[-1:] if word[-1:] in UNITS and not word[-1:].isdigit() else ""
    try:
        return int(word.removesuffix(unit), 0) * UNITS[unit]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no size in bytes, such as 65536 or 64K"
        ) from None


def count(text: str) -> int:
    """A whole number of at least 1, with or without thousands separators."""
    try:
        number = int(text.replace(",", "").replace("_", ""))
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return number


def handle(text: str) -> bytes:
    """A handle as 128 hexadecimal digits."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) != 64:
        raise argparse.ArgumentTypeError("a handle is 128 hexadecimal digits (handle.hex())")
    return raw


def add_backend(parser: argparse.ArgumentParser) -> None:
    """The option that insists on a backend."""
    parser.add_argument(
        "--backend",
        choices=("level_zero", "xe", "mock"),
        help="insist on one (default: ZE_IPC_BACKEND, else a real GPU, else the mock)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option that every verb that reports has."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
