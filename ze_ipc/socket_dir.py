"""The directory in which brokers listen, whatever the length of its path and whoever renames it.

``$ZE_IPC_DIR`` if it is set, and nothing else then. Otherwise ``$XDG_RUNTIME_DIR/ze_ipc`` where
that directory exists and is ours, else ``/tmp/ze_ipc-<uid>``; an importer looks into both, so that
two processes of one user need not agree about XDG_RUNTIME_DIR. A directory that somebody else owns
(root may) or that others may write without the sticky bit is refused, and so is a symbolic link:
whoever can replace our socket would be told our secrets.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import socket
import stat
import time
from pathlib import Path

from ze_ipc.errors import AccessDenied, KernelError
from ze_ipc.fds import Fd, close_fd
from ze_ipc.os_errors import error_of_os

_SOCKET_NAME = re.compile(r"(?P<broker>[0-9a-f]{16})\.sock|\.(?P<unborn>[0-9a-f]{16})\.new")

_STALE_LIMIT = 1024
"""Entries looked at in one clean-up, at most."""

_UNBORN_AGE = 60.0
"""Seconds after which a socket that was bound and never renamed belongs to a dead process."""

_HINT = "set ZE_IPC_DIR to a directory of yours with mode 0700, the same in both processes"


def socket_name(broker_id: bytes) -> str:
    """The file name of a broker's socket."""
    return f"{broker_id.hex()}.sock"


def candidate_dirs() -> list[Path]:
    """Where an importer looks for a broker, in order; an exporter listens in the first."""
    return [Path(path) for path in candidate_paths()]


def candidate_paths() -> list[str]:
    """candidate_dirs() as strings, for those in a hurry."""
    if configured := os.environ.get("ZE_IPC_DIR"):
        return [configured]
    private = f"/tmp/ze_ipc-{os.geteuid()}"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and _is_ours(runtime):
        return [os.path.join(runtime, "ze_ipc"), private]  # noqa: PTH118
    return [private]


def open_trusted(path: str) -> tuple[int, bool]:
    """An O_PATH descriptor of a directory of sockets, and whether others may make files in it (and
    only remove their own). FileNotFoundError where there is none, AccessDenied where it cannot be
    trusted: it is looked at anew each time, through the descriptor.
    """
    try:
        number = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError as error:
        raise _denied(path, "is a symbolic link or no directory", errno.EACCES) from error
    except FileNotFoundError:
        raise
    except PermissionError as error:
        raise _denied(path, "cannot be entered", error.errno) from error
    except OSError as error:
        raise error_of_os(error, "open") from error
    try:
        status = os.fstat(number)
        owner, mode = status.st_uid, status.st_mode
        if owner and owner != os.geteuid():
            raise _denied(path, f"belongs to uid {owner}", errno.EACCES)
        shared = bool(mode & (stat.S_IWGRP | stat.S_IWOTH))
        if shared and not mode & stat.S_ISVTX:
            text = f"may be written by others (mode {stat.S_IMODE(mode):04o})"
            raise _denied(path, text, errno.EACCES)
    except BaseException as error:
        close_fd(number)
        if isinstance(error, OSError) and not isinstance(error, AccessDenied):
            raise error_of_os(error, "fstat") from error
        raise
    return number, shared


def address_in(number: int, name: str) -> str:
    """What to bind or connect to for a file of an open directory, however long its path is."""
    return f"/proc/self/fd/{number}/{name}"


class SocketDir:
    """One open directory of sockets; the owner of its O_PATH descriptor."""

    def __init__(self, path: Path, *, create: bool) -> None:
        """Open ``path``: FileNotFoundError where it does not exist and must not be made,
        AccessDenied where it cannot be trusted.
        """
        self.path = path
        if create:
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                pass
            except PermissionError as error:
                raise _denied(path, "cannot be made there", error.errno) from error
            except OSError as error:
                raise error_of_os(error, "mkdir", f"cannot make {path}", hint=_HINT) from error
        number, self.shared = open_trusted(str(path))
        self._fd = Fd(number)

    def address(self, name: str) -> str:
        """What to bind or connect to for the file ``name``; valid while this is open."""
        return address_in(self._fd.fileno(), name)

    def listen(self, broker_id: bytes, *, mode: int, backlog: int) -> socket.socket:
        """A socket that listens under the broker's name, with exactly this file mode.

        It is bound under another name and renamed when it listens already, so that a clean-up never
        meets a socket of this name that refuses only because it is not ready.
        """
        unborn, name = f".{broker_id.hex()}.new", socket_name(broker_id)
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise error_of_os(error, "socket") from error
        try:
            # Linux takes the mode of a socket file from the socket's inode, less the umask.
            os.fchmod(sock.fileno(), mode)
            sock.bind(self.address(unborn))
            try:
                sock.listen(backlog)
                os.rename(unborn, name, src_dir_fd=self._fd.fileno(), dst_dir_fd=self._fd.fileno())
            except BaseException:
                self.unlink(unborn)
                raise
        except OSError as error:
            sock.close()
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise _denied(self.path, "cannot be written", error.errno) from error
            raise error_of_os(error, "bind", f"cannot listen in {self.path}", hint=_HINT) from error
        except BaseException:
            sock.close()
            raise
        return sock

    def set_mode(self, name: str, mode: int) -> None:
        """Change who may connect to a socket of ours."""
        try:
            Path(self.address(name)).chmod(mode)
        except OSError as error:
            raise KernelError(
                f"cannot open {self.path / name} to others", errno=error.errno, call="chmod"
            ) from error

    def unlink(self, name: str) -> None:
        """Remove a file if it is still there."""
        try:
            os.unlink(name, dir_fd=self._fd.fileno())
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise KernelError(
                    f"cannot remove {self.path / name}", errno=error.errno, call="unlink"
                ) from error

    def remove_stale(self) -> int:
        """Remove the sockets that dead brokers of ours left behind; how many there were.

        Dead is what refuses a connection: the file is there and nobody listens.
        """
        removed = 0
        try:
            paths = Path(self.address(".")).iterdir()
            names = [path.name for path in itertools.islice(paths, _STALE_LIMIT)]
        except OSError:
            return 0
        for name in names:
            if (match := _SOCKET_NAME.fullmatch(name)) and self._is_stale(
                name, unborn=match["unborn"] is not None
            ):
                self.unlink(name)
                removed += 1
        return removed

    def _is_stale(self, name: str, *, unborn: bool) -> bool:
        try:
            status = os.stat(name, dir_fd=self._fd.fileno(), follow_symlinks=False)
        except OSError:
            return False
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
            return False
        if unborn and time.time() - status.st_mtime < _UNBORN_AGE:
            return False
        try:
            probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:
            return False
        with probe:
            probe.setblocking(False)
            return probe.connect_ex(self.address(name)) == errno.ECONNREFUSED

    def close(self) -> None:
        """Give the descriptor back; idempotent."""
        self._fd.close()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._fd.closed

    def __enter__(self) -> SocketDir:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SocketDir {self.path}{' closed' if self.closed else ''}>"


def exporter_dir() -> SocketDir:
    """The directory to listen in, made where it is missing."""
    return SocketDir(candidate_dirs()[0], create=True)


def _is_ours(path: str) -> bool:
    try:
        status = Path(path).stat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _denied(path: Path | str, what: str, number: int | None) -> AccessDenied:
    return AccessDenied(f"the broker directory {path} {what}", errno=number, hint=_HINT)
