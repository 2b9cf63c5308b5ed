"""`finetune_bytes(shapes, adapted, r, recipe)`: bytes of weights, gradients and states, with adapters or without."""

from __future__ import annotations

from typing import Any, cast

import torch

from course.performing.draws import integer
from course.performing.exercise import Answer, Case, Exercise, Inputs, Observation, Property, observe

Shapes = dict[str, tuple[int, ...]]
Question = dict[str, Any]
FULL, ADAPTERS, SMALL, RECIPES, EDGES, FRACTION, NAMES = (
    "all is trained",
    "adapters on a base of 16 bits",
    "adapters on a base of 4 bits",
    "other recipes",
    "nothing and everything adapted",
    "bytes that are not whole",
    "names that are parts of others",
)
IN_16_BITS = {"weights": 4, "gradients": 4, "states": 8, "base": 2, "others": 2}
IN_4_BITS = {**IN_16_BITS, "base": 0.53125}  # and a scale of 16 bits for each 64 numbers


def cases(rng: torch.Generator) -> list[Case]:
    """Each case asks several questions, about models of a few matrices and vectors."""

    def model() -> Shapes:
        """Grouped queries, an MLP, and what has no adapter: the embedding, norms, a bias."""
        width, few = 8 * integer(rng, 10, 40), 8 * integer(rng, 2, 9)
        return {
            "embedding": (8 * integer(rng, 50, 90), width),
            "q_proj": (width, width),
            "v_proj": (few, width),
            "norm": (width,),
            "up": (8 * integer(rng, 100, 160), width),
            "up.bias": (8 * integer(rng, 100, 160),),
        }

    def asked(r: int | None, recipe: dict[str, Any], *adapted: str, shapes: Shapes | None = None) -> Question:
        return {"shapes": shapes or model(), "adapted": [*adapted], "r": r, "recipe": {**recipe}}

    def some(recipe: dict[str, Any]) -> list[Question]:
        return [
            asked(integer(rng, 2, 9), recipe, "q_proj", "v_proj"),
            asked(integer(rng, 2, 9), recipe, "up"),
            asked(integer(rng, 10, 17), recipe, "up", "q_proj", "v_proj"),
        ]

    def drawn() -> dict[str, Any]:
        """Five different numbers, none of them a sum of two others."""
        low = integer(rng, 1, 4)
        return {"weights": low, "gradients": low + 9, "states": low + 23, "base": 0.3125 + low / 4, "others": low + 5.5}

    matrices: Shapes = {"q_proj": (24, 24), "gate": (80, 24), "up": (80, 24), "down": (24, 80)}
    rows, columns = (2 * integer(rng, 9, 19) + 1 for _ in range(2))
    odd: Shapes = {"q_proj": (rows, columns + 20 * (rows == columns)), "norm": (6,)}
    parts: Shapes = {"gate": (40, 24), "gate_up": (48, 24), "up": (56, 24), "up_gate": (72, 24), "g": (8, 24)}
    zeros = [{**IN_16_BITS, part: 0} for part in ("gradients", "states", "others", "base", "weights")]
    found = {
        FULL: [asked(None, IN_16_BITS), asked(None, IN_4_BITS, "q_proj", "up"), asked(None, drawn(), "v_proj")],
        ADAPTERS: some(IN_16_BITS),
        SMALL: some(IN_4_BITS),
        RECIPES: [asked(r, each, "v_proj", "up") for each in (*zeros, drawn()) for r in (None, integer(rng, 2, 9))],
        FRACTION: [
            asked(None, {**IN_16_BITS, "states": 2.03125}, shapes=odd),
            asked(integer(rng, 2, 9), {**drawn(), "others": 0.25}, "q_proj", shapes=odd),
            asked(None, IN_16_BITS, shapes={"embedding": (50_257, 1_601), "norm": (1_601,)}),
        ],
        NAMES: [asked(integer(rng, 2, 9), IN_4_BITS, *names, shapes=parts) for names in (["gate_up"], ["up", "gate"])],
        EDGES: [
            asked(4, IN_4_BITS),
            asked(1, IN_4_BITS, *matrices, shapes=matrices),
            asked(integer(rng, 30, 60), IN_4_BITS, *matrices, shapes=matrices),
        ],
    }
    return [Case(name=name, inputs=cast(Any, _by_name(questions))) for name, questions in found.items()]


