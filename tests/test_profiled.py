"""The recorded traces, a live one, and their pictures."""

from __future__ import annotations

import pytest

from course.lessons.experiments import profiled
from course.lessons.figures.trace import trace
from course.reference.gradient_checkpointing.find_stall import find_stall

RUNS = profiled.recorded().data


def share(*, slow_loader: bool, item: bool) -> float:
    """The share of the recorded step in which the device is idle."""
    events = RUNS.of(slow_loader=slow_loader, item=item).events
    return find_stall(events)[0] / next(each["duration"] for each in events if each["name"] == "step")


def test_the_loader_is_blamed_where_both_suspects_meet() -> None:
    assert find_stall(RUNS.of(slow_loader=True, item=True).events)[1] == "load"


def test_either_cure_leaves_the_device_hardly_idle() -> None:
    both = share(slow_loader=True, item=True)
    for cured in (share(slow_loader=True, item=False), share(slow_loader=False, item=True)):
        assert cured < both / 2


def test_a_live_step_has_all_marks_and_every_kernel() -> None:
    run = profiled.run(slow_loader=True, item=True, wait=0.03, steps=profiled.SHOWN + 1)
    assert {each["name"] for each in run.events if each["lane"] == "host"} == set(profiled.MARKS)
    kernels = [each["name"] for each in run.events if each["lane"] == "device"]
    assert kernels[0] == "embed"
    assert kernels[-1] == "optimizer"
    assert find_stall(run.events)[0] >= 30_000


@pytest.mark.parametrize("slow_loader", [True, False])
def test_a_trace_is_drawn(slow_loader: bool) -> None:
    events = RUNS.of(slow_loader=slow_loader, item=True).events
    assert trace({"one step": events}, title="A step")._repr_png_()[0][:4] == b"\x89PNG"
