"""`zero1_step(comm, params, state, ...)`: a step of AdamW whose moments are sharded.

Gradients are given as numbers, as backward would leave them, with the same signs on all ranks, so that no mean cancels.
Each step gets a copy of the state that the last one left, as if it had been saved and loaded; once it is an earlier
one, with the parameters of that moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from course.exercises.fsdp.flat import at_most, held_once, in_all, length
from course.performing.draws import normal
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, Values, observe

FIRST, LATER, ONE, EVEN = "one step", "four steps", "one rank", "3 ranks, 12 elements"
MANY, MISSING, UNUSED, FROZEN = "more ranks than elements", "unused by some ranks", "unused by all", "frozen parameters"
EPS, DECAY, FINE, VIEW = "a large eps", "weight decay", "float64", "a transposed weight"
LOADED = "an earlier state, loaded again"
LONG = 4
AGAIN = 2  # the step before which the first one's parameters and state are loaded
TINY = 1e-20  # where eps is not what is judged
PLAIN = (FIRST, LATER, ONE, EVEN)


def cases(rng: torch.Generator) -> list[Case]:
    """One to five ranks, one to four steps, and one peculiarity in each of the others."""

    def case(
        name: str,
        ranks: int,
        shapes: Sequence[tuple[int, ...]],
        steps: int = 1,
        *,
        none: Sequence[tuple[int, int, int]] = (),
        dtype: torch.dtype = torch.float32,
        **more: Any,
    ) -> Case:
        """none: (step, rank, parameter) without a gradient."""
        signs = [normal(rng, *shape).sign() for shape in shapes]

        def grad(step: int, rank: int, number: int) -> Tensor | None:
            spread = torch.rand(shapes[number], generator=rng, dtype=torch.float64)
            size = (1.5 if step % 3 == 0 else 0.4) * (0.5 + spread)
            frozen = number in more.get("frozen", ())[1:]  # the first one has a gradient that was left over
            return None if frozen or (step, rank, number) in none else (signs[number] * size).to(dtype)

        numbers = range(len(shapes))
        # Betas whose powers float32 has exactly: a step count in float32, as torch keeps it, is no mistake. Neither is
        # a half, so that beta and 1 - beta differ.
        options = {"lr": [0.05] * steps, "betas": [0.75, 0.875], "eps": TINY, "weight_decay": 0.0}
        inputs: dict[str, Any] = {
            "values": [(normal(rng, *shape).sign() + normal(rng, *shape) / 4).to(dtype) for shape in shapes],
            "grads": [[[grad(t, r, k) for k in numbers] for t in range(steps)] for r in range(ranks)],
            "frozen": [],
            "transposed": False,
            "loads": False,
        }
        options |= more.pop("options", {})
        return Case(name=name, inputs=inputs | {"options": options} | more)

    # Neither the sizes nor the numbers of dimensions fall or rise: a row in another order is another one.
    two, three = [(3,), (2, 3), (2,)], [(4,), (2, 3), ()]
    first_and_last = [(t, r, 1) for t in (0, 2) for r in range(3)]
    some = [(0, 0, 1), (1, 0, 1), *((t, 2 - t, k) for t in range(2) for k in range(3))]  # once a rank has none at all
    return [
        case(FIRST, 4, two),
        case(LATER, 4, two, LONG),
        case(ONE, 1, two, 2),
        case(EVEN, 3, [(3,), (0,), (2, 3), (3,)], 2),
        case(MANY, 5, [(2,), ()], 2),
        case(MISSING, 3, three, 2, none=some, dtype=torch.float64),
        case(UNUSED, 3, three, 3, none=first_and_last, options={"weight_decay": 0.3, "eps": 0.01}),
        case(FROZEN, 2, [(3,), (2, 2), (2,), (3,)], 2, frozen=[1, 2], options={"weight_decay": 0.3}),
        case(EPS, 4, two, options={"eps": 0.7}),
        case(DECAY, 3, two, options={"weight_decay": 0.3}),
        case(FINE, 2, two, 3, dtype=torch.float64, options={"lr": [0.05, 0.05, 0.0]}),
        case(VIEW, 3, two, 2, transposed=True),
        case(LOADED, 3, [(2, 4)], LONG, loads=True),
    ]


def split(inputs: Inputs) -> list[Inputs]:
    """To each rank the same parameters, and its own gradients."""
    shared = {name: inputs[name] for name in ("values", "options", "frozen", "transposed", "loads")}
    return [
        {**shared, "values": [each.clone() for each in shared["values"]], "grads": each} for each in inputs["grads"]
    ]


def probe(answer: Answer, comm: object, inputs: Inputs) -> Observation:
    """The parameters and the state after the last step, the gradients that it left, and what the state keeps alive."""
    memory = [_laid(each, inputs["transposed"]) for each in inputs["values"]]
    params = [Parameter(each, requires_grad=k not in inputs["frozen"]) for k, each in enumerate(memory)]
    betas = tuple(float(beta) for beta in inputs["options"]["betas"])
    options = {"betas": betas, "eps": inputs["options"]["eps"], "weight_decay": inputs["options"]["weight_decay"]}
    state: dict[str, Any] = {}
    saved: tuple[list[Tensor], dict[str, Any]] = ([], {})
    steps = zip(inputs["options"]["lr"], inputs["grads"], strict=True)
    for number, (lr, grads) in enumerate(steps):
        if inputs["loads"] and number == AGAIN:
            for each, value in zip(memory, saved[0], strict=True):
                each.copy_(value)
            state = saved[1]
        for param, grad in zip(params, grads, strict=True):
            param.grad = None if grad is None else _laid(grad, inputs["transposed"])
        state = _copied(state)
        answer(comm, params, state, lr=float(lr), **options)
        if number == 0:
            saved = [each.clone() for each in memory], _copied(state)
    kept = [each for name, each in state.items() if name != "step" and isinstance(each, Tensor)]
    others = [each for param in params for each in (param.data, param.grad) if each is not None]
    return observe(
        {
            "memory": {str(k): each for k, each in enumerate(memory)},
            "grads": {str(k): each.grad for k, each in enumerate(params)},
            "state": dict(state),
            "names": " ".join(sorted(map(str, state))),
            "held": held_once(kept, others),
        }
    )


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    """With tensors of its own."""
    return {name: each.clone() if isinstance(each, Tensor) else each for name, each in state.items()}


def _laid(tensor: Tensor, transposed: bool) -> Tensor:
    """The tensor; a matrix with its columns one after the other in memory where that is wanted."""
    return tensor.t().contiguous().t() if transposed and tensor.dim() == 2 else tensor


def _sent(inputs: Inputs) -> int:
    """Bytes that a rank may send: in each step two shards to every other rank."""
    values = [each for k, each in enumerate(inputs["values"]) if k not in inputs["frozen"]]
    ranks = len(inputs["grads"])
    shard = length(in_all(each.shape for each in values), ranks)
    return _messages(inputs) * shard * int(values[0].element_size())


def _messages(inputs: Inputs) -> int:
    """Messages that a rank may send."""
    return 2 * (len(inputs["grads"]) - 1) * len(inputs["grads"][0])


def _in_their_dtype(inputs: Inputs, got: Values, expected: Values) -> str | None:
    wanted = inputs["values"][0].dtype
    for rank in range(len(inputs["grads"])):
        for name in ("m", "v"):
            found = got[f"{rank}/state/{name}"]
            if not isinstance(found, Tensor) or found.dtype != wanted:
                return f"{name} in {getattr(found, 'dtype', type(found).__name__)} in place of {wanted}"
    return None


on_params = partial(Property, keys=("*/memory/*",))

EXERCISE = Exercise(
    id="fsdp.zero1_step",
    cases=cases,
    probe=probe,
    split=split,
    verbs=("reduce_scatter", "all_gather", "all_reduce"),
    properties=(
        on_params(
            "the_first_step",
            "Afterwards the parameters of every rank, in their own memory, are those of one process that took the step "
            "with the mean gradient. Each rank steps in its own shard, and gets the others' from their owners.",
            points=2,
            cases=(FIRST,),
        ),
        on_params(
            "later_steps",
            "The moments go from step to step in the state, uncorrected, and the step counts; a correction is for use "
            "in its step only.",
            points=2,
            cases=(LATER, EVEN, ONE),
            needs=("the_first_step",),
        ),
        Property(
            "a_loaded_state",
            "The caller loaded the parameters and the state of an earlier step, as from a checkpoint, and your step "
            "went on from something else. Nothing but these two leads from step to step: keep nothing elsewhere.",
            keys=("*/memory/*", "*/state/*"),
            cases=(LOADED,),
            needs=("later_steps",),
        ),
        on_params(
            "eps_and_decay",
            "eps is added after the root, and a large one shows how large the gradients were: take their mean. Decay "
            "shrinks the parameters by lr wd before the step, and meets no moment.",
            points=2,
            cases=(EPS, DECAY),
            needs=("the_first_step",),
        ),
        on_params(
            "more_ranks",
            "A rank that owns nothing but padding makes the same calls as the others.",
            cases=(MANY,),
            needs=("later_steps",),
        ),
        on_params(
            "unused_parameters",
            "Where a rank has no gradient it gives zeros, which count in the mean; and it gets the new numbers as all "
            "others do. No rank knows whether the others have one: so do the same where nobody has. A rank "
            "without any takes the step as well.",
            points=2,
            cases=(MISSING, UNUSED),
            needs=("later_steps", "eps_and_decay"),
        ),
        on_params(
            "frozen_parameters",
            "A parameter that requires no gradient has no part in any of it: it does not decay, and is not sent.",
            cases=(FROZEN,),
            needs=("later_steps", "eps_and_decay"),
        ),
        on_params(
            "float64_and_strides",
            "Sums, moments and steps are in the dtype of the parameters, and parameters may have any strides.",
            cases=(FINE, VIEW),
            needs=("later_steps",),
        ),
        Property(
            "state",
            "`step` counts the steps, also those at a rate of 0. `m` and `v` are the running means of the mean "
            "gradient and of its square, for the elements of this rank's shard, padding included. The row has the "
            "parameters in the order of the list.",
            points=2,
            keys=("*/state/*",),
            cases=(*PLAIN, EPS, MANY, FINE),
        ),
        Property(
            "sharded",
            "The state must have these three entries, and keep just two shards of memory alive, its own: not the "
            "moments of all elements, not a third tensor, not a slice of something longer. That is all that ZeRO's "
            "first stage saves.",
            points=3,
            keys=("*/held", "*/names"),
            roundings=0,
            cases=PLAIN,
            needs=("the_first_step",),
        ),
        Property(
            "dtype",
            "Both moments have the dtype of the parameters.",
            holds=_in_their_dtype,
            cases=(FIRST, FINE),
            needs=("the_first_step",),
        ),
        Property(
            "gradients_unchanged",
            "A gradient of the caller's was changed, or dropped. Copy the gradients into a row of your own.",
            keys=("*/grads/*",),
            roundings=0,
            cases=(*PLAIN, MISSING, FROZEN, VIEW),
            needs=("the_first_step",),
        ),
        Property(
            "bytes",
            "To every other rank goes one shard of gradients and one of parameters, without what is frozen. A "
            "reduce-scatter gives each rank the mean of its own shard alone; an all-reduce costs twice as much.",
            points=2,
            evidence="ledger",
            holds=at_most(_sent),
            beside=("*/memory/*",),
            shows="bytes_sent",
            cases=(*PLAIN, FROZEN, MANY),
            needs=("later_steps", "more_ranks", "frozen_parameters"),
        ),
        Property(
            "messages",
            "One reduce-scatter and one all-gather in a step, of one row: every message takes a latency.",
            evidence="ledger",
            holds=at_most(_messages, "messages"),
            beside=("*/memory/*",),
            cases=PLAIN,
            needs=("later_steps",),
        ),
    ),
    hints=(
        "AdamW treats every element by itself. Which gradients does a rank need to step m elements, and which does it "
        "not?",
        "Write all gradients into one row of zeros, P * m long. comm.reduce_scatter_single(own, row, 'mean') leaves "
        "each rank the mean of its own shard.",
        "Write the parameters into a row as well, and take this rank's slice, as a copy. Step in it with m and v from "
        "the state. all_gather_single brings all shards into the row; copy each parameter's part back, with `copy_`.",
    ),
    promises={
        "any number of ranks": (ONE, "more_ranks", "the_first_step"),
        "any shapes and strides": (VIEW, "the_first_step"),
        "one dtype, float32 or float64": ("float64_and_strides",),
        "in the tensors' own memory": ("the_first_step",),
        "None counts as zeros, on some ranks or on all": ("unused_parameters",),
        "Gradients are not changed": ("gradients_unchanged",),
        "stays as it is, and is left out of everything": ("frozen_parameters", "bytes"),
        "empty before the first step": ("the_first_step",),
        "comes back as you left it, or a copy of it": ("later_steps",),
        "or what was saved of an earlier step": ("a_loaded_state",),
        "(m,), m = ceil(n / P)": ("state", "more_ranks"),
        "in the order of params": ("state",),
        "lr (at least 0)": ("state", FINE),
        "of their dtype": ("dtype",),
        "nothing else in it, and it keeps no other memory alive": ("sharded",),
        "those of torch.optim.AdamW": ("eps_and_decay", "later_steps"),
        "as one process with the mean of all ranks' gradients": ("the_first_step", "later_steps", "eps_and_decay"),
        "2 (P - 1) * m elements from each rank, in one reduce-scatter and one all-gather": ("bytes", "messages"),
    },
)
