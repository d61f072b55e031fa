def call(function: int, first: int, second: int) -> int:
    """Call the C function ``int (void *, void *)`` at that address without giving up the GIL."""
