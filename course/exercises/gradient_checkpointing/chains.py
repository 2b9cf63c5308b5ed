"""Chains of layers whose activations are tokens, so that every evaluation and every activation alive is counted.

    answer --forward, backward, the end of a token--> events of a run --ask--> oracle, which replays them with numbers

A token has no number in it: only the oracle knows the layers and the input, so what an answer computes is known to it
alone. Once a token is gone its number is gone too, and events that use it later are refused: to hold a number back
without counting as alive is not possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from course.errors import WrongOutput
from course.performing.draws import normal
from course.performing.exercise import Answer, Ask, Case, Inputs, Observation, Property, Values, observe, outputs
from course.performing.oracle import UnknownQuestion
from course.tree import Leaf, Tree

LAYERS = 100  # of the longest chain
PRIME = 1_000_003  # numbers are whole and below it, so that every processor has the same
MOST_EVENTS = 100_000  # that one case may send; right answers send at most 20,000
FORWARD, BACKWARD, GONE = 0, 1, 2
TENSORS, AGAIN = "layers of tensors", "layers that stand in it again"
Y = Property("y", "y is what the last layer gives: each layer takes the output of the one before.", keys=("y",))

Allowed = Callable[[int, int], int]  # of n and every
Holds = Callable[[Inputs, Values, Values], str | None]


class Layer(Protocol):
    """What an answer knows of a layer."""

    def forward(self, x: Any) -> Any:
        """The layer's output: one evaluation."""

    def backward(self, x: Any, dy: Any) -> Any:
        """The gradient with respect to the layer's input x, from dy, that with respect to its output."""


# --- what an answer works with ------------------------------------------------------------------------------


class Token:
    """Stands for a tensor. Its end is an event."""

    def __init__(self, run: Run, name: str) -> None:
        self.run, self.name, self.number = run, name, run.made
        run.made += 1

    def __repr__(self) -> str:
        return self.name

    def __del__(self) -> None:
        self.run.events.append((GONE, 0, self.number, 0))

    def clone(self) -> Token:
        """The token itself: there is nothing in it to copy."""
        return self

    detach = clone

    __copy__ = clone

    def __deepcopy__(self, memo: object) -> Token:
        return self


class Run:
    """The events of one call of an answer: (kind, layer, token, token)."""

    def __init__(self) -> None:
        self.made = 0
        self.events: list[tuple[int, int, int, int]] = []

    def number(self, given: object) -> int:
        """That of a token of this very run. Raises WrongOutput on anything else."""
        if isinstance(given, Token) and given.run is self:
            return given.number
        raise WrongOutput(f"layers take and give activations and derivatives of their own chain, got {given!r:.60}")


class TokenLayer:
    """A layer that computes nothing itself."""

    def __init__(self, run: Run, at: int) -> None:
        self._run, self._at = run, at

    def forward(self, x: Token) -> Token:
        """One evaluation."""
        self._run.events.append((FORWARD, self._at, self._run.number(x), 0))
        return Token(self._run, f"x_{self._at + 1}")

    def backward(self, x: Token, dy: Token) -> Token:
        """One step back."""
        self._run.events.append((BACKWARD, self._at, self._run.number(x), self._run.number(dy)))
        return Token(self._run, f"dx_{self._at}")


class TensorLayer:
    """tanh(x W)."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) to (..., d)."""
        return (x @ self._weight).tanh()

    def backward(self, x: Tensor, dy: Tensor) -> Tensor:
        """dy (1 - y^2) W^T."""
        return (dy * (1 - self.forward(x) ** 2)) @ self._weight.T


# --- the side that counts -----------------------------------------------------------------------------------


