"""What the Ray test runs, as a program: Ray keeps threads and fds until its process ends."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import ray

import ze_ipc
from ze_ipc.interop import ray as interop

PAGE = 4096
SHAPE = (6, 512)


class ProducerCode:
    """Owns a range of three objects."""

    def __init__(self) -> None:
        self.device = ze_ipc.open_device("mock")
        self.reservation = self.device.reserve(3 * PAGE)
        for at in range(0, 3 * PAGE, PAGE):
            with self.device.physical_memory(PAGE) as memory:
                self.reservation.map(memory, at=at)
        self.array = self.reservation.array("float32", SHAPE)
        np.asarray(self.array)[:] = np.arange(np.prod(SHAPE)).reshape(SHAPE)
        self.handle: ze_ipc.RangeHandle | None = None

    def weights(self) -> Any:
        column = self.reservation.array("float32", (SHAPE[0],), (4 * SHAPE[1],), 8)
        return {"all": self.array, "column": column, "name": "weights"}

    def export(self) -> ze_ipc.RangeHandle:
        self.handle = self.device.get_ipc_handle(self.reservation.ptr + 4, 8)
        return self.handle

    def served(self) -> int:
        broker = self.device._broker
        return 0 if broker is None else len(broker._registry.registrations())

    def at(self, row: int, column: int) -> float:
        return float(np.asarray(self.array)[row, column])


class ConsumerCode:
    def use(self, weights: Any) -> tuple[str, float, list[float], str]:
        import torch

        everything = torch.from_dlpack(weights["all"])
        total = float(everything.sum())
        everything[1, 1] = -5
        column = np.asarray(weights["column"]).tolist()
        return type(weights["all"]).__name__, total, column, weights["name"]

    def read(self, handle: ze_ipc.RangeHandle) -> bytes:
        with ze_ipc.open_device("mock") as device, device.open_ipc_handle(handle) as view:
            return bytes(memoryview(view))


def arrays_by_the_transport() -> None:
    producer_class = ray.remote(enable_tensor_transport=True)(ProducerCode)
    consumer_class = ray.remote(enable_tensor_transport=True)(ConsumerCode)
    producer, consumer = producer_class.remote(), consumer_class.remote()
    wanted = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    for turn in range(2):
        reference = producer.weights.options(tensor_transport="ZE_IPC").remote()
        name, total, column, said = ray.get(consumer.use.remote(reference), timeout=60)
        assert (name, said) == ("RangeArray", "weights")
        assert total == wanted.sum()
        assert column == wanted[:, 2].tolist()
        # The very same memory.
        wanted[1, 1] = -5
        assert ray.get(producer.at.remote(1, 1), timeout=60) == -5
        assert ray.get(producer.served.remote(), timeout=60) >= 2, turn
        del reference
    deadline = time.monotonic() + 60
    while ray.get(producer.served.remote(), timeout=60):
        assert time.monotonic() < deadline, "handles of collected references are still served"
        time.sleep(0.05)
    for actor in (producer, consumer):
        ray.kill(actor)


def handles_are_data() -> None:
    producer, consumer = ray.remote(ProducerCode).remote(), ray.remote(ConsumerCode).remote()
    reference = producer.export.remote()
    wanted = np.array([1, 2], np.float32).tobytes()
    assert ray.get(consumer.read.remote(reference), timeout=60) == wanted
    handle = ray.get(reference, timeout=60)
    assert isinstance(handle, ze_ipc.RangeHandle)
    again = ray.put(handle)
    assert ray.get(consumer.read.remote(again), timeout=60) == wanted
    with ze_ipc.open_device("mock") as device, device.open_ipc_handle(handle) as view:
        assert bytes(memoryview(view)) == wanted
    for actor in (producer, consumer):
        ray.kill(actor)


def main() -> None:
    interop.register()
    variables = {name: os.environ[name] for name in ("PYTHONPATH", "ZE_IPC_DIR")}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": variables},
    )
    arrays_by_the_transport()
    handles_are_data()
    ray.shutdown()
    print("done")


if __name__ == "__main__":
    main()
