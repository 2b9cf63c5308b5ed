"""A few training steps under torch's profiler, with stalls that were put there.

    host: data -> forward -> backward -> optimizer (launched, not waited for) [-> item: wait until all is done]
    device: a thread that does what is launched, one after the other

A processor has no queue of kernels, so a thread stands in for the device: the host hands it work and goes on, as with
CUDA. Simplified: it shares the processor and Python's lock with the host, and its "kernels" are as long as a block.
What a real device adds is its speed, not another order of events.

The loader "waits" in a sleep, as one that reads from a slow disk does.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch._C._profiler import _ExperimentalConfig
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, record_function

from course.lessons.experiments import recording
from course.lessons.models import GPT, GPTConfig

CONFIG = GPTConfig(vocabulary=64, context=128, width=128, heads=4, layers=3)
BATCH, STEPS, RECORDED_STEPS, SHOWN = 2, 5, 20, 2  # the last: the first step whose trace may be shown, counted from 0
DEVICE = "device: "  # begins the names of its work
WAIT = 0.012  # seconds of the recorded loader, about half of what the device needs there
MARKS = ("step", "data", "load", "forward", "backward", "optimizer", "item")
Work = Callable[[], None]
Event = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Profiled:
    """A run, and what happened in the quickest of its steps from SHOWN on.

    events          dicts with name, lane ("host" or "device"), start and duration in microseconds
    seconds_a_step  the mean of all steps, until the device had done the last
    profile         torch's own, for `export_chrome_trace(path)`
    """

    events: list[Event]
    seconds_a_step: float
    profile: profile


class Device:
    """A thread that does what it is given, in that order."""

    def __init__(self) -> None:
        self._work: queue.Queue[tuple[str, Work] | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def launch(self, name: str, work: Work) -> None:
        """Returns at once."""
        self._work.put((name, work))

    def synchronize(self) -> None:
        """Returns when everything that was launched is done."""
        self._work.join()

    def stop(self) -> None:
        """Ends the thread, after what was launched."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._work.get()) is not None:
            name, work = job
            with record_function(f"{DEVICE}{name}"):
                work()
            self._work.task_done()


class Step:
    """One training step of a GPT as work for a device: a kernel for each block, forward and backward."""

    def __init__(self) -> None:
        self.model = GPT(CONFIG, torch.Generator().manual_seed(0))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.loss = torch.zeros(())

    def launch(self, device: Device, tokens: Tensor, targets: Tensor) -> None:
        """Hands the step's work to the device, part after part."""
        borders: list[tuple[Tensor, Tensor]] = []  # what came out of a part, and the leaf that went into the next
        parts = self._parts(tokens, targets)
        with record_function("forward"):
            for name, part in parts:
                device.launch(name, lambda part=part: self._forward(part, borders))  # type: ignore[misc]
        with record_function("backward"):
            for name, _ in parts[::-1]:
                device.launch(f"{name}, backward", lambda: self._backward(borders))
        with record_function("optimizer"):
            device.launch("optimizer", self._update)

    def _parts(self, tokens: Tensor, targets: Tensor) -> list[tuple[str, Callable[[Tensor], Tensor]]]:
        model = self.model
        blocks = [(f"block {number}", block) for number, block in enumerate(model.blocks, start=1)]
        return [
            ("embed", lambda _: model.token_embedding(tokens) + model.position_embedding.weight),
            *blocks,
            ("head", lambda x: F.cross_entropy(model.head(model.norm(x)).flatten(0, 1), targets.flatten())),
        ]

    def _forward(self, part: Callable[[Tensor], Tensor], borders: list[tuple[Tensor, Tensor]]) -> None:
        y = part(borders[-1][1] if borders else torch.empty(0))
        self.loss = y.detach()
        borders.append((y, y.detach().requires_grad_()))

    def _backward(self, borders: list[tuple[Tensor, Tensor]]) -> None:
        y, leaf = borders.pop()
        y.backward(leaf.grad)  # type: ignore[no-untyped-call]

    def _update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


def run(*, slow_loader: bool, item: bool, wait: float, steps: int = STEPS) -> Profiled:
    """Some steps under the profiler.

    slow_loader  whether the next batch takes `wait` seconds to load
    item         whether the loss is read in each step, for which the host waits until the device has done it
    """
    device, step, rng = Device(), Step(), torch.Generator().manual_seed(0)
    every_thread = _ExperimentalConfig(profile_all_threads=True)
    one_step(device, step, rng, 0.0, item=True)  # what is done once only
    prof = profile(activities=[ProfilerActivity.CPU], experimental_config=every_thread)
    with _switched(prof):
        begin = time.perf_counter()
        for _ in range(steps):
            with record_function("step"):
                one_step(device, step, rng, wait if slow_loader else 0.0, item=item)
        device.synchronize()
        seconds = time.perf_counter() - begin
    device.stop()
    return Profiled(events=_shown(prof), seconds_a_step=seconds / steps, profile=prof)


