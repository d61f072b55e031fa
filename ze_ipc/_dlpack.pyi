from typing_extensions import Buffer, CapsuleType

def address_of(memory: Buffer) -> int: ...
def capsule(
    owner: object,
    address: int,
    type: tuple[int, int],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    device: tuple[int, int],
    flags: int,
    is_versioned: bool,
) -> CapsuleType: ...
