"""The steps of random programs: one row a verb, each a function of the world and seven bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import common
from .common import SECOND, Platform
from .programs import (
    BASE,
    BATCH_ADDRESS,
    BATCH_SIZE,
    MOST_FILES,
    NOBODY,
    SIZES,
    WINDOW_PAGES,
    File,
    Object,
    Space,
    World,
)
from .script import Script, Value

Verb = Callable[[World, File, bytes], None]


def create(world: World, file: File, data: bytes) -> None:
    placements = world.platform.placements
    placement = placements[data[0] % len(placements)]
    pages = SIZES[data[1] % len(SIZES)]
    more: dict[str, Value] = {"flags": (0, 0, 0, 1, 8, 0, 2, 4)[data[2] % 8]}
    if placement == common.SYSTEM and data[3] % 3 == 0:
        more["cpu_caching"] = common.WRITE_COMBINED
    if data[4] % 8 == 7 and file.spaces:
        more["vm_id"] = file.spaces[data[5] % len(file.spaces)].slot
    slot = common.gem(world.script, file.slot, 4096 * pages, placement, **more)
    file.objects.append(Object(slot, pages))


def close(world: World, file: File, data: bytes) -> None:
    world.script.ioctl(file.slot, "GEM_CLOSE", {"handle": world.object(file, data[0])})
    if file.objects and data[0] < 0xF0:
        file.closed.append(file.objects.pop(data[0] % len(file.objects)))


def change_handle(world: World, file: File, data: bytes) -> None:
    if not file.objects:
        return
    fields: dict[str, Value] = {
        "handle": file.objects[data[0] % len(file.objects)].slot, "new_handle": 1 + data[1] % 8,
    }  # fmt: skip
    world.script.ioctl(file.slot, "GEM_CHANGE_HANDLE", fields)


def export(world: World, file: File, data: bytes) -> None:
    flags = (0x80002, 0x80002, 0x80002, 0x80000, 2, 0, 4, 0x80002)[data[1] % 8]
    handle = world.object(file, data[0])
    slot = common.export(world.script, file.slot, handle, flags)
    world.script.dup_if_failed(slot, file.slot)
    pages = file.objects[data[0] % len(file.objects)].pages if file.objects else 1
    if flags != 4 and data[0] < 0xF0 and file.objects:
        world.dma_bufs.append((slot, pages))


def import_one(world: World, file: File, data: bytes) -> None:
    if not world.dma_bufs:
        return
    fd, pages = world.dma_bufs[data[0] % len(world.dma_bufs)]
    file.objects.append(Object(common.import_fd(world.script, file.slot, fd), pages))


def identity(world: World, file: File, data: bytes) -> None:
    if world.dma_bufs:
        first, second = (world.dma_bufs[byte % len(world.dma_bufs)][0] for byte in data[:2])
        world.script.same_inode(first, second)


def close_dma_buf(world: World, file: File, data: bytes) -> None:
    if len(world.dma_bufs) > 1:
        world.script.close(world.dma_bufs.pop(data[0] % len(world.dma_bufs))[0])


def create_space(world: World, file: File, data: bytes) -> None:
    world.create_space(file, data[0])


def destroy_space(world: World, file: File, data: bytes) -> None:
    space = world.space(file, data[0])
    if space.queue:
        world.script.ioctl(file.slot, "XE_EXEC_QUEUE_DESTROY", {"exec_queue_id": space.queue})
    world.script.ioctl(file.slot, "XE_VM_DESTROY", {"vm_id": space.slot})
    # With a queue of the program's own it may have been refused: then its id still names it.
    if space.alive:
        space.alive = False
        file.spaces.remove(space)
        file.gone_spaces.append(space)


def bind(world: World, file: File, data: bytes) -> None:
    space = world.space(file, data[0] if data[0] >= 0xF4 else data[0] // 4)
    fields = world.operation(file, space, data[1:])
    more, wait = world.sync(file, data[0])
    call = {"vm_id": space.slot, **common.single(fields), **more}
    world.script.ioctl(file.slot, "XE_VM_BIND", call)
    wait()


def unmap_all(world: World, file: File, data: bytes) -> None:
    space = world.space(file, data[0])
    more, wait = world.sync(file, data[2])
    fields = common.op_fields(0, 0, world.object(file, data[1]), common.OP_UNMAP_ALL)
    call = {"vm_id": space.slot, **common.single(fields), **more}
    world.script.ioctl(file.slot, "XE_VM_BIND", call)
    wait()


def bind_array(world: World, file: File, data: bytes) -> None:
    space = world.space(file, data[0] // 4)
    count = 2 + data[1] % 3
    vector = ""
    for index in range(count):
        turned = bytes((byte * (2 * index + 1) + 37 * index) % 256 for byte in data[1:7])
        fields = world.operation(file, space, turned)
        where = world.arguments("drm_xe_vm_bind_op", 80, fields, 0xA000 + 80 * index)
        vector = vector or where
    more, wait = world.sync(file, data[0])
    call: dict[str, Value] = {
        "vm_id": space.slot, "num_binds": count, "vector_of_binds": vector, **more,
    }  # fmt: skip
    world.script.ioctl(file.slot, "XE_VM_BIND", call)
    wait()


def bind_nothing(world: World, file: File, data: bytes) -> None:
    """No operation: only the syncs count; on a queue of the program's, perhaps."""
    space = world.space(file, data[0])
    more, wait = world.sync(file, data[1])
    if data[2] % 4 == 0 and file.queues:
        more["exec_queue_id"] = file.queues[data[2] % len(file.queues)]
    world.script.ioctl(file.slot, "XE_VM_BIND", {"vm_id": space.slot, "num_binds": 0, **more})
    wait()


