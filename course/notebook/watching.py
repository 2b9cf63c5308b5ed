"""What an answer runs that its exercise asks to do without, however it is called.

    perform the case again --every call into torch--> is it covered? --> what the student wrote there

`torch.linalg.matrix_norm(x, 2)` computes a singular value decomposition, which no reading of the source can tell. As in
grading, an operator counts wherever it runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from course.failing import callers_of, written
from course.performing.exercise import Answer, Case, Exercise
from course.performing.oracle import Here
from course.performing.perform import guarded, perform
from course.performing.removals import TORCH, Removal, removal

ENOUGH = 2.0  # seconds of performing


def ran(exercise: Exercise, answer: Answer, cases: Sequence[Case]) -> dict[str, str]:
    """By what the student wrote: the name in the exercise's `removes` that covers what ran there."""
    seen = _Seen([removal(name) for name in exercise.removes])
    started = time.monotonic()
    if exercise.split is None and exercise.removes:  # ranks run in threads, where these modes are not
        for case in cases:
            if not seen.found and time.monotonic() - started < ENOUGH:
                with _Operators(seen), _Functions(seen):
                    perform(exercise, answer, case)
    return seen.found


class _Seen:
    """What was noticed so far."""

    def __init__(self, removals: Sequence[Removal]) -> None:
        self.removals, self.found = removals, dict[str, str]()

    def note(self, func: Any, *, operator: bool) -> None:
        """A call into torch: of an operator, or of one of torch's functions that may run any."""
        covering = [each for each in self.removals if (operator or each.name != TORCH) and each.covers(func)]
        if not covering:
            return
        callers = {each.f_code for each in callers_of(sys._getframe())}
        if guarded.__code__ in callers and Here.__call__.__code__ not in callers:  # in grading an oracle is elsewhere
            wrote = written(sys._getframe(), guarded.__code__)
            if wrote:
                self.found.setdefault(wrote, covering[0].name)


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, seen: _Seen) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seen = seen

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch's compiler need not be kept out of this: to import it for that would take 2 s."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._seen.note(func, operator=True)
        return func(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    def __init__(self, seen: _Seen) -> None:
        super().__init__()
        self._seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._seen.note(func, operator=False)
        return func(*args, **(kwargs or {}))