def _by_name(questions: list[Question]) -> dict[str, Question]:
    """Each under the words for what is asked."""
    named = {}
    for number, each in enumerate(questions, 1):
        how = "all trained" if each["r"] is None else f"r = {each['r']} on {', '.join(each['adapted']) or 'nothing'}"
        listed = {name: [*shape] for name, shape in each["shapes"].items()}
        named[f"{number}: {how}"] = {**each, "shapes": listed}
    return named


def probe(answer: Answer, inputs: Inputs) -> Observation:
    """One call for each question."""
    found = {}
    for label, asked in inputs.items():
        shapes = {name: tuple(shape) for name, shape in asked["shapes"].items()}
        found[label] = answer(shapes, [*asked["adapted"]], asked["r"], {**asked["recipe"]})
    return observe({**found})


EXERCISE = Exercise(
    id="lora.finetune_bytes",
    cases=cases,
    probe=probe,
    properties=(
        Property(
            "all_trained",
            "Where r is None every number of the model is trained, vectors too: it has a weight, a gradient and "
            "states. There are no adapters then, whatever `adapted` says.",
            points=2,
            cases=(FULL,),
        ),
        Property(
            "adapters",
            "What is frozen has a weight and nothing else. What is trained, the numbers of the factors, has all three. "
            "Both are in memory.",
            points=2,
            cases=(ADAPTERS,),
        ),
        Property(
            "small_base",
            'A matrix that is adapted has "base" bytes for a number, which need not be whole; what is frozen without '
            'an adapter has "others", and an adapter\'s number what is said of trained ones.',
            points=2,
            cases=(SMALL,),
        ),
        Property(
            "recipes",
            "All bytes stand in the recipe. None of them is always 2, 4 or 8, and 0 is allowed.",
            cases=(RECIPES,),
            needs=("all_trained",),
        ),
        Property(
            "not_rounded",
            "With half a byte for each of an odd number of numbers the sum is not whole. Return it as it is, to the "
            "last byte also where it is large: float32 has 7 digits.",
            cases=(FRACTION,),
            needs=("all_trained",),
        ),
        Property(
            "whole_names",
            "A parameter is adapted where its whole name stands in `adapted`: gate is not adapted because gate_up is.",
            cases=(NAMES,),
            needs=("adapters",),
        ),
        Property(
            "edges",
            "Without adapted matrices nothing is trained, and only frozen weights are held. Where r is large, the "
            "adapters may have more numbers than the matrices.",
            cases=(EDGES,),
        ),
    ),
    hints=(
        "Which numbers of the model have a gradient? Which have Adam's moments?",
        "Three groups, each with its own bytes: matrices with an adapter, other frozen parameters, and the adapters.",
        "Frozen ones: their numbers times base, or times others. Trained ones: r (m + n) of each adapted matrix, or "
        "all numbers where r is None, times weights + gradients + states.",
    ),
    promises={
        "(m, n) of a matrix, (m,) of a vector": ("all_trained", "adapters"),
        "names of the matrices": ("whole_names",),
        "which may be none": ("edges",),
        "None: all parameters are trained": ("all_trained",),
        "all three of each number that is trained": ("all_trained", "adapters", "recipes"),
        "of each number in a frozen matrix that is adapted": ("small_base",),
        "of each number in another frozen parameter": ("small_base",),
        "not always whole, and may be 0": ("small_base", "recipes"),
        "not rounded": ("not_rounded",),
    },
)