def layout(world: World, file: File, data: bytes) -> None:
    start = BASE + 4096 * (data[1] % WINDOW_PAGES) if data[1] < 0xC0 else 0
    size = 4096 * (1 + data[2] % 40) if data[1] < 0xC0 else 1 << 47
    world.layout(file, world.space(file, data[0]), start, size)


def advise(world: World, file: File, data: bytes) -> None:
    space = world.space(file, data[0])
    fields: dict[str, Value] = {
        "vm_id": space.slot, "start": BASE + 4096 * (data[1] % WINDOW_PAGES),
        "range": 4096 * (1 + data[2] % 16), "type": data[3] % 4,
    }  # fmt: skip
    value = data[4]
    if fields["type"] == 0:
        fields["preferred_mem_loc.devmem_fd"] = (0, 0xFFFFFFFF)[value % 2]
        fields["preferred_mem_loc.migration_policy"] = value // 2 % 2
    elif fields["type"] == 1:
        fields["atomic.val"] = value % 4
    elif fields["type"] == 2:
        fields["pat_index.val"] = (1, 2, 4, 5, 0, 3)[value % 6]
    else:
        fields["purge_state_val.val"] = value % 2
        fields["purge_state_val.retained_ptr"] = world.numbers([0], 8, 0xB000)
    world.script.ioctl(file.slot, "XE_MADVISE", fields)
    if fields["type"] == 3:
        world.read_back(4, 0xB000)


def query(world: World, file: File, data: bytes) -> None:
    which = (0, 1, 2, 3, 5, 7, 8, 9, 10, 11)[data[0] % 10]
    fields: dict[str, Value] = {"query": which, "size": (0, 0, 1, 4096)[data[1] % 4]}
    world.script.ioctl(file.slot, "XE_DEVICE_QUERY", fields)


def syncobj_create(world: World, file: File, data: bytes) -> None:
    fields: dict[str, Value] = {"flags": data[0] % 2}
    show = ["handle"]
    file.syncobjs.append(
        world.script.ioctl(file.slot, "SYNCOBJ_CREATE", fields, keep="handle", show=show)
    )


