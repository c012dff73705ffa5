"""Tests of ``kafka.tasks.pools``."""
