"""A child that runs no job itself: it forks a process for each, and waits until that has ended.

The pool ``fork`` on Linux. To make a whole child for each job cost 8 ms of CPU: a fork of the worker, a channel, the
setup, the handshake, the cleanup at its end. Here all that is done once, and a job costs a fork of a process that
is ready to run it: 3 to 4 ms, nearly all of that page faults (550) and page tables. So what runs here for each job is
short, and nothing is done twice: each further function of Python is two pages more to copy.
Batching the copies (``MADV_POPULATE_WRITE``) and the smaller memory of a fork server brought nothing.

Nothing of a job reaches the next one: the process of a job ends with it, and the child lets nothing live that it has
left behind. As the worker sees it, nothing else is new. The process of a job is in the child's group and writes to the
child's page and channel; and when it ends before its job has, *the child ends in the same way*, with the same signal or
exit code. So causes, crash counts, the end of a damaged channel and what is put back are those of a child that dies.

====================================  =================================================================================
who ends                              what follows
====================================  =================================================================================
the job's process, its job done       the next job
the job's process, its job not done   the child writes what it used to the page, and ends like it
the child, killed by others           its group is killed; it is reaped when no process of the group is left (launch.py)
the worker                            the kernel kills the group (process_setup.py); who has left it dies with the child
====================================  =================================================================================

Signals for a group (SIGTERM at the hard limit) reach the job's process directly. The child has them blocked meanwhile,
so that it does not die first, and takes them afterwards.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
import time
import traceback
from typing import NoReturn

from kafka.tasks.app import App
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.format.envelope import Envelope
from kafka.tasks.format.payload import encode_call
from kafka.tasks.pools import kernel
from kafka.tasks.pools.child import process_setup
from kafka.tasks.pools.child.job_loop import EXIT_BROKEN_CHANNEL, ChildParameters, JobLoop, run_exit_functions
from kafka.tasks.pools.child.soft_limit import SoftLimitWindow
from kafka.tasks.pools.ipc.channel import ChildChannel, ParentChannel
from kafka.tasks.pools.job_logging import JobLogContext, flush_streams
from kafka.tasks.pools.runner import Job

log = logging.getLogger(__name__)

EXIT_FUNCTIONS_S = 5
"""A process whose job is done has so long to flush what that has enqueued and to run its exit functions."""
WARM_UP_RUNS = 20
"""More than the calls after which the interpreter specialises a function."""
LEFTOVER_KILL_S = 5.0
"""What a job has left behind has so long to die of SIGKILL; else the child does not go on either."""


class ForkingJobLoop(JobLoop):
    """The loop of such a child."""

    _is_forking = False
    _has_numpy = False
    _pid = 0

    def serve(self) -> int:
        self._pid = os.getpid()
        self._has_numpy = "numpy" in sys.modules
        with contextlib.suppress(Exception):  # no descriptors, say: it only saves time
            _warm_up(self._app, self._parameters)
        gc.collect()
        gc.freeze()
        gc.disable()
        return super().serve()

    def _run_next(self, seq: int) -> None:
        process_setup.block_signals()
        self._is_forking = True
        try:
            pid = os.fork()
        except OSError as error:  # nothing has begun: others take the job
            log.error("could not fork a process for a job, this child ends: %s", error)
            os._exit(EXIT_BROKEN_CHANNEL)
        finally:
            self._is_forking = False
        if pid == 0:
            self._run_job_process()
        self._channel.discard_file()
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        self._page.set_runner(0)  # before its number can be given to another process
        if self._page.done_seq != seq:
            self._exit_like_job(pid)
        status = os.waitpid(pid, 0)[1]
        if status:
            code = os.waitstatus_to_exitcode(status)
            log.warning("process %d ended with exit code %d after its job was done", pid, code)
        _kill_leftovers()
        process_setup.unblock_signals()

    def _exit_like_job(self, pid: int) -> NoReturn:
        _, status, usage = os.wait4(pid, 0)
        self._page.lost(usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime)
        _exit_like(status)

    # -- the process of a job -----------------------------------------------------------------------------------------

    def _run_job_process(self) -> NoReturn:
        code = EXIT_BROKEN_CHANNEL
        try:
            kernel.die_with_parent(signal.SIGKILL)  # it may leave the group, with which it would die else
            if os.getppid() != self._pid:
                os._exit(code)
            self._page.set_runner(os.getpid())
            if self._has_numpy:
                process_setup.reseed_numpy()
            gc.enable()
            process_setup.unblock_signals()
            self._run_one(self._channel.packet())
            if self._app.is_connected or atexit._ncallbacks():
                self._end()
            code = 0
        except OSError as error:
            log.error("the channel to the worker is closed or damaged (%s); this process ends", error)
        except BaseException:
            traceback.print_exc()
        finally:
            if code:
                flush_streams()
            os._exit(code)

    def _end(self) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        process_setup.unblock_signals()
        signal.alarm(EXIT_FUNCTIONS_S)
        run_exit_functions(self._app)
        flush_streams()

    def on_task_fork(self) -> None:
        if not self._is_forking:
            super().on_task_fork()


def _exit_like(status: int) -> NoReturn:
    """End with the exit code, or by the signal, by which another process has ended."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        os._exit(code)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # there is one of the process itself, where they are wanted
    with contextlib.suppress(OSError):  # SIGKILL
        signal.signal(-code, signal.SIG_DFL)
    process_setup.unblock_signals(process_setup.ALL_SIGNALS - {-code})
    os.kill(os.getpid(), -code)
    os._exit(EXIT_BROKEN_CHANNEL)


def _kill_leftovers() -> None:
    """Kill and reap what the last job has left behind. All of that is a child of this process, a subreaper, by now."""
    give_up_at = 0.0
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
            left = [pid for pid in kernel.children_of(os.getpid()) if not kernel.is_shared_broker(pid)]
            if not left:
                return
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            now = time.monotonic()
            give_up_at = give_up_at or now + LEFTOVER_KILL_S
            if now >= give_up_at:
                log.error("a process left behind by a job did not end after SIGKILL; this child ends")
                os._exit(EXIT_BROKEN_CHANNEL)
            time.sleep(0.001)
    except ChildProcessError:  # no child is left: the usual case
        pass


def _warm_up(app: App, parameters: ChildParameters) -> None:
    """Run a job that does nothing, in this process, a few times. What the interpreter writes down when it calls
    something for the first time (specialised code, versions of types, addresses of symbols) the process of each job
    would write down for itself else: 70 of its 600 page faults.
    """
    parent_channel = ParentChannel(0, shared=True)
    channel = ChildChannel(0, parent_channel.for_child, parent_channel.page)
    bare_app = App(app.name)  # without handlers
    task = bare_app.task(_empty_task)
    job_loop = JobLoop(channel, bare_app, SoftLimitWindow(channel.page), JobLogContext(), parameters)
    envelope = Envelope("0" * 32, task.name, encode_call(task.name, (), {}))
    job = Job(JobLease(JobSource(task.queue, ""), envelope.value, (), 1), envelope, task)
    for seq in range(1, 1 + WARM_UP_RUNS):
        parent_channel.send(seq, job)
        job_loop._run_next(channel.take())
    channel.close()
    parent_channel.close()


def _empty_task() -> None:
    """A task."""