def syncobj_destroy(world: World, file: File, data: bytes) -> None:
    handle = world.chosen(file.syncobjs, data[0])
    world.script.ioctl(file.slot, "SYNCOBJ_DESTROY", {"handle": handle})
    if file.syncobjs:
        file.syncobjs.pop(data[0] % len(file.syncobjs))


def syncobj_array(world: World, file: File, data: bytes) -> None:
    """RESET, SIGNAL, TIMELINE_SIGNAL, QUERY of two."""
    handles = world.numbers([world.chosen(file.syncobjs, byte) for byte in data[1:3]], 4, 0xC000)
    fields: dict[str, Value] = {"handles": handles, "count_handles": 1 + data[3] % 2}
    verb = data[0] % 4
    call = ("RESET", "SIGNAL", "TIMELINE_SIGNAL", "QUERY")[verb]
    if verb >= 2:
        fields["points"] = world.numbers([data[4] % 6, data[5] % 6], 8, 0xC100)
    if verb == 3:
        fields["flags"] = data[6] % 2
    world.script.ioctl(file.slot, f"SYNCOBJ_{call}", fields)
    if verb == 3:
        world.read_back(8, 0xC100, 0xC108)


def syncobj_wait(world: World, file: File, data: bytes) -> None:
    handles = world.numbers([world.chosen(file.syncobjs, byte) for byte in data[1:3]], 4, 0xC000)
    timeouts: tuple[Value, ...] = (0, 1, "@1000000")
    fields: dict[str, Value] = {
        "handles": handles, "count_handles": 1 + data[3] % 2, "flags": data[4] % 8,
        "timeout_nsec": timeouts[data[0] // 2 % 3],
    }  # fmt: skip
    call = "SYNCOBJ_WAIT"
    if data[0] % 2:
        call = "SYNCOBJ_TIMELINE_WAIT"
        fields["points"] = world.numbers([data[5] % 6, data[6] % 6], 8, 0xC100)
    world.script.ioctl(file.slot, call, fields, show=["first_signaled"])


def syncobj_transfer(world: World, file: File, data: bytes) -> None:
    fields: dict[str, Value] = {
        "src_handle": world.chosen(file.syncobjs, data[0]),
        "dst_handle": world.chosen(file.syncobjs, data[1]),
        "src_point": data[2] % 6, "dst_point": data[3] % 6, "flags": data[4] % 3 % 2 * 2,
    }  # fmt: skip
    world.script.ioctl(file.slot, "SYNCOBJ_TRANSFER", fields)


def syncobj_share(world: World, file: File, data: bytes) -> None:
    """Out as a descriptor (of the syncobj, its fence or a point's), in again in some file."""
    flags = data[1] % 2
    fields: dict[str, Value] = {"handle": world.chosen(file.syncobjs, data[0]), "flags": flags}
    if flags and data[1] % 4 == 3:
        fields |= {"flags": 3, "point": data[4] % 6}
    fd = world.script.ioctl(file.slot, "SYNCOBJ_HANDLE_TO_FD", fields, keep="fd")
    target = world.file(data[2])
    fields = {"fd": fd, "flags": flags}
    if flags:
        fields["handle"] = world.chosen(target.syncobjs, data[3])
        world.script.ioctl(target.slot, "SYNCOBJ_FD_TO_HANDLE", fields)
        return
    show = ["handle"]
    target.syncobjs.append(
        world.script.ioctl(target.slot, "SYNCOBJ_FD_TO_HANDLE", fields, keep="handle", show=show)
    )


def queue_create(world: World, file: File, data: bytes) -> None:
    engine_class = (1, 0, 4, 5, 1, 3)[data[1] % 6]
    space = world.space(file, data[0])
    more: dict[str, Value] = {"flags": data[2] % 8 // 7}
    file.queues.append(common.queue(world.script, file.slot, space.slot, engine_class, **more))


def queue_destroy(world: World, file: File, data: bytes) -> None:
    chosen = world.chosen(file.queues, data[0])
    world.script.ioctl(file.slot, "XE_EXEC_QUEUE_DESTROY", {"exec_queue_id": chosen})
    if file.queues:
        file.queues.pop(data[0] % len(file.queues))


def queue_ask(world: World, file: File, data: bytes) -> None:
    fields: dict[str, Value] = {"exec_queue_id": world.chosen(file.queues, data[0])}
    call = "XE_EXEC_QUEUE_GET_PROPERTY"
    world.script.ioctl(file.slot, call, fields, show=["value"])


def exec_nothing(world: World, file: File, data: bytes) -> None:
    """An EXEC without a batch: its syncs alone."""
    more, wait = world.sync(file, data[1])
    fields: dict[str, Value] = {
        "exec_queue_id": world.chosen(file.queues, data[0]), "num_batch_buffer": 0,
    }  # fmt: skip
    if more.get("syncs") == file.fence.sync:
        more = {}  # a user fence of an EXEC is a GPU address
        wait = lambda: None  # noqa: E731
    world.script.ioctl(file.slot, "XE_EXEC", {**fields, **more})
    wait()


def _working(world: World, file: File, space: Space) -> None:
    """Gives the space a batch object, mapped on both sides, and a copy queue."""
    if space.batch:
        return
    script = world.script
    handle = common.gem(script, file.slot, BATCH_SIZE)
    space.batch = common.cpu_map(script, file.slot, handle, BATCH_SIZE)
    fields = common.op_fields(BATCH_ADDRESS, BATCH_SIZE, handle)
    common.bind(script, file.slot, space.slot, fields, file.fence)
    space.queue = common.queue(script, file.slot, space.slot)


def gpu_store(world: World, file: File, data: bytes) -> None:
    """The GPU stores two words in the window, and copies one place of it to another."""
    able = [space for space in file.spaces if space.touchable]
    if not able:
        return
    space = able[data[0] % len(able)]
    _working(world, file, space)
    page, other = BASE + 4096 * (data[1] % WINDOW_PAGES), BASE + 4096 * (data[2] % WINDOW_PAGES)
    words = common.store_dwords(page + 8 * (data[3] % 4), [0x1000 + data[4], data[5]])
    if data[6] % 2:
        words += common.copy_bytes(other + data[6], page, 8 + data[6] % 50)
    common.write_batch(world.script, space.batch, words)
    space.fence += 1
    sync: dict[str, Value] = {
        "type": 2, "flags": 1, "addr": BATCH_ADDRESS + BATCH_SIZE - 8,
        "timeline_value": space.fence,
    }  # fmt: skip
    where = world.arguments("drm_xe_sync", 48, sync, 0xD000)
    fields: dict[str, Value] = {
        "exec_queue_id": space.queue, "num_syncs": 1, "syncs": where, "address": BATCH_ADDRESS,
        "num_batch_buffer": 1,
    }  # fmt: skip
    world.script.ioctl(file.slot, "XE_EXEC", fields)
    world.script.lines.append(f"A {space.batch[1:]} {BATCH_SIZE - 8}")
    wait: dict[str, Value] = {
        "addr": "$254", "op": 0, "value": space.fence, "mask": 2**64 - 1,
        "timeout": 5 * SECOND, "exec_queue_id": space.queue,
    }  # fmt: skip
    world.script.if_done()
    world.script.ioctl(file.slot, "XE_WAIT_USER_FENCE", wait)


def peek(world: World, file: File, data: bytes) -> None:
    if file.objects:
        thing = file.objects[data[0] % len(file.objects)]
        view = world.view(file, thing)
        world.script.load(view, 4096 * (data[1] % thing.pages) + 8 * (data[2] % 4), 8)


def poke(world: World, file: File, data: bytes) -> None:
    if file.objects:
        thing = file.objects[data[0] % len(file.objects)]
        view = world.view(file, thing)
        place = 4096 * (data[1] % thing.pages) + 8 * (data[2] % 4)
        world.script.store(view, place, 0x0101_0101 * data[3], 8)


def map_again(world: World, file: File, data: bytes) -> None:
    """By an offset that was asked for earlier, perhaps of a handle that is closed."""
    known = [thing for thing in (*file.objects, *file.closed) if thing.views]
    if known:
        thing = known[data[0] % len(known)]
        target = world.file(data[1])
        pages = 1 + data[2] % (thing.pages + 1)
        prot = (3, 1, 2, 0)[data[3] % 4]
        world.script.mmap(4096 * pages, target.slot, thing.offset, prot, (1, 1, 1, 2)[data[4] % 4])


def map_dma_buf(world: World, file: File, data: bytes) -> None:
    if world.dma_bufs:
        fd, pages = world.dma_bufs[data[0] % len(world.dma_bufs)]
        first = data[1] % (pages + 1)
        size = 4096 * (1 + data[2] % (pages + 1))
        world.script.mmap(size, fd, 4096 * first, (3, 1)[data[3] % 2], (1, 1, 1, 2)[data[4] % 4])


def fence_wait(world: World, file: File, data: bytes) -> None:
    fields: dict[str, Value] = {
        "addr": file.fence.word, "op": data[0] % 6, "value": data[1] % 4,
        "mask": (2**64 - 1, 1, 0)[data[2] % 3], "timeout": 200_000, "flags": data[3] % 2,
        "exec_queue_id": world.chosen(file.queues, data[4]) if data[4] % 8 == 0 else 0,
    }  # fmt: skip
    world.script.ioctl(file.slot, "XE_WAIT_USER_FENCE", fields)


def open_or_close(world: World, file: File, data: bytes) -> None:
    """Another file, or the end of one with everything in it but what was exported."""
    if len(world.files) < MOST_FILES and data[0] < 0xC0:
        world.open_file()
    elif len(world.files) > 1:
        world.files.remove(file)
        world.script.close(file.slot)


def property_of_space(world: World, file: File, data: bytes) -> None:
    space = world.space(file, data[0])
    show = ["size", "value"]
    fields: dict[str, Value] = {"vm_id": space.slot, "property": data[1] % 2}
    world.script.ioctl(file.slot, "XE_VM_GET_PROPERTY", fields, show=show)


def nobody(world: World, file: File, data: bytes) -> None:
    """Calls about what does not exist."""
    calls = (
        ("GEM_CLOSE", "handle"), ("XE_VM_DESTROY", "vm_id"), ("SYNCOBJ_DESTROY", "handle"),
        ("XE_EXEC_QUEUE_DESTROY", "exec_queue_id"), ("PRIME_HANDLE_TO_FD", "handle"),
        ("XE_GEM_MMAP_OFFSET", "handle"),
    )  # fmt: skip
    call, name = calls[data[0] % len(calls)]
    world.script.ioctl(file.slot, call, {name: NOBODY})


VERBS: tuple[Verb, ...] = (
    create, create, create, close, export, export, import_one, import_one, identity,
    close_dma_buf, create_space, destroy_space, bind, bind, bind, bind, bind, bind, unmap_all,
    bind_array, bind_array, bind_nothing, layout, layout, advise, advise, query, syncobj_create,
    syncobj_create, syncobj_destroy, syncobj_array, syncobj_array, syncobj_wait, syncobj_wait,
    syncobj_transfer, syncobj_share, queue_create, queue_destroy, queue_ask, exec_nothing,
    gpu_store, gpu_store, gpu_store, peek, peek, poke, poke, map_again, map_dma_buf, fence_wait,
    open_or_close, property_of_space, change_handle, nobody,
)  # fmt: skip
"""A verb stands as often as it is to be chosen."""


def program(name: str, platform: Platform, steps: Sequence[bytes]) -> Script:
    """The script of these steps."""
    world = World(name, platform)
    for step in steps:
        verb, file = step[0] % len(VERBS), world.file(step[0] // len(VERBS))
        VERBS[verb](world, file, step[1:])
    world.finish()
    return world.script
