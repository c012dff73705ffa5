"""For users' tests: jobs run in the test's thread, when the test says so, and time is that of a clock that it sets.

::

    from kafka.tasks.testing import FakeClock

    def test_a_failed_mail_is_sent_again():
        with app.testing(clock=FakeClock()) as t:
            job = send.delay(7, body="hi")
            t.run_all()                       # runs all that is due: it fails, and is retried in four seconds
            assert job.status() is JobState.RETRY
            t.advance(4)                      # four seconds pass, and what becomes due runs
            assert job.result() == "sent"
            assert t.jobs[0].attempts == 2 and not t.dead

Everything is as in production but the brokers: arguments and results are encoded and decoded, limits of their size
hold, and so do retries with their back-off, ``Snooze``, ``RetryAt``, ``expires`` and dead letters. There is no thread
and no sleep; ``result()`` answers at once, with :class:`JobTimeout` for a job that has not ended. Time limits of
running are not enforced.

``in_process`` runs jobs in the caller's thread, ``jobs`` is what a test sees of them, ``eager`` is ``app.eager()``.
"""

from __future__ import annotations

from kafka.tasks.testing.clocks import FakeClock
from kafka.tasks.testing.jobs import DeadLetteredJob, EnqueuedJob, TestingJobs

__all__ = ["DeadLetteredJob", "EnqueuedJob", "FakeClock", "TestingJobs"]
