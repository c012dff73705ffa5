"""Delivery by consumer groups: each partition of a queue has one owner, and what has ended is settled in transactions.

For brokers without share groups, and for queues whose jobs run in the order of their keys."""

from __future__ import annotations
