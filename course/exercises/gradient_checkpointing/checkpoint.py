"""`checkpoint(fn, *args)`: run fn so that only its arguments are kept, and run it again in backward.

Each case is a scenario with a function of ours, that counts its calls, and with a backward through what the answer
returned. Values are those of fn without any checkpoint.

Memory is that of a chain of layers: a short one, whose tensors are counted, in a notebook; large tensors, whose process
is measured from outside, in grading. Something stands between two layers, so that an output is not an input. Inputs are
held outside too, so that a copy of one counts besides; they are transposed, and one does not require a gradient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from course.errors import WrongOutput
from course.meter import kept_bytes
from course.performing.blocks import draw, over_peak
from course.performing.draws import integer, normal
from course.performing.exercise import Answer, Ask, Case, Exercise, Inputs, Observation, Property, Values, observe
from course.performing.forms import in_dtype, strided
from course.performing.oracle import is_here
from course.performing.pledges import Look, Numbers, Sample, Stage, number, pledged, shown
from course.tree import Tree

LAYERS = 16
BLOCK, BLOCKS, FEW_BLOCKS = 1_024, 128, 2  # numbers and blocks of a tensor: 1 MiB in grading, 16 KiB in a notebook
STATE = 8 * 2**10  # bytes beside the inputs that each layer may keep: a copy of torch's random state has 5,056
MEMORY = "many layers"
STEPS = "two steps under autocast"
PEAK = 34 * 2**20  # bytes in grading: right answers take 29 to 31 MiB, one tensor more for half of the layers 39


class Counted:
    """A function that counts its calls. through: how many numbers' gradients came through each of them, if any did."""

    def __init__(self, body: Callable[..., Any]) -> None:
        self._body, self.calls = body, 0
        self.through = Counter[int]()

    def __call__(self, *args: Any) -> Any:
        """What the body returns."""
        self.calls += 1
        y = self._body(*args)
        if isinstance(y, tuple):
            return tuple(map(self._noted, y))
        return self._noted(y)

    @property
    def used(self) -> list[int]:
        """The calls that gradients came through, in order."""
        return sorted(self.through)

    def _noted(self, y: Any) -> Any:
        if not isinstance(y, Tensor) or y.grad_fn is None:
            return y
        return _Noted.apply(y, torch.tensor(self.calls), self)  # type: ignore[no-untyped-call]


class _Noted(torch.autograd.Function):
    """The tensor itself; backward notes which call's it is, by what was saved for it, and may have been saved anew."""

    @staticmethod
    def forward(y: Tensor, call: Tensor, fn: Counted) -> Tensor:
        """A copy, which shares no memory with an argument."""
        return y.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        """Apart from forward, so that torch.func can differentiate it."""
        _, call, ctx.fn = inputs
        ctx.save_for_backward(call)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        """What came."""
        is_real = type(grads[0]) is Tensor and grads[0].is_cpu  # on the meta device nothing is computed
        ctx.fn.through[int(ctx.saved_tensors[0])] += grads[0].numel() * is_real
        return *grads, None, None


def wave(x: Tensor, w: Tensor) -> Tensor:
    """A layer that keeps three tensors of its own where it is not checkpointed."""
    return (x * w).sin().exp().cos().square() / 2 + x / 2