@contextmanager
def _switched(prof: profile) -> Iterator[None]:
    """The profiler, without the lines that torch 2.13 prints to standard error when it starts and stops."""
    with _quiet():
        prof.start()
    try:
        yield
    finally:
        with _quiet():
            prof.stop()


@contextmanager
def _quiet() -> Iterator[None]:
    """What the process itself writes to standard error is lost."""
    sys.stderr.flush()
    before = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)


def one_step(device: Device, step: Step, rng: torch.Generator, wait: float, *, item: bool) -> None:
    """Loads a batch, launches the work on it, and reads the loss if wanted."""
    with record_function("data"):
        with record_function("load"):
            time.sleep(wait)
        tokens = torch.randint(CONFIG.vocabulary, (BATCH, CONFIG.context + 1), generator=rng)
    step.launch(device, tokens[:, :-1], tokens[:, 1:])
    if item:
        with record_function("item"):
            device.synchronize()
            step.loss.item()


def half_a_step() -> float:
    """Half of the seconds that the device needs for a step: a loader that is fast enough, if nobody waits for it."""
    device, step, rng = Device(), Step(), torch.Generator().manual_seed(0)
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        one_step(device, step, rng, 0.0, item=True)
        times.append(time.perf_counter() - begin)
    device.stop()
    return median(times) / 2


def _shown(prof: profile) -> list[Event]:
    """The marks and the device's work of the step that was disturbed least, on a clock that begins with the step."""
    events_of_all: Any = prof.events()  # type: ignore[no-untyped-call]
    found = [each for each in events_of_all if each.name in MARKS or each.name.startswith(DEVICE)]
    steps = sorted((each for each in found if each.name == "step"), key=lambda each: each.time_range.start)
    quickest = min(steps[SHOWN:], key=lambda each: each.time_range.elapsed_us())
    begin, end = round(quickest.time_range.start), round(quickest.time_range.end)
    events: list[Event] = []
    for each in sorted(found, key=lambda each: (each.time_range.start, -each.time_range.end)):
        start, stop = round(each.time_range.start), round(each.time_range.end)
        on_device = each.name.startswith(DEVICE)
        if (start < end and stop > begin) if on_device else (start >= begin and stop <= end):
            lane, name = ("device", each.name.removeprefix(DEVICE)) if on_device else ("host", each.name)
            events.append({"name": name, "lane": lane, "start": start - begin, "duration": stop - start})
    return events


@dataclass(frozen=True, kw_only=True)
class Run:
    """What `run` gave for one choice, without torch's profile."""

    slow_loader: bool
    item: bool
    seconds_a_step: float
    events: list[Event]

    def __str__(self) -> str:
        loader = "loader waits" if self.slow_loader else "loader is quick"
        return f"{loader}, {'loss read in each step' if self.item else 'loss not read'}"


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The four choices, of each the run that was disturbed least: the quickest. `wait` in seconds."""

    wait: float
    runs: list[Run]

    def of(self, *, slow_loader: bool, item: bool) -> Run:
        """The run with that choice."""
        return next(each for each in self.runs if (each.slow_loader, each.item) == (slow_loader, item))


def four_runs(wait: float, repeats: int = 1, steps: int = STEPS) -> Runs:
    """With and without each of the two suspects, in turn, on this machine; of each choice the quickest run."""
    choices = [(slow_loader, item) for slow_loader in (True, False) for item in (True, False)]
    rounds = [[_one_run(wait, steps, *choice) for choice in choices] for _ in range(repeats)]
    return Runs(wait=wait, runs=[min(runs, key=lambda each: each.seconds_a_step) for runs in zip(*rounds, strict=True)])


def _one_run(wait: float, steps: int, slow_loader: bool, item: bool) -> Run:
    found = run(slow_loader=slow_loader, item=item, wait=wait, steps=steps)
    return Run(slow_loader=slow_loader, item=item, seconds_a_step=found.seconds_a_step, events=found.events)


def recorded() -> recording.Recording[Runs]:
    """What `python -m course.lessons.experiments.profiled` has found."""
    return recording.load("profiled", Runs)


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(recording.record("profiled", lambda: four_runs(WAIT, repeats=9, steps=RECORDED_STEPS)))
