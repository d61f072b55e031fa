from ze_ipc.cpu_window import Layout

class BufferBase:
    """Offers the buffer protocol through two methods of a subclass."""

    def _acquire_buffer(self) -> tuple[int, int, bool] | Layout | BufferBase:
        """(address, size, read-only), the same with a layout, or who offers it in this one's
        place; only the one who answers with an address is told of the release.
        """

    def _release_buffer(self) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