def cases(rng: torch.Generator) -> list[Case]:
    """One scenario each. What autocast casts is given as integers: the probe makes float32 of them, also for us."""

    def many(*names: str, shape: tuple[int, ...] = (3, 4)) -> dict[str, Tree]:
        return {name: normal(rng, *shape, dtype=torch.float64) for name in names}

    def integers(most: int, **shapes: tuple[int, ...]) -> dict[str, Tree]:
        return {name: torch.randint(-most, most, shape, generator=rng) for name, shape in shapes.items()}

    def cast(to: str, inside: bool = False) -> dict[str, Tree]:
        numbers = integers(4_000, x=(3, 4), w=(4, 2), dy=(3, 2))
        return {"asks": "autocast", **numbers, "to": to, "off_inside": inside}

    rows = torch.randint(0, 3, (5,), generator=rng)
    weights = {**many("x", "dy", shape=(4, 4)), **many("w", shape=(4, 4)), **many("b", shape=(4,))}
    seed, seed_of_blocks = (integer(rng, 0, 2**31) for _ in range(2))
    scale = 1 + torch.rand((), generator=rng, dtype=torch.float64)
    places = {"block": BLOCKS, "start": BLOCK - 64}

    def gentle(*shape: int, of: str = "x w") -> dict[str, Tree]:
        """In few digits, too: where exp(sin(x w)) is far from pi / 2, at which the gradient cancels."""
        return {name: normal(rng, *shape, dtype=torch.float64) / 8 for name in of.split()}

    drawn: dict[str, dict[str, Tree]] = {
        "two tensors": {"asks": "plain", **gentle(3, 4), **many("dy")},
        "one tensor twice": {"asks": "same", **many("x", "dy")},
        "a vector, a cube and a matrix": {"asks": "three", **many("b", shape=(4,)), **gentle(3, 4, of="w")}
        | {**gentle(2, 3, 4, of="x"), "dy": normal(rng, 2, 3, 4, dtype=torch.float64).abs()},
        "exact in half precision": {"asks": "half", **integers(200, x=(3, 4), w=(3, 4), dy=(3, 4))},
        "other arguments": {"asks": "arguments", **many("x", "frozen", "unused"), **many("dy", shape=(5, 4))}
        | {"rows": rows, "factor": 3, "shift": 0.5, **many("b", shape=())},
        "all outputs used": {"asks": "outputs", **many("x", "w", "dy"), "used": [0, 3, 4, 5]},
        "one output used": {"asks": "outputs", **many("x", "w", "dy"), "used": [3]},
        "a tuple of one": {"asks": "single", **many("x", "w", "dy")},
        "parameters": {"asks": "parameters", **weights},
        "random numbers": {"asks": "random", **many("x", "w", "dy"), "seed": seed},
        "bfloat16": cast("bfloat16"),
        "float16": cast("float16"),
        "switched off inside": cast("bfloat16", inside=True),
        "backward under autocast": cast(""),
        "no recording": {"asks": "no grad", **many("x", "w"), "seed": seed},
        "one in another": {"asks": "nested", **many("x", "w", "dy")},
        STEPS: {**cast("bfloat16"), "asks": "steps"},
        MEMORY: {"asks": "memory", "seed": seed_of_blocks, "scale": scale},
    }
    hidden: dict[str, Tree] = {name: integer(rng, 0, limit) for name, limit in places.items()}
    return [Case(name=name, inputs=inputs, hidden=hidden if name == MEMORY else {}) for name, inputs in drawn.items()]


