"""The app of the soak's honest worker: what its process imports."""

from __future__ import annotations

from kafka.tasks import App

app = App("honest", default_queue="jobs")


@app.task(name="double")
def double(number: int) -> int:
    """Twice the number: a job whose result can be checked."""
    return 2 * number
