"""Tables that decide: outcome, attempt, policy and now in, decisions out. Pure."""

from __future__ import annotations
