"""Tests of ``kafka.tasks.health``."""