class ChainOracle:
    """Replays runs with numbers: layer i maps x to a + b x + c x^2 modulo a prime, with coefficients that are hidden.
    Its step back stands for a derivative and is none: it maps dy to a + (b + 2 c x) dy, because factors alone would
    give the same product in any order, and one that begins with the first layer needs no activation but the last.

    An activation is the chain's input or the output of a layer but the last, whose output is the result. The ledger
    has only what is beyond `allowed`: below it styles differ, and a mistake in the evaluations looks the same in each.
    """

    def __init__(self, case: Case, allowed: Allowed = lambda n, every: LAYERS**2) -> None:
        hidden = cast(dict[str, Any], case.hidden)
        self._layers = hidden["coefficients"].tolist() if hidden else []
        self._given = hidden["given"].tolist() if hidden else []
        self._runs: list[list[int]] = cast(Any, case.inputs)["runs"].tolist() if hidden else []
        self._allowed, self._events = allowed, 0
        self._numbers: dict[int, int] = {}
        self._made = 0
        self._calls: list[list[int]] = []
        self._results: list[dict[str, int]] = []
        self.most_alive: list[int] = []

    def ask(self, verb: str, arguments: Tree) -> Tree:
        """`run`: the number of layers, events (E, 4), and which tokens are y and dx, to the numbers of y and dx.

        There are as many as the case has runs, and their numbers are what is observed: whoever has one replayed in the
        probe's place, to learn its numbers, has it counted.
        """
        asked: Any = arguments
        try:
            if verb != "run":
                raise ValueError("no other verb is known")
            return self._run(**asked)
        except Exception as error:  # what is asked comes from the process of an answer, and may be anything
            raise UnknownQuestion(f"events of a chain must be those of its layers ({type(error).__name__})") from None

    def ledger(self) -> dict[str, Leaf]:
        """Evaluations, steps back and activations alive beyond what is allowed, one number for each run."""
        runs = zip(self.most_alive, self._runs, strict=False)
        beyond = [max(0, most - self._allowed(n, every)) for most, (n, every) in runs]
        evaluations, back = ([calls[kind] for calls in self._calls] for kind in (FORWARD, BACKWARD))
        costs = {"evaluations": evaluations, "steps_back": back, "alive_beyond": beyond}
        return {name: torch.tensor(each) for name, each in costs.items()}

    def values(self) -> dict[str, Leaf] | None:
        """The numbers of y and dx of each run; None where layers are no secret."""
        if not self._layers:
            return None
        return {name: torch.tensor([each[name] for each in self._results]) for name in ("y", "dx")}

    def _run(self, *, layers: int, events: Tensor, y: int, dx: int) -> Tree:
        if events.dtype != torch.int64 or events.shape != (len(events), 4):  # before they become a list
            raise ValueError("no events")
        self._events += len(events)
        if self._events > MOST_EVENTS or not 0 < layers <= LAYERS or len(self._calls) == len(self._runs):
            raise ValueError("too many")
        at = len(self._calls)
        if not same_again(self._runs, at):
            self._numbers, self._made = dict(enumerate(self._given)), len(self._given)
        numbers, made, alive, most, calls = self._numbers, self._made, {0}, 1, [0, 0]
        for kind, layer, first, second in events.tolist():
            if kind == GONE:
                del numbers[first]
                alive.discard(first)
                continue
            a, b, c = self._layers[:layers][layer]
            x, most = numbers[first], max(most, len(alive))
            stepped = b * x + c * x * x if kind == FORWARD else (b + 2 * c * x) * numbers[second]
            numbers[made] = (a + stepped) % PRIME
            if kind == FORWARD and layer < layers - 1:
                alive.add(made)
            calls[kind] += 1
            made += 1
        self._made = made
        self._calls.append(calls)
        self.most_alive.append(most)
        self._results.append({"y": numbers[y], "dx": numbers[dx]})
        return cast(Tree, dict(self._results[-1]))


# --- cases, the probe, and what costs are due ---------------------------------------------------------------


