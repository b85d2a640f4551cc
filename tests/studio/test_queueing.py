"""The queue: order, places, limits, and what becomes of jobs that are stopped or left."""

from __future__ import annotations

import threading

import pytest

from t2x.errors import T2XError
from t2x.studio.events import Cancelled, Failed, Waiting
from t2x.studio.limits import Limits
from t2x.studio.queueing import Job, JobQueue


@pytest.fixture
def gate():
    return threading.Event()


@pytest.fixture
def jobs(gate):
    """A queue, and a way to put a job into it that waits for the gate."""
    queue = JobQueue(Limits(queue=4, per_user=3))
    done: list[str] = []

    def put(user: str = "ada", name: str = "") -> Job:
        def run(job: Job) -> None:
            assert gate.wait(60)
            done.append(name)
            job.tell(Failed(name))

        job = Job(user, run)
        queue.put(job)
        return job

    yield queue, put, done
    gate.set()
    queue.close()


def test_jobs_are_done_in_order_and_places_are_told(jobs, gate):
    queue, put, done = jobs
    several = [put(user, name) for user, name in (("ada", "1"), ("ben", "2"), ("ada", "3"))]
    assert len(queue) == 3
    gate.set()
    told = [list(queue.events(job)) for job in several]
    assert done == ["1", "2", "3"]
    places = [[event.place for event in events[:-1]] for events in told]
    assert places[0][0] == 0 and places[1] == [1, 0] and places[2] == [2, 1, 0]
    assert [events[-1] for events in told] == [Failed("1"), Failed("2"), Failed("3")]
    assert {event.job for event in told[2][:-1]} == {several[2].id}


def test_a_full_queue_and_a_users_part_of_it_refuse(jobs):
    queue, put, _ = jobs
    for _ in range(3):
        put("ada")
    with pytest.raises(T2XError, match="3 jobs of yours"):
        put("ada")
    put("ben")
    with pytest.raises(T2XError, match="4 jobs are waiting"):
        put("cleo")
    assert len(queue) == 4


def test_a_waiting_job_is_cancelled_at_once_and_the_others_move_up(jobs, gate):
    queue, put, done = jobs
    _, second, third = put(name="1"), put(name="2"), put("ben", "3")
    assert not queue.cancel(second.id, user="ben")
    assert queue.cancel(second.id, user="ada") and not queue.cancel(second.id)
    assert list(queue.events(second)) == [Waiting(second.id, 1), Cancelled()]
    gate.set()
    assert [e.place for e in list(queue.events(third))[:-1]] == [2, 1, 0]
    assert done == ["1", "3"]


def test_a_reader_who_leaves_cancels_the_job(jobs, gate):
    queue, put, done = jobs
    first, second = put(name="1"), put(name="2")
    events = queue.events(second)
    assert next(events) == Waiting(second.id, 1)
    events.close()
    assert second.ended.is_set() and len(queue) == 1
    gate.set()
    list(queue.events(first))
    assert done == ["1"]


def test_a_job_that_breaks_leaves_the_worker_alive():
    queue = JobQueue(Limits())

    def breaks(job: Job) -> None:
        raise SystemExit

    broken, good = Job("a", breaks), Job("a", lambda job: job.tell(Failed("done")))
    queue.put(broken)
    queue.put(good)
    assert list(queue.events(broken))[-1] == Cancelled()
    assert list(queue.events(good))[-1] == Failed("done")
    queue.close()
    with pytest.raises(T2XError, match="closed"):
        queue.put(Job("a", breaks))


def test_closing_ends_every_job(jobs, gate):
    queue, put, done = jobs
    several = [put(name=name) for name in "12"]
    closing = threading.Thread(target=queue.close)
    closing.start()
    assert list(queue.events(several[1]))[-1] == Cancelled()
    gate.set()
    closing.join(60)
    assert several[0].stop.is_set() and several[0].ended.is_set() and done in ([], ["1"])
