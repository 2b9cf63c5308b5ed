"""What torch imports when something is first used, imported before a case's clock starts.

    loss.backward()                    imports nothing
    torch.optim.SGD(params, lr=0.1)    imports torch's compiler, 820 modules: 1.5 to 5 s, once in a process

Only for an answer that names such a thing, and for a probe that is declared to: nothing else becomes slower.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Sequence

from course.performing.exercise import Answer
from course.performing.removals import at, lies_in
from course.performing.uses import Thing, mentions

# By what is imported: the names whose first use does it.
FIRST_USES = {
    "torch._dynamo": (
        *("torch.optim", "torch.compile", "torch.utils.checkpoint"),
        *(f"torch.func.{name}" for name in ("grad", "grad_and_value", "jacrev", "hessian")),
    ),
    "torch._decomp.decompositions_for_jvp": (
        "torch.autograd.forward_ad",
        *(f"torch.func.{name}" for name in ("jvp", "jacfwd", "hessian", "linearize")),
    ),
    "torch.fx.experimental.symbolic_shapes": ("torch.autograd.functional",),
}


def warm_all() -> None:
    """Import all of it: where many answers are performed, reading each takes longer."""
    for module in FIRST_USES:
        if module not in sys.modules:
            _import(module)


def warm(answer: Answer, declared: Sequence[str]) -> None:
    """Import what the first use of something that the answer names would, or of what is declared.

    Whatever the answer is, this never raises.
    """
    missing = {name: uses for name, uses in FIRST_USES.items() if name not in sys.modules}
    with contextlib.suppress(Exception):  # reading an odd object, or a torch that calls its modules otherwise
        named = [thing for _, things in mentions(answer) for thing in things] if missing else []
        named += [Thing(path=each) for each in declared]
        for module, uses in missing.items():
            known = {id(at(use)) for use in uses}
            if any(id(each.value) in known or any(lies_in(each.path, use) for use in uses) for each in named):
                _import(module)


def _import(module: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of what it calls itself
        importlib.import_module(module)
