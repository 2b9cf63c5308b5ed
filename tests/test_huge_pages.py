"""What may be put into huge pages, and that its content stays."""

from __future__ import annotations

import ctypes
import mmap
import sys

import pytest

from autograder.sandbox.inside import huge_pages
from autograder.sandbox.inside.huge_pages import HUGE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what memory a process has")
SIZE = 4 * HUGE


def middle(block: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(block)) + SIZE // 2


def held(address: int) -> bool:
    return any(start <= address < start + length for start, length in huge_pages._regions())


def test_own_memory_is_put_into_huge_pages_and_keeps_its_content() -> None:
    data = bytearray(range(256)) * (SIZE // 256)
    assert held(ctypes.addressof(ctypes.c_char.from_buffer(data)) + SIZE // 2)
    huge_pages.collapse()
    assert data == bytes(range(256)) * (SIZE // 256)


def test_regions_are_whole_huge_pages() -> None:
    regions = list(huge_pages._regions())
    assert regions
    assert all(start % HUGE == 0 and length % HUGE == 0 and length > 0 for start, length in regions)


def test_memory_that_others_share_is_left_alone(tmp_path) -> None:
    with (tmp_path / "file").open("w+b") as file:
        file.truncate(SIZE)
        assert not held(middle(mmap.mmap(file.fileno(), SIZE)))
    assert not held(middle(mmap.mmap(-1, SIZE)))  # shared by default
