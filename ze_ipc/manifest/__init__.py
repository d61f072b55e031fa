"""The description of an exported range: what it is, how it is built, and how it travels."""

from ze_ipc.manifest.build import build, merge
from ze_ipc.manifest.codec import HEADER_SIZE, Glance, digest, encode, parse, seal
from ze_ipc.manifest.continuation import Tail, continuation
from ze_ipc.manifest.exposure import Exposure, exposure
from ze_ipc.manifest.model import LINEAGE_SIZE, VA_PHASE_SIZE, Manifest
from ze_ipc.manifest.widen import widen

__all__ = [
    "HEADER_SIZE",
    "LINEAGE_SIZE",
    "VA_PHASE_SIZE",
    "Exposure",
    "Glance",
    "Manifest",
    "Tail",
    "build",
    "continuation",
    "digest",
    "encode",
    "exposure",
    "merge",
    "parse",
    "seal",
    "widen",
]
