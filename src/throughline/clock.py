"""The time of day as every file states it. Durations are measured with the monotonic clock instead."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """`2026-11-20T12:00:00Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
