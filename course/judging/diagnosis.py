"""Recognising a misconception: the answer shows, in every case, what a recorded wrong answer showed.

(observation, dtype of the case) for each case, names of failed properties --diagnose--> Diagnosis or None
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from course.judging.verdict import Diagnosis, Suspect, Witness
from course.performing.compare import EPS, as_numbers, judged_dtype, measure, shape_of, tolerance
from course.performing.exercise import EVERY_FORM, REFUSED, Observation
from course.tree import NUMBERS, Leaf

WITNESS_ROUNDINGS = 128  # a misconception is recognised a little more broadly than a right answer is accepted
BROADEST = 1 / 32  # but by this share of its size at most: 128 roundings of bfloat16 would be all of it
SHARPEST = 1e-3  # a witness's sensitivity counts up to this share of its size: a kink must not blur everything
OF_STYLE = ("order/", "began/", "open/")  # costs of a case with ranks
WIDEST = "largest_tensor"  # a cost of a formula: the numbers in the largest of the steps that it is written in
BLOWN_UP = 1e20  # no right value comes near; how far a value blew up depends on the processor, that it did does not
FAR = 0.1  # a difference of this share of a witness's size is beyond every tolerance

Seen: TypeAlias = tuple[Observation, torch.dtype]
Suspects = Sequence[Suspect] | Callable[[], Iterable[Suspect]]


def diagnose(
    runs: Sequence[Seen],
    failed: frozenset[str],
    suspects: Suspects,
    as_costly: Callable[[Witness], bool] = lambda witness: True,
    references: Sequence[Observation] = (),
    hard: Sequence[bool] = (),
) -> Diagnosis | None:
    """The first misconception whose witness explains everything that was seen, if possible one that breaks with the
    same words; or else that whose pattern of failures does; or else, where there are several slips, the one of which
    most is seen.

    as_costly   whether a witness breaks those properties on cost that were broken, and no others; asked of those only
                that show every value
    references  what is right in each case, and `hard` which of them are hard forms: where they are left out, only what
                explains everything is told
    """
    beside_forms = failed if any(seen.error for seen, _ in runs) else failed - {EVERY_FORM}
    looked_at: list[Suspect] = []
    in_other_words: Suspect | None = None
    by_pattern: Suspect | None = None
    for suspect in suspects() if callable(suspects) else suspects:
        shown = [witness for witness in suspect.witnesses if _matches(runs, witness) and as_costly(witness)]
        if any(all(map(_says_the_same, runs, witness.observations)) for witness in shown):
            return Diagnosis(name=suspect.name, hint=suspect.hint)
        if shown:
            in_other_words = in_other_words or suspect
        if suspect.fails and suspect.fails in (failed, beside_forms):
            by_pattern = by_pattern or suspect
        looked_at.append(suspect)
    told = in_other_words or by_pattern or (_most_seen(runs, looked_at, references, hard) if references else None)
    return Diagnosis(name=told.name, hint=told.hint) if told else None


def _most_seen(
    runs: Sequence[Seen], suspects: Sequence[Suspect], references: Sequence[Observation], hard: Sequence[bool]
) -> Suspect | None:
    """The suspect of which most is seen, the first of equals: all that is wrong with it, and so much of what is wrong
    in usual cases that it leaves no more than it explains. None where there is none.
    """
    usual = [(run, reference) for run, reference, form in zip(runs, references, hard, strict=True) if not form]
    wrong = sum(len(_compared(reference).keys() - _right_keys(run, reference)) for run, reference in usual)
    most, told = 0, None
    for suspect in suspects:
        seen = max((_seen(runs, witness, references, hard) for witness in suspect.witnesses), default=0)
        if seen > most and wrong - seen <= seen:
            most, told = seen, suspect
    return told


def _seen(runs: Sequence[Seen], witness: Witness, references: Sequence[Observation], hard: Sequence[bool]) -> int:
    """In how many places the runs show what is wrong with the witness; 0 where they lack it in one of them.

    A slip that shows in usual cases may look otherwise in a hard form, where the answer can break for another reason.
    """
    if len(witness.observations) != len(runs):
        return 0
    places = 0
    for at, run in enumerate(runs):
        wrong, shown = _slips(run, witness, at, references[at])
        broke = bool(witness.observations[at].error) != bool(run[0].error)
        if (broke or shown < wrong) and not (hard[at] and places):
            return 0
        places += sum(_tells(_compared(witness.observations[at])[key]) for key in shown)
    return places


def shows_a_slip(run: Seen, witness: Witness, reference: Observation) -> bool:
    """Whether a run of the only case that this witness was recorded on shows all that is wrong with it there."""
    wrong, shown = _slips(run, witness, 0, reference)
    return bool(wrong) and wrong == shown


def _slips(run: Seen, witness: Witness, at: int, reference: Observation) -> tuple[frozenset[str], frozenset[str]]:
    """The values of a case that are wrong with the witness, and those of them that are as wrong in the run."""
    seen = witness.observations[at]
    if _larger_outside(run[0], seen):
        return frozenset(), frozenset()
    wrong = _compared(seen).keys() - _right_keys((seen, run[1]), reference) - witness.free[at]
    same = _same_keys(run, seen, witness.sensitivity[at]) - _right_keys(run, reference)
    return frozenset(wrong), same & wrong


def _right_keys(run: Seen, reference: Observation) -> frozenset[str]:
    """The values that are as the reference's, which is in float64 whatever the case is in."""
    got, expected = _compared(run[0]), _compared(reference)
    return frozenset(key for key in got.keys() & expected.keys() if _close(got[key], expected[key], run[1], 0.0))