def case(rng: torch.Generator, name: str, runs: Sequence[tuple[int, int]], distinct: int = LAYERS) -> Case:
    """Chains of (n layers, spacing), which have their first layers in common. Without a spacing it is 0.

    Two equal pairs, one after the other, are two calls with the same objects. The first `distinct` layers stand in turn
    in all places but the last, whose layer stands there alone: what it gives is told from activations by that.
    """
    coefficients = torch.randint(1, PRIME, (max(n for n, _ in runs), 3), generator=rng)
    given = torch.randint(1, PRIME, (2,), generator=rng)
    hidden: dict[str, Tree] = {"coefficients": coefficients, "given": given}
    return Case(name=name, inputs={"runs": torch.tensor(runs), "distinct": distinct}, hidden=hidden)


def tensors(rng: torch.Generator, n: int, every: int = 0) -> Case:
    """A chain of n layers of tensors in float64, the first two of them at its end once more; nobody counts costs."""
    weights: list[Tree] = [normal(rng, 4, 4).double() / 2 for _ in range(n - 2)]
    x, dy = (normal(rng, 3, 4).double() for _ in range(2))
    return Case(name=TENSORS, inputs={"weights": weights, "x": x, "dy": dy, "every": every})


def probe(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """One call for each chain: y and dx, of which an answer to tokens knows nothing."""
    if "weights" in inputs:
        layers = tuple(TensorLayer(weight) for weight in inputs["weights"])
        every = (inputs["every"],) if inputs["every"] else ()
        return observe(outputs(answer((*layers, *layers[:2]), inputs["x"], inputs["dy"], *every), "y", "dx"))
    runs, seen = inputs["runs"].tolist(), []
    for at, (n, every) in enumerate(runs):
        if not same_again(runs, at):
            given = _Given(n, inputs["distinct"])
        seen.append(given.called(answer, every, ask))
    return observe({name: torch.tensor([each[name] for each in seen]) for name in ("y", "dx")})


class _Given:
    """What an answer is given: a chain of n layers and two tokens, for one call or several."""

    def __init__(self, n: int, distinct: int) -> None:
        self.run = Run()
        self.x, self.dy = Token(self.run, "x_0"), Token(self.run, "dy")
        layers = [TokenLayer(self.run, at) for at in range(n)]
        self.chain = (*(layers[at % distinct] for at in range(n - 1)), layers[-1])

    def called(self, answer: Answer, every: int, ask: Ask) -> dict[str, int]:
        """One call: the numbers of its y and dx."""
        came = outputs(answer(self.chain, self.x, self.dy, *([every] if every else [])), "y", "dx")
        question: dict[str, Tree] = {name: self.run.number(each) for name, each in came.items()}
        events = torch.tensor(self.run.events).reshape(-1, 4)
        self.run.events.clear()  # what is gone from here on is told with the next call
        return cast(dict[str, int], ask("run", {"layers": len(self.chain), "events": events, **question}))


def same_again(runs: Sequence[Sequence[int]], at: int) -> bool:
    """Whether run number `at` is another call with what the run before was given."""
    return 0 < at < len(runs) and runs[at] == runs[at - 1]


def evaluated(due: Allowed) -> Holds:
    """Each chain takes exactly the evaluations due, and one step back for each layer."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        found = zip(inputs["runs"].tolist(), _numbers(got["evaluations"]), _numbers(got["steps_back"]), strict=True)
        for (n, every), evaluations, back in found:
            if evaluations != due(n, every):
                return f"{_chain(n, every)}: {evaluations} evaluations, where {due(n, every)} are due"
            if back != n:
                return f"{_chain(n, every)}: {back} calls of backward, where {n} are due"
        return None

    return holds


def alive(allowed: Allowed, spare: int = 0) -> Holds:
    """In each chain at most so many activations, and `spare` more, are alive whenever a layer is called."""

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        for (n, every), beyond in zip(inputs["runs"].tolist(), _numbers(got["alive_beyond"]), strict=True):
            most = allowed(n, every)
            if beyond > spare:
                return f"{_chain(n, every)}: {most + beyond} activations alive at once, where {most} are allowed"
        return None

    return holds


def _numbers(leaf: Leaf) -> list[int]:
    return cast(Tensor, leaf).tolist()


def _chain(n: int, every: int) -> str:
    return f"n = {n}, every = {every}" if every else f"n = {n}"
