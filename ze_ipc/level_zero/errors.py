"""The one translator of a driver's ze_result_t into this package's errors."""

from __future__ import annotations

from typing import Any

from ze_ipc.errors import DeviceNotVisible, Result, ZeIpcError, error_of_result

HINTS = {
    Result.UNINITIALIZED: "no Level Zero driver serves a GPU here: ze-ipc doctor says why",
    Result.DEPENDENCY_UNAVAILABLE: "a library of the driver is missing: ze-ipc doctor says which",
    Result.UNSUPPORTED_FEATURE: "this driver or loader is too old for it: ze-ipc doctor lists both",
}


def ze_error(
    result: int,
    call: str,
    cause: str = "",
    *,
    object_index: int | None = None,
    address: int | None = None,
    hint: str | None = None,
    **values: Any,
) -> ZeIpcError:
    """The error of a ze_result_t that is not success (not raised); ``call`` is the function's
    name.
    """
    return error_of_result(
        result,
        cause,
        call=call,
        object_index=object_index,
        address=address,
        hint=hint if hint is not None else HINTS.get(Result(result)),
        **values,
    )


def no_loader(tried: list[str], reason: str) -> DeviceNotVisible:
    """There is no Level Zero on this system (not raised)."""
    return DeviceNotVisible(
        f"no Level Zero loader can be opened: {reason}",
        call="dlopen",
        hint="install it (Debian: libze1 and libze-intel-gpu1); ze-ipc doctor says what is wrong",
        tried=", ".join(tried),
    )
