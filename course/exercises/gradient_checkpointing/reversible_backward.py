"""`reversible_backward(block, y, dy)`: a block's inputs from its outputs, and its gradients on the way.

Halves and gradients are small numbers and a half, weights whole ones, and f and g are made of squares or of clamped
numbers, so every order of operations gives the same bits. Memory is that of a chain of blocks: a small one in a
notebook, where it is counted what grows; a large one, measured from outside, in grading.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from course.meter import KeptBytes, forward_calls, kept_bytes
from course.performing.blocks import draw, over_peak
from course.performing.draws import integer
from course.performing.exercise import (
    Answer,
    Ask,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    Values,
    arguments_unchanged,
    observe,
    outputs,
)
from course.performing.forms import at_once, cut, in_dtype, leaves, put, strided, times
from course.performing.oracle import is_here
from course.performing.pledges import Look, Numbers, Sample, Stage, number, pieces, pledged, shown
from course.tree import Tree

WIDTH, CHAIN = 4, "a chain of blocks"
DEPTH, ROWS, BLOCKS = 4, 8, 2**13  # BLOCKS times ROWS rows of 4 numbers in float64: 2 MiB for each half in grading
PLEDGED = 64  # blocks that are pledged as one piece
HALVES = ("x/0", "x/1", "dx/0", "dx/1")
PEAK = 56 * 2**20  # bytes in grading: right answers take 37 to 42 MiB, graphs of all blocks over 70
GRADS_OF_CHAIN = DEPTH * 2 * WIDTH * 8  # bytes; all that grows along a chain, but for some tensors of a half's size


class Squares(nn.Module):
    """v -> (v * v) @ weight + bias: its derivative depends on v."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(weight[0].clone())

    def forward(self, v: Tensor) -> Tensor:
        """The same shape."""
        return (v * v) @ self.weight + self.bias


