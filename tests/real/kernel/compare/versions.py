"""What an older kernel lacks: features that came later, by ioctl. No mask hides what it does.

A row says: on this kernel the ioctl (whose words match `words`, if given) answers so, because what
it was asked for came only with `since` (the header of each release and the version table of the
uapi facts; "7.x": between 6.12 and 7.2, the release is not known).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .script import request

NO_SUCH = "-1 22"
"""What an unknown ioctl, flag, query or property is: EINVAL."""


@dataclass(frozen=True, slots=True)
class Lack:
    """An ioctl (or a runner's verb of one letter) and how the older kernel answers it."""

    call: str
    words: str
    answer: str
    since: str
    reason: str
    ends: bool = True
    """What comes after it in the script follows from it."""

    def matches(self, command: str, answer: str) -> bool:
        verb, _, rest = command.partition(" ")
        if len(self.call) == 1:
            known = verb == self.call
        elif verb == "I" and len(rest.split(" ")) > 1:
            # Size and direction are the caller's: the number is what the kernel goes by.
            known = int(rest.split(" ")[1], 0) & 0xFFFF == request(self.call) & 0xFFFF
        else:
            known = False
        return known and answer.startswith(self.answer) and bool(re.search(self.words, command))


LACKS: dict[str, tuple[Lack, ...]] = {
    "trixie": (
        Lack("XE_VM_QUERY_MEM_RANGE_ATTRS", "", NO_SUCH, "6.18", "the ioctl", ends=False),
        Lack("R", r"8:8 16:8 24:4", "0 0", "6.18", "the rows of that ioctl", ends=False),
        Lack("R", r" 45056:4$", "0 0", "6.18", "what MADVISE would have written", ends=False),
        Lack("XE_VM_BIND", r" 24:8=&0\+40960", NO_SUCH, "6.15", "one of those flags in an array"),
        Lack("XE_MADVISE", "", NO_SUCH, "6.18", "the ioctl", ends=False),
        Lack("XE_VM_GET_PROPERTY", "", NO_SUCH, "7.1", "the ioctl", ends=False),
        Lack("XE_EXEC_QUEUE_SET_PROPERTY", "", NO_SUCH, "7.0", "the ioctl"),
        Lack("SET_CLIENT_NAME", "", NO_SUCH, "6.13", "the ioctl", ends=False),
        Lack("XE_DEVICE_QUERY", r" 8:4=(9|10)\b", NO_SUCH, "6.15", "the PXP and EU_STALL queries"),
        Lack("XE_DEVICE_QUERY", r" 8:4=\$", NO_SUCH, "6.15", "the PXP and EU_STALL queries"),
        Lack("XE_GEM_CREATE", r" 20:4=(8|9|1[0-5])\b", NO_SUCH, "7.0", "flag NO_COMPRESSION"),
        Lack("XE_GEM_CREATE", r" 0:8=(16|&\d+)( |$)", NO_SUCH, "6.15", "every extension (PXP)"),
        Lack("XE_GEM_MMAP_OFFSET", r" 12:4=1\b", NO_SUCH, "6.15", "flag PCI_BARRIER"),
        Lack("XE_VM_CREATE", r" 8:4=(7|1[45])\b", NO_SUCH, "7.x",
             "SCRATCH_PAGE together with FAULT_MODE, flag NO_VM_OVERCOMMIT"),
        Lack("XE_VM_BIND", r" 68:4=(16|32|36|64|96|128)\b", NO_SUCH, "6.15",
             "flags CHECK_PXP, CPU_ADDR_MIRROR; 6.18: MADVISE_AUTORESET; 7.1: DECOMPRESS"),
        Lack("XE_VM_BIND", r" 72:4=4294967295\b", NO_SUCH, "6.18", "CONSULT_MEM_ADVISE_PREF_LOC"),
        Lack("XE_VM_BIND", r" 8:4=0 .* 12:4=9\b", "-1 2", "6.19",
             "the queue is looked up after the space"),
        Lack("XE_VM_BIND", r" 12:4=\$", "0 0", "6.19", "a bind queue belongs to one space"),
        Lack("XE_VM_BIND", r" 108:4=1 .*20:4=0", "0 0", "6.19",
             "an in-fence is refused where nothing is bound"),
        Lack("XE_VM_BIND", r" 20:4=0 108:4=1", "0 0", "6.19",
             "an in-fence is refused where nothing is bound"),
        Lack("XE_EXEC_QUEUE_CREATE", r" 16:4=1\b", NO_SUCH, "6.15", "flag LOW_LATENCY_HINT"),
        Lack("XE_EXEC_QUEUE_CREATE", r" 0:8=&", NO_SUCH, "6.15",
             "property PXP_TYPE; 7.0: HANG_REPLAY_STATE, MULTI_GROUP; 7.1: the state cache's fix"),
        Lack("SYNCOBJ_HANDLE_TO_FD", r" 4:4=[23]\b", NO_SUCH, "6.16", "flag TIMELINE"),
        Lack("SYNCOBJ_HANDLE_TO_FD", r" 16:8=1\b", "0 0", "6.16", "`point` is looked at"),
        Lack("SYNCOBJ_FD_TO_HANDLE", r" 4:4=[23]\b", NO_SUCH, "6.16", "flag TIMELINE"),
        Lack("SYNCOBJ_FD_TO_HANDLE", r" 16:8=1\b", "0 0", "6.16", "`point` is looked at"),
        Lack("SYNCOBJ_CREATE", r" 0:4>[34] 0:4\?$", "0 0 0:4=0x", "7.x",
             "a syncobj that is destroyed by the number 0 makes 0 the next number"),
        Lack("M", "", NO_SUCH, "7.x", "a CPU mapping keeps the object's place among the offsets"),
    ),
}  # fmt: skip


def lack(kernel: str, command: str, answer: str) -> Lack | None:
    """Why this kernel answers so, if it is because it is older."""
    return next((one for one in LACKS.get(kernel, ()) if one.matches(command, answer)), None)
