"""`LoRALinear(base, r, alpha, rng)`: a frozen linear layer with an adapter beside it.

A few steps of plain gradient descent with weight decay are taken on whatever requires a gradient. The probe sets A, so
that no random number has a part in them; the draw has a case of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from course.exercises.lora.adapted_models import modules_of
from course.exercises.lora.large import (
    LARGE_R,
    PIECE,
    large_case,
    large_observed,
    large_tensors,
    no_large_matrix,
    sample,
    with_costs,
)
from course.performing.draws import integer, normal
from course.performing.exercise import (
    Answer,
    Ask,
    Case,
    Exercise,
    Inputs,
    Observation,
    Property,
    Values,
    every_form,
    observe,
)
from course.performing.forms import at_once, cut, in_dtype, put
from course.performing.refusals import all_refused, refused, refused_in_time

USUAL, SQUARE, DECAY = "five steps", "all sizes equal", "five steps with weight decay"
BARE, SINGLE, WIDE = (
    "no bias, two leading dimensions",
    "no leading dimension",
    "r above n and m, three leading dimensions",
)
DOUBLE, DRAW, MERGED, ASKED = "in float64", "the draw of A", "merged", "what is refused"
LARGE, OTHERS, DERIVED = "a large layer", "set by others", "a base with a forward of its own"
TRAINED = (USUAL, SQUARE)
PEAK = 96 * 2**20  # bytes in grading: right answers take 64 to 65 MiB, the layer's own weight; one matrix more 128
N, M, R = 64, 16, 32  # of the layer whose A is looked at: 2,048 numbers
NONSENSE: dict[str, tuple[int, float]] = {
    "r = 0": (0, 4.0),
    "a negative r": (-2, 4.0),
    "both negative": (-2, -4.0),
    "alpha = 0": (2, 0.0),
    "a negative alpha": (2, -4.0),
}


class Bent(nn.Linear):
    """A kind of nn.Linear whose backward needs what it said, with a parameter more, and one in a module inside."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(in_features, out_features, bias)
        self.gain = nn.Parameter(torch.tensor(0.75))
        self.bend = nn.PReLU()
        self.said = torch.zeros(())

    def forward(self, input: Tensor) -> Tensor:
        """x (..., n) -> (..., m)."""
        self.said = self.bend(self.gain * super().forward(input)).tanh()
        return self.said


def cases(rng: torch.Generator) -> list[Case]:
    """Layers that are trained for some steps; one whose A is looked at, one that is merged, a large one."""

    def drawn(
        lead: tuple[int, ...], n: int, m: int, r: int, alpha: float, *, bias: bool = True, steps: int = 5
    ) -> dict[str, Any]:
        return {
            "weight": normal(rng, m, n) / n**0.5,
            "bias": normal(rng, m) if bias else None,
            "r": r,
            "alpha": alpha,
            "A": normal(rng, r, n) / n**0.5,
            "x": normal(rng, steps, *lead, n),
            "target": normal(rng, steps, *lead, m),
            "rate": 0.05,  # at twice this a step may overshoot so far that the next ones magnify roundings
            "decay": 0.0,
            "asks": "training",
        }

    def case(name: str, inputs: dict[str, Any], **more: Any) -> Case:
        return Case(name=name, inputs={**inputs, **more})

    double = {
        key: each.double() if isinstance(each, Tensor) else each for key, each in drawn((4,), 5, 3, 2, 3.0).items()
    }
    double["weight"] += 2.0**-40
    draw: dict[str, Any] = {"seed": integer(rng, 0, 2**31), "weight": normal(rng, M, N), "bias": None}
    return [
        case(USUAL, drawn((6,), 5, 4, 2, 3.0)),
        case(SQUARE, drawn((5,), 3, 3, 3, 2.0)),
        case(DECAY, drawn((6,), 4, 5, 2, 3.0), decay=0.5),
        case(BARE, drawn((2, 3), 4, 5, 1, 2, bias=False, steps=2)),
        case(SINGLE, drawn((), 4, 3, 3, 5.0, steps=2)),
        case(WIDE, drawn((2, 1, 3), 3, 2, 5, 7.0, steps=2)),
        Case(name=DOUBLE, inputs=double),
        Case(name=DRAW, inputs={**draw, "asks": "draw"}),
        case(MERGED, drawn((4,), 5, 3, 2, 3.0), asks="merged", B=normal(rng, 3, 2)),
        case(OTHERS, drawn((4,), 5, 3, 2, 3.0), asks="others", B=normal(rng, 3, 2)),
        case(DERIVED, drawn((4,), 5, 3, 2, 3.0), asks="merged", B=normal(rng, 3, 2), derived=True),
        case(ASKED, drawn((4,), 5, 3, 2, 3.0), asks="refusals"),
        large_case(LARGE, rng, {"weight": normal(rng, PIECE, PIECE), "bias": normal(rng, PIECE), "alpha": 3.0}),
    ]


