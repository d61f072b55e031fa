"""Dispatch, the DRM core's own ioctls, and DEVICE_QUERY."""

from __future__ import annotations

from collections.abc import Iterator

from .common import KIB, Platform, gem
from .script import STRUCTS, Script, Value, request, sweep
from .uapi import UAPI


def dispatch(platform: Platform) -> Iterator[Script]:
    for number in range(256):
        script = Script(f"dispatch/nr={number:#x}")
        script.raw(script.open(), 0xC0086400 | number, 4096)
        yield script
    for kind in (0, 0x41, 0x63, 0x65):
        script = Script(f"dispatch/type={kind:#x}")
        script.raw(script.open(), 0xC0380041 | kind << 8, 64, "8:8=65536", "16:4=1", "32:2=1")
        yield script
    for call in STRUCTS:
        if call.startswith("DMA_BUF"):
            continue
        script = Script(f"dispatch/zeroes/{call}")
        script.ioctl(script.open(), call)
        yield script
        script = Script(f"dispatch/ones/{call}")
        size = UAPI.structs[STRUCTS[call]].size
        words = [f"{at}:4=0xffffffff" for at in range(0, size - size % 4, 4)]
        script.raw(script.open(), request(call), 4096, *words)
        yield script


def core(platform: Platform) -> Iterator[Script]:
    for cap in (*range(24), 0x100, 2**63):
        script = Script(f"cap/{cap:#x}")
        script.ioctl(script.open(), "GET_CAP", {"capability": cap, "value": 9}, always=["value"])
        yield script
    for room in (0, 1, 2, 3, 64):
        script = Script(f"version/room={room}")
        fd = script.open()
        text = script.buffer(4096)
        fields: dict[str, Value] = {"name_len": room, "name": text}
        show = ["version_major", "version_minor", "version_patchlevel", "name_len", "date_len"]
        script.ioctl(fd, "VERSION", fields, always=show)
        script.read(text, "0:8")
        yield script
    script = Script("version/bad-pointer")
    script.ioctl(script.open(), "VERSION", {"name_len": 2, "name": 0x10})
    yield script
    for length in (0, 1, 5, 63, 64, 65, 2**40):
        script = Script(f"client-name/length={length}")
        fd = script.open()
        text = script.buffer(4096)
        script.write_words(text, [0x4141414141414141] * 9, 8)
        script.ioctl(fd, "SET_CLIENT_NAME", {"name_len": length, "name": text})
        yield script
    for name, word in {"control": 0x0741, "blank": 0x2041, "zero": 0x0041, "high": 0xE441}.items():
        script = Script(f"client-name/{name}")
        fd = script.open()
        text = script.buffer(4096)
        script.write_words(text, [word], 8)
        script.ioctl(fd, "SET_CLIENT_NAME", {"name_len": 2, "name": text})
        yield script


def queries(platform: Platform) -> Iterator[Script]:
    for query in range(13):

        def setup(script: Script, query: int = query) -> tuple[str, dict[str, Value]]:
            return script.open(), {"query": query}

        wrong: dict[str, list[Value]] = {
            "extensions": [1], "size": [1, 4, 0xFFFFFFFF], "data": [0x10], "reserved[0]": [1],
            "reserved[1]": [1],
        }  # fmt: skip
        yield from sweep(f"query/id={query}", "XE_DEVICE_QUERY", setup, wrong)
        script = Script(f"query/id={query}/bad-pointer-right-size")
        fd = script.open()
        size = script.ioctl(fd, "XE_DEVICE_QUERY", {"query": query}, keep="size")
        script.ioctl(fd, "XE_DEVICE_QUERY", {"query": query, "size": size, "data": 0x10})
        memory = script.buffer(64 * KIB)
        script.ioctl(fd, "XE_DEVICE_QUERY", {"query": query, "size": size, "data": memory})
        yield script
    for query, words in {0: range(0, 200, 8), 2: range(0, 48, 8), 3: range(0, 200, 8)}.items():
        script = Script(f"query/values/id={query}")
        fd = script.open()
        size = script.ioctl(fd, "XE_DEVICE_QUERY", {"query": query}, keep="size", show=["size"])
        memory = script.buffer(64 * KIB)
        script.ioctl(fd, "XE_DEVICE_QUERY", {"query": query, "size": size, "data": memory})
        script.read(memory, *(f"{at}:8" for at in words))
        yield script
    for change in ({}, {"clockid": 99}, {"eci.gt_id": 9}, {"eci.engine_class": 9}):
        script = Script(f"query/ENGINE_CYCLES/{'+'.join(change) or 'right'}")
        fd = script.open()
        memory = script.buffer(4096)
        script.write(memory, "drm_xe_query_engine_cycles", {"clockid": 1, **change})
        script.ioctl(fd, "XE_DEVICE_QUERY", {"query": 6, "size": 40, "data": memory})
        yield script
    script = Script("observation/unknown")
    fd = script.open()
    for kind in (2, 7):
        script.ioctl(fd, "XE_OBSERVATION", {"observation_type": kind})
    script.ioctl(fd, "XE_OBSERVATION", {"extensions": 1})
    gem(script, fd)
    yield script


FAMILIES = (dispatch, core, queries)