def probe(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """One forward and one backward in the scenario that the case asks for."""
    if inputs["asks"] == "memory":
        return _memory(answer, inputs, ask)
    for name in ("x", "w", "b", "unused"):
        if name in inputs and inputs[name].is_floating_point():
            inputs[name].requires_grad_()
    return observe(SCENARIOS[inputs["asks"]](answer, inputs))


def _run(answer: Any, fn: Counted, args: Sequence[Any], inputs: Inputs, leaves: str) -> dict[str, Any]:
    """y, the gradients of these leaves, the calls before backward and after it, and which of them gradients took."""
    y = answer(fn, *args)
    before = fn.calls
    _back(y, inputs["dy"])
    return {"y": y, "calls": torch.tensor([before, fn.calls, *fn.used]), **_grads(inputs, leaves)}


def _tensor(y: Any) -> Tensor:
    if not isinstance(y, Tensor):
        raise WrongOutput(f"must return what fn returns, a tensor here, got {type(y).__name__}")
    return y


def _back(y: Any, dy: Tensor) -> None:
    """The gradients of all leaves, from dy."""
    torch.autograd.backward([_tensor(y)], [dy])


def _grads(inputs: Inputs, leaves: str) -> dict[str, Tensor]:
    """Gradients by name, zeros where there is none."""
    found = {name: (inputs[name], inputs[name].grad) for name in leaves.split()}
    return {f"d{name}": torch.zeros_like(leaf) if grad is None else grad for name, (leaf, grad) in found.items()}


def _plain(answer: Any, inputs: Inputs) -> dict[str, Any]:
    """x has a history, w is a leaf: a second run that is not cut off from either would count twice. The gradient of y
    goes on to another term, too.
    """
    beside: Tensor = inputs["x"].square() / 2

    def and_beside(*given: Any) -> Tensor:
        return _tensor(answer(*given)) + beside

    return _run(and_beside, Counted(wave), (2 * inputs["x"], inputs["w"]), inputs, "x w")


def _three(answer: Any, inputs: Inputs) -> dict[str, Any]:
    args = [inputs[name] for name in ("b", "x", "w")]
    return _run(answer, Counted(lambda b, x, w: wave(x, w) * b), args, inputs, "b x w")


def _half(answer: Any, inputs: Inputs) -> dict[str, Any]:
    """A product and its gradients in float16, rounded once and so everywhere alike: they are compared in float64."""
    given: Inputs = {name: inputs[name].half() for name in ("x", "w", "dy")}
    x, w = (given[name].requires_grad_() for name in ("x", "w"))
    found = _run(answer, Counted(torch.mul), (x, w), given, "x w")
    return {name: found[name].double() for name in ("y", "dx", "dw")}


def _same(answer: Any, inputs: Inputs) -> dict[str, Any]:
    return _run(answer, Counted(wave), (inputs["x"], inputs["x"]), inputs, "x")


def _arguments(answer: Any, inputs: Inputs) -> dict[str, Any]:
    def body(rows: Tensor, x: Tensor, *others: Any) -> Tensor:
        if [type(each) for each in others[:4]] != [type(None), int, bool, int]:
            raise WrongOutput("fn must get its arguments as they are, None and numbers too, also 0 and False")
        factor, frozen, _, scale, shift = others[3:]
        y: Tensor = (x[rows] * factor).sin() * frozen[rows] * scale + shift
        return y

    args = [inputs[name] for name in ("rows", "x", "factor", "frozen", "unused", "b", "shift")]
    return _run(answer, Counted(body), [*args[:2], None, 0, False, *args[2:]], inputs, "x unused b")


def _outputs(answer: Any, inputs: Inputs) -> dict[str, Any]:
    """A tuple with None, integers, a detached tensor and an argument itself, of which the loss uses some."""

    def body(x: Tensor, w: Tensor) -> tuple[Tensor | None, ...]:
        h = (x * w).sin()
        return h, None, x.argmax(-1), w.exp() * x, h.detach() * 2, x

    fn = Counted(body)
    outputs = answer(fn, inputs["x"], inputs["w"])
    if not isinstance(outputs, tuple) or len(outputs) != 6 or outputs[1] is not None:
        raise WrongOutput("must return what fn returns: a tuple of six here, the second of them None")
    before = fn.calls
    loss = torch.stack([(outputs[place] * (place + 1) * inputs["dy"]).sum() for place in inputs["used"]]).sum()
    _back(loss, torch.ones_like(loss))
    y = [outputs[place] for place in (0, 2, 3, 4, 5)]
    return {"y": y, "calls": torch.tensor([before, fn.calls, *fn.used]), **_grads(inputs, "x w")}


def _single(answer: Any, inputs: Inputs) -> dict[str, Any]:
    fn = Counted(lambda x, w: (wave(x, w),))
    outputs = answer(fn, inputs["x"], inputs["w"])
    if not isinstance(outputs, tuple) or len(outputs) != 1:
        raise WrongOutput("must return what fn returns: a tuple of one tensor here")
    _back(outputs[0], inputs["dy"])
    return {"y": outputs[0], "used": torch.tensor(fn.used), **_grads(inputs, "x w")}


def _parameters(answer: Any, inputs: Inputs) -> dict[str, Any]:
    """w and b are not among the arguments; w is used outside too."""
    w, b = inputs["w"], inputs["b"]
    fn = Counted(lambda x: (x @ w).sin() + b)
    _back(w.square(), torch.ones_like(w))
    return _run(answer, fn, (inputs["x"],), inputs, "x w b")


def masked(x: Tensor, w: Tensor) -> Tensor:
    """A layer that draws a mask: of two factors, so that no draw takes every gradient away."""
    mask = torch.rand(x.shape, dtype=torch.float64).round() + 0.5
    return wave(x, w) * mask


def _random(answer: Any, inputs: Inputs) -> dict[str, Any]:
    """Two calls of one function, a mask for each; who draws in between and afterwards draws what a plain run leaves."""
    torch.manual_seed(inputs["seed"])
    fn = Counted(masked)
    h = answer(fn, inputs["x"], inputs["w"])
    between = torch.rand(3, dtype=torch.float64)
    y = _tensor(answer(fn, h, inputs["w"]))
    before = torch.rand(3, dtype=torch.float64)
    _back(y, inputs["dy"])
    draws = {"forward": torch.cat([between, before]), "backward": torch.rand(3, dtype=torch.float64)}
    return {"y": y, "draws": draws, "used": torch.tensor(fn.used), **_grads(inputs, "x w")}


def _autocast(answer: Any, inputs: Inputs) -> dict[str, Any]:
    """Forward under autocast, which fn may switch off itself, and backward outside of it; or the other way round.

    The products of backward are cast as autocast is where backward was called, which is not where fn runs.
    """
    bits: list[int] = []

    def body(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False) if inputs["off_inside"] else nullcontext():
            with torch.no_grad():
                bits.append(8 * (x @ w).dtype.itemsize)
            return x @ w

    x, w = ((inputs[name].float() / 1_024).requires_grad_() for name in ("x", "w"))
    fn, to = Counted(body), getattr(torch, inputs["to"] or "bfloat16")
    casts = torch.autocast("cpu", dtype=to)
    with casts if inputs["to"] else nullcontext():
        y = _tensor(answer(fn, x, w))
    with nullcontext() if inputs["to"] else casts:
        _back(y, inputs["dy"].to(y.dtype))
    return {"y": y, "bits": torch.tensor([*bits, *fn.used]), **_grads({"x": x, "w": w}, "x w")}


def _steps(answer: Any, inputs: Inputs) -> dict[str, Any]:
    """Two steps under autocast; the parameter that fn holds changes in between, and so must its cast."""
    x, w = ((inputs[name].float() / 1_024).requires_grad_() for name in ("x", "w"))
    found = []
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found.append(_tensor(answer(Counted(lambda x: x @ w), x)))
        _back(found[-1], inputs["dy"].to(found[-1].dtype))
        with torch.no_grad():
            w.mul_(-2)
    return {"y": found, **_grads({"x": x, "w": w}, "x w")}


def _no_grad(answer: Any, inputs: Inputs) -> dict[str, Any]:
    fn = Counted(masked)
    torch.manual_seed(inputs["seed"])
    with torch.no_grad():
        y = _tensor(answer(fn, inputs["x"], inputs["w"]))
    draws = {"forward": torch.rand(3, dtype=torch.float64)}
    return {"y": y, "draws": draws, "calls": torch.tensor([fn.calls, int(y.requires_grad)])}


def _nested(answer: Any, inputs: Inputs) -> dict[str, Any]:
    w, inner = inputs["w"], Counted(wave)
    fn = Counted(lambda x: answer(inner, x.sin(), w) * answer(inner, x, w).exp())
    found = _run(answer, fn, (inputs["x"],), inputs, "x w")
    return {**found, "inner_calls": torch.tensor(inner.calls)}


SCENARIOS: dict[str, Callable[[Any, Inputs], dict[str, Any]]] = {
    "plain": _plain,
    "same": _same,
    "three": _three,
    "half": _half,
    "arguments": _arguments,
    "outputs": _outputs,
    "single": _single,
    "parameters": _parameters,
    "random": _random,
    "autocast": _autocast,
    "steps": _steps,
    "no grad": _no_grad,
    "nested": _nested,
}


def _memory(answer: Any, inputs: Inputs, ask: Ask) -> Observation:
    """A chain after its forward: bytes alive where the oracle is here. Then backward through all of it.

    An answer of which nothing is seen does not hold: memory that torch does not own (a NumPy copy) is not counted.
    """
    if not is_here(ask):
        leaf, y, _, runs = _chain(answer, inputs, draw(inputs["seed"], range(BLOCKS), BLOCK))
        found = _both(leaf, y, runs)
        block = pledged(ask, {name: each.detach() for name, each in found.items()})["block"]
        return shown(ask, {name: each[block] for name, each in found.items()})
    first = number(ask, "block")
    few = draw(inputs["seed"], range(first, first + FEW_BLOCKS), BLOCK)
    with kept_bytes() as meter:
        leaf, y, held, runs = _chain(answer, inputs, few)
    kept = meter.bytes_alive(ignore=[leaf, y])
    held.clear()
    seen = meter.bytes_alive(ignore=[leaf, y])
    found, start = _both(leaf, y, runs), {"start": number(ask, "start")}
    return observe({name: _cut(each[0], start) for name, each in found.items()}, {"kept_bytes": kept if seen else 0})


def _chain(answer: Any, inputs: Inputs, numbers: Tensor) -> tuple[Tensor, Tensor, list[Tensor], list[Counted]]:
    """A leaf, what comes out of the chain, the inputs of its layers and what runs there. Every second layer returns a
    tuple.
    """
    leaf = (numbers * inputs["scale"]).requires_grad_()
    y, held, runs = leaf * 1, [], []
    for layer in range(LAYERS):
        held.append(y)
        runs.append(Counted((lambda x, w: (wave(x, w),)) if layer % 2 else wave))
        out = answer(runs[-1], y.T, numbers.T)
        if layer % 2:
            (out,) = out
        y = _tensor(out).T + 1  # what comes out of a layer is not what goes into the next
    return leaf, y, held, runs


def _both(leaf: Tensor, y: Tensor, runs: list[Counted]) -> dict[str, Tensor]:
    """y, and the leaf's gradient. Who knows what runs here could do without: gradients must come through it."""
    _back(y, torch.ones_like(y))
    if any(1 in fn.through or fn.through.total() < y.numel() for fn in runs):
        raise WrongOutput("all gradients must come through a second run of fn, in each layer")
    if leaf.grad is None:
        raise WrongOutput("no gradient came back to the input of the first layer")
    return {"y": y, "dx": leaf.grad}


def _cut(block: Tensor, numbers: Numbers) -> Tensor:
    """A piece of a block, in float32: rounded far coarser than processors differ."""
    return block[numbers["start"] : numbers["start"] + 64].float().clone()


LOOK = Look(
    stages=(Stage(pieces={"y": BLOCKS, "dx": BLOCKS}, tells=("block",)),),
    at=lambda numbers: {"y": numbers["block"], "dx": numbers["block"]},
    cut=_cut,
)


def _inputs_alone(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """The input of each layer, and room for a copy of a random state. The state itself is not seen: no op makes it."""
    if "peak_bytes" in got:
        sentence = "{peak:,} bytes at the highest, where {most:,} are enough for the inputs and one layer's run"
        return over_peak(got["peak_bytes"], PEAK, sentence)
    kept, input_bytes = got["kept_bytes"], FEW_BLOCKS * BLOCK * torch.float64.itemsize
    allowed = LAYERS * (input_bytes + STATE)
    if isinstance(kept, int) and input_bytes <= kept <= allowed:
        return None
    return f"{kept:,} bytes are alive after forward, where the inputs of {LAYERS} layers have {allowed:,} at most"


VALUES = ("y", "dx", "dw")
ONCE = (
    strided("x", "w", "dy", of="two tensors"),
    in_dtype(torch.float32, "b", "x", "w", "dy", of="a vector, a cube and a matrix"),
    in_dtype(torch.float16, "x", "w", "dy", of="two tensors"),
    in_dtype(torch.bfloat16, "x", "w", "dy", of="two tensors"),
)

EXERCISE = Exercise(
    id="gradient_checkpointing.checkpoint",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "value",
            "What fn returns is returned, and backward gives every argument its gradient. The second run must be "
            "recorded, and cut off from the graph that led to the arguments, which autograd goes through anyway.",
            points=3,
            keys=(*VALUES, "db"),
            cases=("two tensors", "one tensor twice", "a vector, a cube and a matrix", "exact in half precision"),
        ),
        Property(
            "other_arguments",
            "Only some arguments are tensors, and only some tensors require a gradient: integers cannot. backward "
            "returns as many values as forward has arguments, None for all that have no gradient.",
            points=2,
            cases=("other arguments",),
        ),
        Property(
            "tuple_outputs",
            "fn may return a tuple, with None, integers or a detached tensor in it, and the loss need not use all. "
            "Only outputs that require a gradient, and got one, can take part in the backward of the second run.",
            points=2,
            keys=("y", "y/*", "dx", "dw", "used"),
            cases=("all outputs used", "one output used", "a tuple of one"),
        ),
        Property(
            "parameters",
            "fn holds parameters that are not among its arguments. Which of torch.autograd.grad and "
            "torch.autograd.backward reaches them?",
            points=2,
            keys=("y", "dx", "dw", "db"),
            cases=("parameters",),
        ),
        Property(
            "same_random_numbers",
            "The second run must draw the mask that the first one drew, whatever was drawn in between: keep the random "
            "state of before the first run, and set it before the second.",
            points=2,
            keys=(*VALUES, "used"),
            cases=("random numbers",),
        ),
        Property(
            "random_state_afterwards",
            "A program that draws after your forward, or after your backward, must draw as if fn had run once: put "
            "back, after the second run, the state that was there before it.",
            keys=("draws/*",),
            cases=("random numbers", "no recording"),
        ),
        Property(
            "same_autocast",
            "backward is called outside of the autocast of forward, and the second run must round as the first: ask "
            "torch in forward whether autocast is on, and with which dtype, and run fn, and nothing else, under the "
            "same. torch.autocast forgets its casts of weights where its `with` ends.",
            points=2,
            roundings=8,
            cases=("bfloat16", "float16", "switched off inside", "backward under autocast", STEPS),
        ),
        Property(
            "two_calls",
            "fn is called once in forward and once more in backward, and gradients come through that second run; where "
            "nothing is recorded, it is called once in all.",
            points=2,
            keys=("y", "y/*", "calls"),
            cases=("two tensors", "parameters", "all outputs used", "no recording"),
        ),
        Property(
            "one_in_another",
            "fn may call checkpoint itself: the second run of the outer one records the inner ones, whose second run "
            "comes in its backward. So the innermost fn runs three times.",
            cases=("one in another",),
        ),
        Property(
            "keeps_only_inputs",
            "From forward to backward only the arguments stay, with ctx.save_for_backward, and a random state. Neither "
            "a graph of the first run nor an output, wherever it is kept, nor copies of what the caller holds.",
            points=3,
            evidence="ledger",
            holds=_inputs_alone,
            beside=("y", "dx"),
            shows="kept_bytes",
            cases=(MEMORY,),
            needs=("value",),
        ),
    ),
    hints=(
        "In backward you have the arguments and a gradient for each output. What would you write if fn(*args) stood "
        "right there, and you could call backward on what it returns?",
        "A torch.autograd.Function: forward runs without recording and saves the tensors among the arguments. backward "
        "detaches them, runs fn with recording on, and calls torch.autograd.backward from its outputs. Then think of "
        "what else fn depends on.",
        "forward: note the random state, and whether autocast is on and its dtype; save; call fn. backward: detached "
        "arguments with the same requires_grad; in torch.random.fork_rng, torch.enable_grad and torch.autocast with "
        "what was noted, fn again; backward from the outputs that require a gradient; return None for each argument of "
        "forward that is not in args, then each one's .grad.",
    ),
    forms=ONCE,
    promises={
        "a tensor, or a tuple of tensors (integer and detached ones and args too) and None": ("tuple_outputs", "value"),
        "parameters": ("parameters",),
        "may hold parameters": ("parameters",),
        "random numbers of torch on the CPU": ("same_random_numbers",),
        "call checkpoint itself": ("one_in_another",),
        "tensors, views among them, in any floating dtype or integer": ("every_form", "other arguments"),
        "the same one twice": ("one tensor twice",),
        "None, numbers": ("other_arguments",),
        "Some require a gradient and some do not": ("other arguments",),
        "gradients that fn alone would give them": ("value", "parameters", "same_autocast"),
        "fn once in forward and once in backward": ("two_calls",),
        "once in all under torch.no_grad()": ("no recording",),
        "the tensors of args, no copies, and up to 8 KiB": ("keeps_only_inputs",),
        "draws what the first one drew": ("same_random_numbers",),
        "what it would draw if fn had run once": ("random_state_afterwards",),
        "the second run, but not its backward": ("switched off inside", "backward under autocast"),
        "on or off and with its dtype": ("same_autocast",),
        "leaves no cast of a parameter": (STEPS,),
    },
    removes=("torch.utils.checkpoint",),
    oracle=partial(Sample, look=LOOK),
    measured=(MEMORY,),
    seconds=10.0,
)
