"""The pool is bounded, fair between keys, and gone after join()."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from helpers.waiting import eventually
from ze_ipc.broker_pool import WorkerPool

Pool = WorkerPool["Job"]


class Job:
    """Runs until it is released."""

    def __init__(self, key: object = None, *, fails: bool = False) -> None:
        self.key = key
        self.fails = fails
        self.begun = threading.Event()
        self.release = threading.Event()
        self.ended = threading.Event()

    def run(self) -> None:
        self.begun.set()
        self.release.wait(10)
        self.ended.set()
        if self.fails:
            raise RuntimeError("a job that fails")


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool: Pool = WorkerPool(
        Job.run, name="test", max_threads=4, max_per_key=3, max_queued=4, idle_seconds=0.2
    )
    yield pool
    pool.stop()
    assert pool.join(time.monotonic() + 5)


def start(pool: Pool, *keys: object) -> list[Job]:
    jobs = [Job(key) for key in keys]
    assert all(pool.submit(job.key, job) for job in jobs)
    return jobs


def finish(jobs: list[Job]) -> None:
    for job in jobs:
        job.release.set()
    assert all(job.ended.wait(5) for job in jobs)


def test_threads_are_bounded(pool: Pool) -> None:
    jobs = start(pool, *"abcde")
    assert all(job.begun.wait(5) for job in jobs[:4])
    assert not jobs[4].begun.wait(0.05)
    jobs[0].release.set()
    assert jobs[4].begun.wait(5)
    finish(jobs)


def test_one_key_cannot_take_all(pool: Pool) -> None:
    jobs = start(pool, "a", "a", "a", "a", "b")
    assert jobs[4].begun.wait(5)
    assert not jobs[3].begun.is_set()
    for job in (jobs[0], jobs[4]):
        job.release.set()
    assert jobs[3].begun.wait(5)
    finish(jobs)


def test_several_keys_cannot_take_all(pool: Pool) -> None:
    jobs = start(pool, "a", "b", "b", "a")
    assert all(job.begun.wait(5) for job in jobs[:3])
    assert not jobs[3].begun.wait(0.05)
    newcomer = start(pool, "c")
    assert newcomer[0].begun.wait(5)
    assert not jobs[3].begun.is_set()
    finish(jobs + newcomer)


def test_idle_threads_wake_for_another_key(pool: Pool) -> None:
    jobs = start(pool, "a", "a", "a", "a", "a")
    assert eventually(lambda: len(pool._threads) == 4 and pool._idle == 1)
    other = start(pool, "b")
    assert other[0].begun.wait(0.15)
    finish(jobs + other)


def test_no_key_has_no_limit_but_that(pool: Pool) -> None:
    jobs = start(pool, None, None, None, None)
    assert all(job.begun.wait(5) for job in jobs[:3])
    assert not jobs[3].begun.wait(0.05)
    known = start(pool, "a")
    assert known[0].begun.wait(5)
    finish(jobs + known)


def test_queue_is_bounded(pool: Pool) -> None:
    jobs = start(pool, *"abcd")
    assert all(job.begun.wait(5) for job in jobs)
    jobs += start(pool, *"efgh")
    assert pool.full
    assert not pool.submit("i", Job())
    finish(jobs)
    assert eventually(lambda: not pool.full)


def test_stop_gives_back_what_was_queued(pool: Pool) -> None:
    jobs = start(pool, *"abcd")
    assert all(job.begun.wait(5) for job in jobs)
    queued = start(pool, "e", "f")
    assert pool.stop() == queued
    assert not pool.submit("g", Job())
    assert not pool.join(time.monotonic() + 0.05)
    finish(jobs)
    assert not queued[0].begun.is_set()


def test_a_failing_job_ends_no_thread(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    job = Job("a", fails=True)
    job.release.set()
    assert pool.submit("a", job)
    assert job.ended.wait(5)
    finish(start(pool, "a", "b"))
    assert eventually(lambda: any(record.exc_info for record in caplog.records))


def test_idle_threads_end_and_come_back(pool: Pool) -> None:
    finish(start(pool, *"abc"))
    assert eventually(lambda: not pool._threads)
    finish(start(pool, *"abc"))


def test_without_threads(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert not pool.submit("a", Job())
    finish(start(pool, "a"))