def _same_keys(run: Seen, seen: Observation, sensitivity: dict[str, float]) -> frozenset[str]:
    """The values that both show alike."""
    got, expected = _compared(run[0]), _compared(seen)
    return frozenset(
        key for key in got.keys() & expected.keys() if _same(got[key], expected[key], run[1], sensitivity.get(key, 0.0))
    )


def _tells(leaf: Leaf) -> bool:
    """Whether somewhere in it stands a number that no other mistake gives by chance, as it may 0, 1, nan or a text."""
    numbers = as_numbers(leaf)
    if numbers is None or not numbers.numel() or blown_up(numbers):
        return False
    return bool((numbers != numbers.round()).any())


def could_explain(run: Seen, witness: Witness) -> bool:
    """Whether the only case that this witness was recorded on leaves its misconception possible."""
    return shows_the_same(run, witness, 0)


def shows_the_same(run: Seen, witness: Witness, at: int) -> bool:
    """Whether a run of case number `at` shows what the witness showed there."""
    return _matches_run(run, witness.observations[at], witness.free[at], witness.sensitivity[at])


def looks_right(run: Seen, reference: Observation) -> bool:
    """Whether a case shows, apart from its costs, what the reference showed."""
    keys = _compared(reference).keys()
    return not run[0].error and _compared(run[0]).keys() == keys and _right_keys(run, reference) == keys


def _matches(runs: Sequence[Seen], witness: Witness) -> bool:
    """Whether every value in every case is what the witness showed."""
    return len(witness.observations) == len(runs) and not next(differing(runs, witness), None)


def differing(runs: Sequence[Seen], witness: Witness) -> Iterator[str]:
    """What a run of each case shows, and the witness does not; a sentence each.

    One that broke in every case shows nothing but its failures: there their messages must agree too.
    """
    always = all(seen.error for seen in witness.observations)
    for at, run in enumerate(runs):
        if not shows_the_same(run, witness, at):
            yield f"run {at} shows something else"
        elif always and not _says_the_same(run, witness.observations[at]):
            yield f"run {at} breaks with another message"


def _says_the_same(run: Seen, seen: Observation) -> bool:
    """Whether both failures have one message, apart from the numbers in it."""
    observation, _ = run
    got, expected = (re.sub(r"\d+", "0", each.message if each else "") for each in (observation.error, seen.error))
    return got == expected


