"""One descriptor, one owner; and none is lost between sockets."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import socket
import warnings
from collections.abc import Iterator

import pytest

from ze_ipc.errors import Closed, FdLimit, KernelError
from ze_ipc.fds import MAX_FDS_A_MESSAGE, Fd, close_all, receive_fds, send_fds


def null() -> int:
    return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with near, far:
        yield near, far


def is_open(number: int) -> bool:
    return os.path.lexists(f"/proc/self/fd/{number}")


def test_close_is_idempotent_and_forgets_the_number() -> None:
    number = null()
    fd = Fd(number)
    assert fd.fileno() == number
    fd.close()
    assert fd.closed
    assert not is_open(number)
    again = null()  # the same number, now somebody else's
    fd.close()
    assert is_open(again)
    os.close(again)
    with pytest.raises(Closed):
        fd.fileno()
    assert "closed" in repr(fd)


def test_the_number_is_forgotten_even_if_close_fails() -> None:
    number = null()
    fd = Fd(number)
    os.close(number)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        fd.close()
    assert fd.closed
    fd.close()


def test_a_block_closes_it() -> None:
    with Fd(null()) as fd:
        number = fd.fileno()
    assert not is_open(number)


def test_detach_hands_it_over() -> None:
    fd = Fd(null())
    number = fd.detach()
    assert fd.closed
    fd.close()
    assert is_open(number)
    os.close(number)
    with pytest.raises(Closed):
        fd.detach()


def test_collected_open_is_warned_about_and_closed() -> None:
    number = null()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        Fd(number)
    assert [w.category for w in seen] == [ResourceWarning]
    assert not is_open(number)


@pytest.mark.parametrize("number", [-1, -5])
def test_a_negative_number_is_none(number: int) -> None:
    with pytest.raises(ValueError, match="descriptor"):
        Fd(number)


def test_duplicates_are_closed_on_exec() -> None:
    with Fd(null()) as fd, Fd.duplicate(fd.fileno()) as copy:
        assert copy.fileno() != fd.fileno()
        assert fcntl.fcntl(copy.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    with pytest.raises(KernelError) as caught:
        Fd.duplicate(1 << 20)
    assert caught.value.errno == errno.EBADF


def test_close_all_closes_all_whatever_fails() -> None:
    fds = [Fd(null()) for _ in range(3)]
    numbers = [fd.fileno() for fd in fds]
    os.close(numbers[1])
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        close_all(fds)
    assert not any(map(is_open, numbers))


@pytest.mark.parametrize("count", [0, 1, 2, 252, MAX_FDS_A_MESSAGE])
def test_descriptors_arrive(pair: tuple[socket.socket, socket.socket], count: int) -> None:
    with Fd(null()) as fd:
        send_fds(pair[0], b"hello", [fd] * count)
        data, fds = receive_fds(pair[1], 100, count)
    assert data == b"hello"
    assert len(fds) == count
    assert all(fcntl.fcntl(fd.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC for fd in fds)
    close_all(fds)


@pytest.mark.parametrize(("sent", "wanted"), [(1, 0), (2, 1), (3, 2), (9, 1)])
def test_more_than_asked_for_is_refused_and_closed(
    pair: tuple[socket.socket, socket.socket], sent: int, wanted: int
) -> None:
    send_fds(pair[0], b"x", [0] * sent)
    with pytest.raises(KernelError) as caught:
        receive_fds(pair[1], 10, wanted)
    assert caught.value.errno == errno.EMSGSIZE


def test_a_cut_message_is_refused_and_its_descriptors_closed(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    send_fds(pair[0], b"0123456789", [0, 1])
    with pytest.raises(KernelError) as caught:
        receive_fds(pair[1], 5, 2)
    assert caught.value.errno == errno.EMSGSIZE


def test_a_receiver_short_of_descriptors_is_told(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    send_fds(pair[0], b"x", [0] * 50)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Fd(null()) as highest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno() + 11, limits[1]))
        try:
            with pytest.raises(FdLimit) as caught:
                receive_fds(pair[1], 10, 50)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert caught.value.need == 50
        assert caught.value.soft == highest.fileno() + 11


def test_the_end_of_the_stream_is_empty(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].close()
    assert receive_fds(pair[1], 10, 4) == (b"", [])
