"""Tests of ``kafka.tasks.schedule``."""