def probe(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """The scenario that the case asks for."""
    if "large" in inputs:
        return _large(answer, inputs, ask)
    return observe(SCENARIOS[inputs["asks"]](answer, inputs))


def _base(weight: Tensor, bias: Tensor | None, kind: type[nn.Linear] = nn.Linear) -> nn.Linear:
    """A layer with these parameters, which draws none that nobody needs."""
    base = kind(1, 1, bias=bias is not None).to(weight.dtype)
    base.out_features, base.in_features = weight.shape
    base.weight = nn.Parameter(weight)
    if bias is not None:
        base.bias = nn.Parameter(bias)
    return base


def _layer(answer: Answer, inputs: Inputs, base: nn.Linear) -> Any:
    """The answer's layer, whose A is then the case's."""
    layer = answer(base, inputs["r"], inputs["alpha"], torch.Generator().manual_seed(0))
    with torch.no_grad():
        layer.A.copy_(inputs["A"])
    return layer


def _training(answer: Answer, inputs: Inputs) -> dict[str, Any]:
    """The layer as it is made, steps of it, and the base afterwards."""
    weight, bias = inputs["weight"].clone(), inputs["bias"]
    base = _base(weight, None if bias is None else bias.clone())
    parameters = {"weight": base.weight, "bias": base.bias}
    layer = _layer(answer, inputs, base)
    named = dict(layer.named_parameters())
    with torch.no_grad():
        found: dict[str, Any] = {"start": layer(inputs["x"][0]), "base": base(inputs["x"][0])}
    found["same"] = [layer.base is base, *(layer.base._parameters[name] is each for name, each in parameters.items())]
    found["scale"], found["merged"] = (getattr(layer, name, "is missing") for name in ("scale", "merged"))
    found["kind of scale"] = "a float" if isinstance(found["scale"], float) else "no float"
    found["parameters"] = " ".join(sorted(named))
    found["trainable"] = " ".join(sorted(name for name, each in named.items() if each.requires_grad))
    found["dtypes"] = {"A": str(layer.A.dtype), "B": str(layer.B.dtype), "y": str(found["start"].dtype)}
    steps: dict[str, list[Any]] = {"y": [], "dx": [], "A": [], "B": []}
    for x, target in zip(inputs["x"], inputs["target"], strict=True):
        x = x.clone().requires_grad_()
        y = layer(x)
        steps["y"].append(y.detach().clone())
        torch.autograd.backward(y, (y.detach() - target) / max(1, x.shape[:-1].numel()))
        steps["dx"].append(x.grad)
        _descend(named.values(), inputs["rate"], inputs["decay"])
        for name in ("A", "B"):
            steps[name].append(getattr(layer, name).detach().clone())
    left = {name: None if each is None else each.detach().clone() for name, each in parameters.items()}
    return {**found, **steps, "base after": left}


@torch.no_grad()
def _descend(parameters: Any, rate: float, decay: float) -> None:
    """A step of SGD with weight decay apart from the gradient, on what has a gradient, as torch's optimizers do."""
    for each in parameters:
        if each.grad is not None:
            each.mul_(1 - rate * decay).sub_(rate * each.grad)
            each.grad = None


def _draw(answer: Answer, inputs: Inputs) -> dict[str, Any]:
    """Two layers from one generator, and one from another with the same seed."""
    first, again = (torch.Generator().manual_seed(inputs["seed"]) for _ in range(2))
    bases = [_base(inputs["weight"].clone(), None) for _ in range(3)]
    before = torch.get_rng_state()
    drawn = [answer(base, R, 8.0, rng) for base, rng in zip(bases, (first, first, again), strict=True)]
    others = not torch.equal(before, torch.get_rng_state())
    numbers = [each.A.detach().double() for each in drawn]
    unit = numbers[0] * N**0.5
    found: dict[str, Any] = {"shapes": [str(tuple(each.shape)) for each in (drawn[0].A, drawn[0].B)]}
    found["moments"] = {
        "mean": unit.mean(),
        "square": unit.square().mean(),
        "fourth": (unit / unit.std()).pow(4).mean(),
        "columns": unit.sum(dim=0).square().mean() / unit.shape[0],
        "rows": unit.sum(dim=1).square().mean() / unit.shape[1],
    }
    found["again"] = torch.equal(numbers[0], numbers[2])  # numbers that are free to differ would tell nobody apart
    found["anew"] = not torch.equal(numbers[0], numbers[1])
    found["from the global generator"] = others
    found["B"] = drawn[0].B.detach().clone()
    return found


def _merged(answer: Answer, inputs: Inputs) -> dict[str, Any]:
    """What the layer says while its adapter stands in the weight, and after, with the gradient of x in both."""
    kind = Bent if "derived" in inputs else nn.Linear
    layer = _layer(answer, inputs, _base(inputs["weight"].clone(), inputs["bias"].clone(), kind))
    found: dict[str, Any] = {}
    with torch.no_grad():
        layer.B.copy_(inputs["B"])
    for merged in (True, False):
        layer.merged, words = merged, f"merged is {merged}"
        found[words], found[f"dx/{words}"] = _with_gradient(layer, inputs["x"][0])
    if "derived" in inputs:
        found["what the base said"] = getattr(layer.base, "said", torch.zeros(())).detach().clone()
        found["dbase"] = {name: _gradient(p) for name, p in layer.base.named_parameters()}
    return found


def _with_gradient(layer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """What the layer says of x, and the gradient of its sum for x."""
    x = x.clone().requires_grad_()
    y = layer(x)
    said = y.detach().clone()
    if y.requires_grad:
        y.sum().backward()
    return said, _gradient(x)


def _gradient(of: Tensor) -> Tensor:
    """Zeros where none came."""
    return torch.zeros_like(of) if of.grad is None else of.grad.clone()


def _others(answer: Answer, inputs: Inputs) -> dict[str, Any]:
    """What the layer says when others have given it new factors, another scale, eval mode, and in it both once more."""
    layer = _layer(answer, inputs, _base(inputs["weight"].clone(), inputs["bias"].clone()))
    found: dict[str, Any] = {}
    with torch.no_grad():
        layer(inputs["x"][0])
        layer.A, layer.B = nn.Parameter(-2 * inputs["A"]), nn.Parameter(inputs["B"].clone())
        found["with other factors"] = layer(inputs["x"][0])
        layer.scale = 0.375
        found["with another scale"] = layer(inputs["x"][0])
    found["in eval mode"], found["dx/in eval mode"] = _with_gradient(layer.eval(), inputs["x"][0])
    found["gradients in eval mode"] = {"A": _gradient(layer.A), "B": _gradient(layer.B)}
    with torch.no_grad():
        layer.B.neg_()
        layer.scale = 1.25
        found["changed in eval mode"] = layer(inputs["x"][0])
    return found


def _refusals(answer: Answer, inputs: Inputs) -> dict[str, Any]:
    """What each call raised that makes no sense, and whether the base may still be trained, in the mode that it had."""
    bases = {words: _base(inputs["weight"].clone(), inputs["bias"].clone()) for words in NONSENSE}
    calls = {
        words: partial(answer, bases[words], r, alpha, torch.Generator().manual_seed(0))
        for words, (r, alpha) in NONSENSE.items()
    }
    came = refused(calls)
    y = _layer(answer, inputs, _base(inputs["weight"].clone(), inputs["bias"].clone()))(inputs["x"][0])
    left = {words: modules_of(base)["the model"] for words, base in bases.items()}
    return {"y": y, "refused": {**came, "left": left}}


SCENARIOS: dict[str, Callable[[Answer, Inputs], dict[str, Any]]] = {
    "training": _training,
    "draw": _draw,
    "merged": _merged,
    "others": _others,
    "refusals": _refusals,
}


def _large(answer: Answer, inputs: Inputs, ask: Ask) -> Observation:
    """Forward and backward through a layer whose weight is large, with the same small one all along its diagonal."""
    x, dy, a, b = large_tensors(inputs["large"], ask)
    weight, bias = torch.zeros(len(b), len(b)), torch.zeros(len(b))
    for start in range(0, len(b) - PIECE + 1, PIECE):
        at = slice(start, start + PIECE)
        weight[at, at], bias[at] = inputs["weight"], inputs["bias"]
    base = _base(weight, bias)
    x.requires_grad_()

    def run() -> tuple[Any, Tensor]:
        layer = answer(base, LARGE_R, inputs["alpha"], torch.Generator().manual_seed(0))
        with torch.no_grad():
            layer.A.copy_(a)
            layer.B.copy_(b)
        y = layer(x)
        torch.autograd.backward([y], [dy])
        return layer, y.detach()

    (layer, y), ledger = with_costs(run, ask)
    dA, dx = (None if each.grad is None else each.grad.T for each in (layer.A, x))
    return large_observed({"y": y.T, "dA": dA, "dB": layer.B.grad, "dx": dx}, ledger, ask)


def _as_the_base(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: no bit differs at the start."""
    start, base = got["start"], got["base"]
    assert isinstance(start, Tensor)
    assert isinstance(base, Tensor)
    if start.shape == base.shape and torch.equal(start.double(), base.double()):
        return None
    return "before the first step y differs from what the base alone says"


def _as_drawn(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: mean, size and shape of a normal distribution, six times as far off as chance is."""
    bands = {"mean": (-0.15, 0.15), "square": (0.8, 1.2), "fourth": (2.3, 3.7), "columns": (0, 2.5), "rows": (0, 3)}
    told = {
        "mean": "A has a mean",
        "square": "n times the mean square of A's numbers",
        "fourth": "the fourth moment of A (of a normal distribution: 3)",
        "columns": "n / r times the mean square of the sums of A's columns (1 where its rows are drawn apart)",
        "rows": "the mean square of the sums of A's rows (1 where its columns are drawn apart)",
    }
    for name, (low, high) in bands.items():
        value = got[f"moments/{name}"]
        if not (isinstance(value, Tensor) and low <= float(value) <= high):
            return f"{told[name]} is {float(value) if isinstance(value, Tensor) else value:.3g}"
    zero = got["B"]
    return None if isinstance(zero, Tensor) and not zero.any() else "B is not 0 at the start"


def _dtypes(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: A, B and y are in the dtype of the base."""
    wanted = str(inputs["weight"].dtype)
    others = [f"{name} in {got[f'dtypes/{name}']}" for name in ("A", "B", "y") if got[f"dtypes/{name}"] != wanted]
    return f"{', '.join(others)}, where the base is in {wanted}" if others else None


STEPS = ("y/*", "A/*", "B/*")
FLOATS = ("weight", "bias", "A", "x", "target")
TWO_STEPS = cut("two steps", x=(0, 2), target=(0, 2))

EXERCISE = Exercise(
    id="lora.LoRALinear",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "starts_as_the_base",
            "With B = 0 the adapter adds nothing: the model that is fine-tuned begins as the model that was trained, "
            "to the last bit.",
            holds=_as_the_base,
            cases=(USUAL, SQUARE, BARE, SINGLE, DOUBLE),
        ),
        Property(
            "A_normal_B_zero",
            "A is drawn from a normal distribution with mean 0 and standard deviation 1 / sqrt(n), n the width of the "
            "input; B is 0.",
            points=2,
            holds=_as_drawn,
            cases=(DRAW,),
        ),
        Property(
            "A_from_rng",
            "All random numbers come from `rng`: the same seed must give the same layer, and the next layer made with "
            "the same generator another one. Do not seed it yourself. nn.Linear and nn.init draw from the global one.",
            keys=("again", "anew", "from the global generator"),
            cases=(DRAW,),
            needs=("A_normal_B_zero",),
        ),
        Property(
            "shapes",
            "A is (r, n) and B is (m, r), where the weight of base is (m, n).",
            keys=("shapes*",),
            cases=(DRAW,),
        ),
        Property(
            "trainables",
            "A and B are nn.Parameters of the layer and the only ones that require a gradient: freeze base's weight, "
            "and its bias too. `base` stays a part of the layer.",
            points=2,
            keys=("parameters", "trainable"),
            cases=(USUAL, BARE),
        ),
        Property(
            "same_base",
            "layer.base must be the very module that came in, with the very parameters that it had: others may hold "
            "them too, and a copy costs the memory of another weight.",
            keys=("same",),
            cases=(USUAL, BARE),
        ),
        Property(
            "base_unchanged",
            "After five steps the base has other bits than before. What is frozen requires no gradient, and gets none.",
            roundings=0,
            keys=("base after/*",),
            cases=(USUAL, SQUARE, DECAY),
            needs=("starts_as_the_base",),
        ),
        Property(
            "B_moves_first",
            "In the first step the gradient of A is 0, because B is 0, and that of B is not.",
            roundings=0,
            keys=("A/0",),
            cases=TRAINED,
        ),
        Property(
            "training",
            "y = base(x) + scale (x A') B', with scale = alpha / r. Both factors must learn: nothing detached, no "
            ".data in forward.",
            points=3,
            keys=STEPS,
            cases=(*TRAINED, DECAY),
            needs=("starts_as_the_base",),
        ),
        Property(
            "gradient_of_x",
            "The layer before wants its gradient, and it comes through the base and through the adapter. A frozen "
            "weight takes part in backward: no torch.no_grad and no detach around the base, also while merged is True "
            "and in eval mode.",
            keys=("dx/*",),
            cases=(*TRAINED, BARE, MERGED, OTHERS),
        ),
        Property(
            "scale",
            "The attribute scale is alpha / r, a float, and merged is False at the start.",
            keys=("scale", "kind of scale", "merged"),
            cases=(USUAL, SQUARE, BARE),
        ),
        Property(
            "any_layer",
            "x has any number of leading dimensions, also none, and one may be 1 long; base may have no bias; r may be "
            "1, and above n and m.",
            points=2,
            keys=STEPS,
            cases=(BARE, SINGLE, WIDE),
            needs=("starts_as_the_base",),
        ),
        Property(
            "merged_counts_once",
            "While merged is True the weight of base holds the adapter already: forward is base(x) alone. It looks at "
            "the attribute each time.",
            keys=("merged is *",),
            cases=(MERGED,),
        ),
        Property(
            "looks_at_what_is_there",
            "Others may give the layer another scale or other factors, as from a file: forward reads scale, A and B "
            "each time, and keeps nothing that was made of them. It does the same in eval mode, with gradients.",
            cases=(OTHERS,),
        ),
        Property(
            "asks_the_base",
            "base may be of a class derived from nn.Linear, with a forward of its own (one that holds its weight in 4 "
            "bits, say): call base(x), and do not take its weight. Its backward may need what it said: add to that, "
            "and not into it. And it may have parameters of its own, also in modules inside of it, which "
            "are frozen, too.",
            cases=(DERIVED,),
            needs=("merged_counts_once", "gradient_of_x"),
        ),
        Property(
            "every_digit_in_float64",
            "Beside a base in float64 all is in float64, A and B too: look for tensors that are made without dtype=.",
            keys=STEPS,
            cases=(DOUBLE,),
            needs=("starts_as_the_base",),
        ),
        Property(
            "dtype_of_base",
            "A, B and y are in the dtype of base's weight: a factor in float32 beside a weight in half precision is "
            "an error in the product, or makes y float32.",
            holds=_dtypes,
            cases=(USUAL, DOUBLE, "in bfloat16", "in float16"),
        ),
        # As above: steps of training, too. In half precision y of the second one has gone through nine roundings.
        every_form(needs=("starts_as_the_base",), keys=STEPS, roundings=32, in_half=8),
        Property(
            "refusals",
            "An r below 1 and an alpha that is not above 0 is a ValueError.",
            holds=all_refused,
            cases=(ASKED,),
        ),
        refused_in_time(ASKED),
        Property(
            "no_large_matrix",
            "A tensor as large as the weight was made: W + scale B A, B A alone, a copy of W, or a gradient of it. "
            "Multiply x by the two thin factors one after the other.",
            points=2,
            evidence="ledger",
            holds=no_large_matrix(PEAK),
            beside=("y", "dA", "dB"),
            shows="largest_tensor",
            cases=(LARGE,),
            needs=("training",),
        ),
    ),
    hints=(
        "What must the layer compute before the first step, and which of its parameters may an optimizer find?",
        "Three lines of forward: what the base says; x through A and through B; their sum, the second with its scale. "
        "F.linear(x, A) is x A' for any leading dimensions.",
        "__init__: refuse; super().__init__(); keep base and turn requires_grad off for all of its parameters; draw A "
        "with generator=rng in the weight's dtype and divide by sqrt(n); B is zeros; keep scale and merged.",
    ),
    forms=(
        at_once("in bfloat16", in_dtype(torch.bfloat16, *FLOATS), TWO_STEPS),
        at_once("in float16", in_dtype(torch.float16, *FLOATS), TWO_STEPS),
        at_once("an empty batch", cut("no rows", x=(1, 0), target=(1, 0)), TWO_STEPS),
        at_once("one row", cut("one row", x=(1, 1), target=(1, 1)), TWO_STEPS, of=SQUARE),
        put("alpha a whole number", alpha=3),
    ),
    promises={
        "with a bias or without": ("any_layer", USUAL),
        "in any floating dtype": ("in bfloat16", "in float16", DOUBLE, "every_digit_in_float64"),
        "at least 1": ("refusals", "any_layer"),
        "may be above n and m": (WIDE,),
        "above 0, an int or a float": ("alpha a whole number", "refusals"),
        "the only source of random numbers": ("A_from_rng",),
        "the very module that came in": ("same_base",),
        "no longer requires a gradient": ("trainables", "base_unchanged", "asks_the_base"),
        "(r, n), normal with mean 0 and standard deviation 1 / sqrt(n)": ("A_normal_B_zero", "shapes"),
        "(m, r), 0": ("A_normal_B_zero", "shapes"),
        "in the dtype of base's weight": ("dtype_of_base",),
        "alpha / r": ("scale",),
        "False at the start": ("scale",),
        "Others may set A, B, scale and merged": ("looks_at_what_is_there", "merged_counts_once"),
        "in eval mode as in training": ("looks_at_what_is_there",),
        "or of a class derived from it, with a forward of its own and perhaps more parameters": ("asks_the_base",),
        "scale (x A') B'": ("training",),
        "base(x) alone while merged is True": ("merged_counts_once",),
        "What base returned is not changed": ("asks_the_base",),
        "any number of leading dimensions, also none": ("any_layer",),
        "a batch may be empty": ("an empty batch",),
        "With B = 0 it is base(x) bit for bit": ("starts_as_the_base",),
        "Gradients reach A, B and x": ("training", "gradient_of_x"),
        "no tensor of (m, n) is made": ("no_large_matrix",),
        "before base is touched": ("refused_before_any_change",),
        "an r below 1": ("refusals",),
        "an alpha that is not above 0 (none is nan)": ("refusals",),
    },
    oracle=sample("y", "dA", "dB", "dx"),
    measured=(LARGE,),
)
