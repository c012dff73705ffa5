"""Delivery from share groups (KIP-932)."""

from __future__ import annotations