def _matches_run(run: Seen, seen: Observation, free: frozenset[str], sensitivity: dict[str, float]) -> bool:
    observation, dtype = run
    if (observation.error and observation.error.type) != (seen.error and seen.error.type):
        return False
    if _larger_outside(observation, seen):
        return True
    got, expected = _compared(observation), _compared(seen)
    if got.keys() != expected.keys():
        return False

    def alike(key: str, got: Leaf, expected: Leaf) -> bool:
        return key in free or _same(got, expected, dtype, sensitivity.get(key, 0.0))

    return all(alike(key, got[key], expected[key]) for key in expected) and all(
        alike(f"ledger/{key}", observation.ledger[key], seen.ledger[key]) for key in _counted_twice(run, seen)
    )


def _larger_outside(observation: Observation, seen: Observation) -> bool:
    """Whether these ranks were measured from outside, where their tensors are larger than those of the witness.

    What is right is the same at every size; what is wrong need not be.
    """
    return isinstance(observation.ledger.get("peak_bytes"), Tensor) and "peak_bytes" not in seen.ledger


def _compared(observation: Observation) -> dict[str, Leaf]:
    """The values by which a mistake is recognised: an answer with a wrong formula often refuses nothing yet."""
    return {key: value for key, value in observation.values.items() if not key.startswith(REFUSED)}


def _counted_twice(run: Seen, seen: Observation) -> list[str]:
    """The costs that can be compared: counted here and with the witness, which was recorded in one process.

    What only one of them has was counted only where it ran; what the kernel measures is never the same twice; and the
    order in which a rank makes its calls is style, as the size of a formula's widest step is. Whether such costs are
    too high is the same everywhere: `as_costly`.
    """
    observation, _ = run
    shared = [key for key in seen.ledger if key in observation.ledger and not key.startswith(OF_STYLE)]
    return [key for key in shared if key != WIDEST and observation.sources.get(key) != "kernel"]


def _coarser(got: Leaf, expected: Leaf) -> bool:
    """Whether both are floating point tensors, and the first in the coarser dtype."""
    dtypes = [each.dtype for each in (got, expected) if isinstance(each, Tensor) and each.dtype in EPS]
    return len(dtypes) == 2 and EPS[dtypes[0]] > EPS[dtypes[1]]


def blown_up(numbers: Tensor) -> bool:
    """Whether one of them is not finite, or so large that the next processor's may not be."""
    return not bool((numbers.abs() < BLOWN_UP).all())


def _same(got: Leaf, expected: Leaf, dtype: torch.dtype, blur: float) -> bool:
    """Close, and not in a coarser dtype: digits that were lost are a mistake of their own, and could make right values
    look like a wrong formula whose slip is as small.
    """
    return _equal(got, expected) or (not _coarser(got, expected) and _close(got, expected, dtype, blur))


def _equal(got: Leaf, expected: Leaf) -> bool:
    """Whether both are the same numbers of one type, as most are: that needs no conversion."""
    if isinstance(got, Tensor) and isinstance(expected, Tensor):
        known = got.dtype == expected.dtype and got.dtype in NUMBERS
        return (
            known
            and all(each.is_cpu and each.layout == torch.strided for each in (got, expected))
            and torch.equal(got, expected)
        )
    return type(got) is type(expected) and isinstance(got, (bool, int, float)) and got == expected


def _close(got: Leaf, expected: Leaf, dtype: torch.dtype, blur: float) -> bool:
    """Equal within the blur, or blown up somewhere in both: where an overflow lands is a matter of style."""
    if shape_of(got) != shape_of(expected):
        return False
    a, b = as_numbers(got), as_numbers(expected)
    if a is None or b is None:
        return measure(got, expected, dtype, roundings=0).held
    if a.dtype != b.dtype:
        return False
    if torch.equal(a, b):
        return True
    scale = float(b.abs().max())
    if not scale < BLOWN_UP:
        return blown_up(a)
    apart = float((a - b).abs().max())
    if scale > 0 and not apart <= FAR * scale:
        return False  # farther than any tolerance below: soon said of most misconceptions
    roundings = max(1, min(WITNESS_ROUNDINGS, int(BROADEST / EPS[dtype])))
    limited = min(blur, SHARPEST * scale / roundings)
    larger = max(scale, float(a.abs().max()))
    judged = judged_dtype(got, expected, dtype)
    return apart <= tolerance(judged, roundings=roundings, scale=larger, sensitivity=limited)
