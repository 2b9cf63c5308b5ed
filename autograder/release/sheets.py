"""Answer sheets on their way into the repository.

Notebooks are text and equal byte for byte on every machine. A sheet holds measured numbers, whose last bits depend
on the processor and on torch's version: a committed sheet is good where it *judges and names* as a fresh one would.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch

from autograder import recording
from autograder.bank import Bank
from course.judging.diagnosis import differing
from course.judging.sheet import Record
from course.judging.verdict import Suspect, Witness
from course.performing.compare import case_dtype, measure
from course.performing.exercise import Observation, Values
from course.tree import Leaf, flatten

ROUNDINGS = 128  # cases and references of two machines may differ by this many roundings of the case's dtype


def renewed(bank: Bank, committed: Record | None) -> Record:
    """What a sheet is to hold of an exercise: the committed record, where it is equivalent to a fresh one.

    To find that out inputs need not be moved, which takes most of the time of a record.
    """
    name = bank.exercise.id
    if committed is not None:
        fresh = recording.as_sensitive(recording.recorded(bank, moved=0).record, committed)
        if not sheets_differ({name: committed}, {name: fresh}):
            return committed
    return recording.record(bank)


def sheets_differ(committed: Mapping[str, Record], fresh: Mapping[str, Record]) -> list[str]:
    """What no other machine would explain, a sentence each; empty where the sheets are equivalent.

    Equal must be: exercises, cases, misconceptions and their hints, names and shapes of values, kinds of failure.
    Values of cases and references may differ by `ROUNDINGS` roundings. A witness is the same where diagnosis takes the
    fresh run of it for the committed one, in every case.
    """
    found = _names_differ("exercises", sorted(committed), sorted(fresh))
    for name in committed.keys() & fresh.keys():
        found += [f"{name}: {each}" for each in _records_differ(committed[name], fresh[name])]
    return sorted(found)


def _names_differ(what: str, committed: Sequence[str], fresh: Sequence[str]) -> list[str]:
    return [] if committed == fresh else [f"the {what} are now {_listed(fresh)}, and were {_listed(committed)}"]


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "none"


def _records_differ(committed: Record, fresh: Record) -> list[str]:
    found = _names_differ("cases", [each.name for each in committed.cases], [each.name for each in fresh.cases])
    found += _names_differ(
        "misconceptions", [each.name for each in committed.suspects], [each.name for each in fresh.suspects]
    )
    if found:
        return found
    dtypes = [case_dtype(dict(case.inputs)) for case in fresh.cases]
    for before, now, dtype in zip(committed.cases, fresh.cases, dtypes, strict=True):
        if (before.lies, before.hard) != (now.lies, now.hard):
            found.append(f"case `{now.name}`: its tensors lie otherwise in memory")
        for part in ("inputs", "hidden"):
            values = flatten(dict(getattr(before, part))), flatten(dict(getattr(now, part)))
            found += _values_differ(f"case `{now.name}`", *values, dtype)
    found += _observations_differ(committed.references, fresh.references, dtypes)
    for suspect, against in zip(committed.suspects, fresh.suspects, strict=True):
        found += [f"misconception {suspect.name}: {each}" for each in _suspects_differ(suspect, against, dtypes)]
    return found


def _suspects_differ(committed: Suspect, fresh: Suspect, dtypes: Sequence[torch.dtype]) -> list[str]:
    described = {"hint": (committed.hint, fresh.hint), "fails": (committed.fails, fresh.fails)}
    described["same_as"] = (committed.same_as, fresh.same_as)
    found = [f"its {name} changed" for name, (before, now) in described.items() if before != now]
    if len(committed.witnesses) != len(fresh.witnesses):
        return [*found, f"it has {len(fresh.witnesses)} witnesses, and had {len(committed.witnesses)}"]
    pairs = list(zip(committed.witnesses, fresh.witnesses, strict=True))
    if any(len(before.observations) != len(now.observations) for before, now in pairs):
        return [*found, "other runs of it are recorded"]
    return found + [each for before, now in pairs for each in _witness_differs(before, now, dtypes)]


def _witness_differs(committed: Witness, fresh: Witness, dtypes: Sequence[torch.dtype]) -> list[str]:
    """Diagnosis must take either for the other: a blur that is too wide would hide the difference from one side."""
    ways = [(fresh, committed), (committed, fresh)]
    pairs = [(list(zip(runs.observations, dtypes, strict=True)), witness) for runs, witness in ways]
    return list(dict.fromkeys(told for runs, witness in pairs for told in differing(runs, witness)))


def _observations_differ(
    committed: Sequence[Observation], fresh: Sequence[Observation], dtypes: Sequence[torch.dtype]
) -> list[str]:
    if len(committed) != len(fresh):
        return [f"{len(fresh)} runs are recorded, and {len(committed)} were"]
    found: list[str] = []
    for at, (before, now, dtype) in enumerate(zip(committed, fresh, dtypes, strict=True)):
        if _failure(before) != _failure(now):
            found.append(f"run {at} ends in {_failure(now)}, and did in {_failure(before)}")
        if dict(before.sources) != dict(now.sources):
            found.append(f"run {at} counts costs from other sources")
        found += _values_differ(f"run {at}", _leaves(before), _leaves(now), dtype)
    return found


def _failure(seen: Observation) -> str:
    return seen.error.type if seen.error else "a value"


def _leaves(seen: Observation) -> dict[str, Leaf]:
    return {**seen.values, **{f"ledger/{key}": value for key, value in seen.ledger.items()}}


def _values_differ(what: str, committed: Values, fresh: Values, dtype: torch.dtype) -> list[str]:
    """Sentences about the keys, or else about the values behind them."""
    keys = _names_differ("values", sorted(committed), sorted(fresh))
    if keys:
        return [f"{what}: {each}" for each in keys]
    return [f"{what}: {key} is another value" for key in fresh if not _equivalent(committed[key], fresh[key], dtype)]


def _equivalent(committed: Leaf, fresh: Leaf, dtype: torch.dtype) -> bool:
    """The same kind of leaf, and equal within the roundings."""
    kinds = [str(leaf.dtype) if isinstance(leaf, torch.Tensor) else type(leaf).__name__ for leaf in (committed, fresh)]
    return kinds[0] == kinds[1] and measure(committed, fresh, dtype, roundings=ROUNDINGS).held
