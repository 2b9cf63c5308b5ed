"""Other right ways to write `warmup_cosine`."""

from __future__ import annotations

import bisect
import math

import torch

from autograder.bank import Alternative


def _refuse(step: int, peak: float, warmup: int, total: int, floor: float) -> None:
    if min(step, peak, warmup, floor) < 0 or total <= warmup:
        raise ValueError("step, peak, warmup and floor must be at least 0, and total greater than warmup")


def squared_cosine(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """(1 + cos x) / 2 = cos(x / 2)^2; the line holds at the joint too; past the end nothing is computed."""
    _refuse(step, peak, warmup, total, floor)
    if step >= total:
        return floor
    if warmup and step <= warmup:
        return peak * (step / warmup)
    share = math.cos(math.pi / 2 * (step - warmup) / (total - warmup)) ** 2
    return share * peak + (1 - share) * floor


def cosine_in_float32(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """Torch's cosine, in its default dtype."""
    _refuse(step, peak, warmup, total, floor)
    t = torch.tensor((step - warmup) / (total - warmup)).clamp(max=1.0)
    descent = floor + 0.5 * (peak - floor) * (1 + torch.cos(torch.pi * t))
    return peak * step / warmup if step < warmup else descent.item()


def middle_and_amplitude(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """A cosine around the mean of its ends; the phase is kept within half a period."""
    _refuse(step, peak, warmup, total, floor)
    if step < warmup:
        return step * (peak / warmup)
    phase = math.pi * min(step - warmup, total - warmup) / (total - warmup)
    return (peak + floor) / 2 + (peak - floor) / 2 * math.cos(phase)


def which_stretch(step: int, *, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """One function for each of the three stretches."""
    _refuse(step, peak, warmup, total, floor)
    stretches = (
        lambda: peak - peak * (warmup - step) / warmup,
        lambda: peak - (peak - floor) * math.sin(math.pi / 2 * (step - warmup) / (total - warmup)) ** 2,
        lambda: floor,
    )
    return stretches[bisect.bisect_right([warmup, total], step)]()


ALTERNATIVES = (
    Alternative(name="squared_cosine", answer=squared_cosine),
    Alternative(name="cosine_in_float32", answer=cosine_in_float32),
    Alternative(name="middle_and_amplitude", answer=middle_and_amplitude),
    Alternative(name="which_stretch", answer=which_stretch),
)
