"""Tests of ``kafka.tasks``; ``fakes`` has a queue in memory, with a manual clock, that they share."""