class Clamped(nn.Module):
    """v -> weight * v, with v cut to [-1, 1]: a chain of them does not grow."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, v: Tensor) -> Tensor:
        """The same shape."""
        return self.weight * v.clamp(-1, 1)


class Shifted(nn.Module):
    """v -> v with the row before added to each: rows that were folded into one dimension have others before them."""

    def forward(self, v: Tensor) -> Tensor:
        """The same shape."""
        return v + v.roll(1, -2)


def cases(rng: torch.Generator) -> list[Case]:
    """A block alone, after another backward, inside a backward, and many blocks in a row."""

    def whole(*shape: int, most: int = 3) -> Tensor:
        signs = 2 * torch.randint(0, 2, shape, generator=rng) - 1
        return (signs * torch.randint(1, most + 1, shape, generator=rng)).float()

    def case(name: str, *shape: int, **more: Any) -> Case:
        inputs: dict[str, Any] = {each: [whole(*shape, WIDTH, most=2) - 0.5 for _ in range(2)] for each in ("y", "dy")}
        inputs["weights"] = [whole(WIDTH, WIDTH, most=2) for _ in "fg"]
        inputs |= {"before": [whole(WIDTH, WIDTH) for _ in "fg"] if more.pop("twice", False) else [], "recording": True}
        return Case(name=name, inputs=inputs | more)

    seed, block = (integer(rng, 0, limit) for limit in (2**31, BLOCKS))
    return [
        case("one block", 5),
        case("gradients that are there", 2, 3, twice=True),
        case("inside a backward", 3, recording=False),
        Case(name=CHAIN, inputs={"seed": seed}, hidden={"block": block}),
    ]


def probe(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """One block, or a chain of them."""
    return _chain(answer, inputs, ask) if "seed" in inputs else _one(answer, inputs)


def _one(answer: Answer, inputs: Inputs) -> Observation:
    """What came out, what the parameters have, what was changed, and how often f and g ran."""
    f, g = (Squares(each.detach().clone()) for each in inputs["weights"])
    for layer, grad in zip((f, g), inputs["before"], strict=False):
        layer.weight.grad = grad.detach().clone()
    block = _LAYERS[inputs.get("layers", "two")](f, g)
    parameters = {f"{name}.{part}": p for name, layer in block.items() for part, p in layer.named_parameters()}
    for name in parameters.keys() & {*inputs.get("frozen", ())}:
        parameters[name].requires_grad_(False)
    given = dict(zip(("y1", "y2", "dy1", "dy2"), [*inputs["y"], *inputs["dy"]], strict=True))
    for each in given.values():
        each.grad = torch.ones_like(each) if each.requires_grad else None
    watched = {**given, **parameters}
    before = {name: _state(each) for name, each in watched.items()}
    f_calls, g_calls = (forward_calls(layer) for layer in block.values())
    with f_calls as of_f, g_calls as of_g, torch.set_grad_enabled(inputs["recording"]):
        x, dx = _pairs(answer(SimpleNamespace(**block), tuple(inputs["y"]), tuple(inputs["dy"])))
        recording = torch.is_grad_enabled()
    found = dict(zip(("x1", "x2", "dx1", "dx2"), [*x, *dx], strict=True))
    left: dict[str, Tree] = {name: _changed(before[name], _state(each)) for name, each in watched.items()}
    left["recording"] = "as it was" if recording == inputs["recording"] else f"{'on' if recording else 'off'} now"
    return observe(
        {
            "x": [each.detach() for each in x],
            "dx": [each.detach() for each in dx],
            "grads": {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in parameters.items()},
            "left": left,
            "result": {name: _result(each, inputs["y"][0].dtype) for name, each in found.items()},
            "calls": {"f": of_f.calls, "g": of_g.calls},
        }
    )


_LAYERS: dict[str, Callable[[nn.Module, nn.Module], dict[str, nn.Module]]] = {
    "two": lambda f, g: {"f": f, "g": g},
    "handed on": lambda f, g: {"f": nn.Identity(), "g": nn.Identity()},
    "nested": lambda f, g: {"f": nn.Sequential(Shifted(), f), "g": nn.Sequential(g, Shifted())},
    "shared": lambda f, g: {"f": f, "g": f},
}


def _state(tensor: Tensor) -> tuple[bool, list[Any] | None]:
    """Whether it requires a gradient, and what stands in its .grad where that is not to be changed."""
    trained = isinstance(tensor, nn.Parameter) and tensor.requires_grad
    grad = tensor.grad if tensor.is_leaf and not trained else None
    return tensor.requires_grad, None if grad is None else grad.tolist()


def _changed(before: tuple[bool, list[Any] | None], now: tuple[bool, list[Any] | None]) -> str:
    if before == now:
        return "as it was"
    return "has another .grad now" if before[0] == now[0] else f"requires {'a' if now[0] else 'no'} gradient now"


def _result(tensor: Tensor, dtype: torch.dtype) -> str:
    """What is wrong with a tensor that was returned, apart from its numbers."""
    return "requires a gradient" if tensor.requires_grad else "as asked" if tensor.dtype == dtype else "another dtype"


def _pairs(result: object) -> tuple[list[Tensor], list[Tensor]]:
    """Both pairs. Raises WrongOutput on anything else."""
    both = outputs(result, "x", "dx")
    x, dx = (list(outputs(both[name], f"{name}1", f"{name}2").values()) for name in ("x", "dx"))
    return x, dx


def _chain(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """Backward through all blocks; all rows in grading, where the process is measured, and a few of them here."""
    rng = torch.Generator().manual_seed(inputs["seed"])
    signs = 2 * torch.randint(0, 2, (DEPTH, 2, WIDTH), generator=rng).double() - 1
    blocks = [SimpleNamespace(f=Clamped(f), g=Clamped(g)) for f, g in signs]
    alive: list[int] = []  # after each block

    def run(rows: range, meter: KeptBytes | None = None) -> list[Tensor]:
        drawn = (draw(inputs["seed"] + half * BLOCKS, rows, ROWS * WIDTH).view(-1, WIDTH) for half in range(4))
        y1, y2, dy1, dy2 = ((5 * half).floor() - 2 for half in drawn)
        y, dy = [y1, y2], [dy1, dy2]
        for block in reversed(blocks):
            y, dy = _pairs(answer(block, tuple(y), tuple(dy)))
            alive.append(meter.bytes_alive() if meter else 0)
        return [half.detach() for half in (*y, *dy)]

    if not is_here(ask):
        found = {name: pieces(half, ROWS * PLEDGED) for name, half in zip(HALVES, run(range(BLOCKS)), strict=True)}
        at = pledged(ask, found)["block"] // PLEDGED
        return shown(ask, {name: half[at] for name, half in found.items()})
    which = number(ask, "block")
    with kept_bytes() as meter:
        halves = run(range(which, which + 1), meter)
    return observe(dict(zip(HALVES, halves, strict=True)), {"grown_bytes": alive[-1] - alive[0]})


def _cut(piece: Tensor, numbers: Numbers) -> Tensor:
    """One block of a piece."""
    start = ROWS * (numbers["block"] % PLEDGED)
    return piece[start : start + ROWS].clone()


LOOK = Look(
    stages=(Stage(pieces=dict.fromkeys(HALVES, BLOCKS // PLEDGED), tells=("block",)),),
    at=lambda numbers: dict.fromkeys(HALVES, numbers["block"] // PLEDGED),
    cut=_cut,
)


def _flat(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """States that memory does not grow with the number of blocks."""
    if "peak_bytes" in got:
        return over_peak(got["peak_bytes"], PEAK, "{peak:,} bytes, where {most:,} are enough")
    grown, allowed = got["grown_bytes"], GRADS_OF_CHAIN + 4 * ROWS * WIDTH * 8
    if isinstance(grown, int) and grown <= allowed:
        return None
    return f"{grown} bytes more are kept after {DEPTH} blocks than after one, where {allowed} are enough"


def _once(inputs: Inputs, got: Values, expected: Values) -> str | None:
    calls = {name: got[f"calls/{name}"] for name in "fg"}
    return None if calls == {"f": 1, "g": 1} else f"f was called {calls['f']} times, g {calls['g']} times"


ALONE, BACK = ("one block", "gradients that are there"), "inside a backward"
ONE, GRADS, REQUIRE = "one row", "parameters_have_their_gradients", "tensors that require a gradient"
FROZEN, PARTLY, HANDED_ON = "no trained parameter", "trained and frozen parameters", "f and g return their input itself"
NESTED, SHARED = "layers in layers, which mix rows", "f and g are one module"
VIEWS, FINE = "views that are not contiguous", "in float64"

EXERCISE = Exercise(
    id="gradient_checkpointing.reversible_backward",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "inputs_rebuilt",
            "Solve the block's second equation for x2, which needs y1 alone; then the first for x1.",
            keys=("x/*",),
            cases=ALONE,
        ),
        Property(
            "gradients_of_the_inputs",
            "Follow both halves back. x1 reaches y1, and through g also y2; x2 reaches y2, and through f all that y1 "
            "reaches.",
            points=2,
            keys=("dx/*",),
            cases=ALONE,
        ),
        Property(
            GRADS,
            "Gradients of f's and g's parameters are added to what stands in .grad, as backward does it.",
            points=2,
            keys=("grads/*",),
            cases=ALONE,
        ),
        Property(
            "inside_a_backward",
            "Recording is off inside a backward. Enable it for f and g, in a `with` that leaves it as it was.",
            keys=("x/*", "dx/*", "grads/*", "left/recording"),
            cases=(BACK,),
        ),
        Property(
            "each_called_once",
            "One recorded evaluation gives both the value, to rebuild with, and the way back.",
            holds=_once,
            cases=("one block",),
            needs=("inputs_rebuilt", "gradients_of_the_inputs"),
        ),
        Property(
            "nothing_recorded_stays",
            "What you return requires no gradient, and y and dy are as they were: detach what you get before you let "
            "it require a gradient.",
            keys=("left/*", "result/*"),
            needs=("inputs_rebuilt",),
            cases=("one block", REQUIRE),
        ),
        Property(
            "memory_of_one_block",
            "After each block its graph must be gone. A result that requires a gradient keeps the graphs of all blocks "
            "before it.",
            points=2,
            evidence="ledger",
            holds=_flat,
            beside=("x/*", "dx/*"),
            shows="grown_bytes",
            cases=(CHAIN,),
            needs=("inputs_rebuilt", "gradients_of_the_inputs"),
        ),
        replace(arguments_unchanged(needs=("inputs_rebuilt",)), cases=(*ALONE, BACK, FINE, REQUIRE, HANDED_ON)),
    ),
    hints=(
        "Which of f and g can be evaluated when only y1 and y2 are known?",
        "Record g at a detached y1 and go back through it from dy2: that gives x2, dx1 and the gradients of g's "
        "parameters. Recording may be switched off where you are called.",
        "The same helper serves g and then f: enable recording, make a leaf, evaluate, torch.autograd.backward, return "
        "the value detached and the leaf's gradient. What goes back through f is dx1, not dy1.",
    ),
    keeps=("y", "dy"),
    forms=(
        at_once(
            FINE,
            in_dtype(torch.float64, "y", "dy", "weights", "before"),
            times("more digits than float32 has", 1 + 2.0**-26, "y", "dy"),
            of="gradients that are there",
        ),
        strided("y", "dy", of="gradients that are there"),
        leaves("y", "dy"),
        cut(ONE, y=(0, 1), dy=(0, 1)),
        put(FROZEN, frozen=["f.weight", "f.bias", "g.weight", "g.bias"]),
        put(PARTLY, frozen=["f.weight", "g.bias"]),
        put(HANDED_ON, layers="handed on"),
        put(NESTED, layers="nested", of="gradients that are there"),
        put(SHARED, layers="shared"),
    ),
    promises={
        "y1 = x1 + f(x2), then y2 = x2 + g(y1)": ("inputs_rebuilt", "gradients_of_the_inputs"),
        "which may hold others, mix rows, and be one and the same": (NESTED, SHARED),
        "which may be the input itself": (HANDED_ON, "arguments_unchanged"),
        "are of one shape": (*ALONE, ONE),
        "float32 or float64": ("inputs_rebuilt", FINE),
        "may be views, and may require a gradient": (VIEWS, REQUIRE),
        "in the same dtype": (FINE, "nothing_recorded_stays"),
        "require no gradient, and hold no graph": ("nothing_recorded_stays", "memory_of_one_block"),
        "added to what stands in .grad": (GRADS, "gradients that are there"),
        "Some may be frozen: they stay as they are": (FROZEN, PARTLY),
        "each called once": ("each_called_once",),
        "Recording may be on or off where this is called, and is so afterwards": ("inside_a_backward",),
        "y and dy stay as they are": ("arguments_unchanged", "nothing_recorded_stays"),
        "(x1, x2), (dx1, dx2)": ("inputs_rebuilt", "gradients_of_the_inputs"),
    },
    oracle=partial(Sample, look=LOOK),
    measured=(CHAIN,),
)
