"""The backend over Level Zero: the system's own loader and whatever driver it finds."""

from ze_ipc.level_zero.backend import LevelZeroBackend as LevelZeroBackend
from ze_ipc.level_zero.opening import open_backend as open_backend
