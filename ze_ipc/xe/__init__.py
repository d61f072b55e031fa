"""The backend over Intel's xe kernel driver: no user-mode driver below it."""

from ze_ipc.xe.backend import XeBackend as XeBackend
from ze_ipc.xe.nodes import (
    Looked as Looked,
)
from ze_ipc.xe.nodes import (
    RenderNode as RenderNode,
)
from ze_ipc.xe.nodes import (
    find_nodes as find_nodes,
)
from ze_ipc.xe.nodes import (
    look as look,
)
from ze_ipc.xe.opening import open_backend as open_backend
from ze_ipc.xe.opening import open_mock as open_mock
