"""Tests of kafka/broker/groups."""
