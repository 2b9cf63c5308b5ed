"""As little sharding as the memory allows."""

from __future__ import annotations

from collections.abc import Mapping

from course.reference.fsdp.zero_bytes import zero_bytes


def smallest_stage(n: int, size: int, recipe: Mapping[str, int], limit: int) -> int | None:
    """The first stage of ZeRO whose bytes on a rank are at most `limit`, or None."""
    for stage in range(4):
        if zero_bytes(n, size, stage, recipe) <= limit:
            return stage
    return None
