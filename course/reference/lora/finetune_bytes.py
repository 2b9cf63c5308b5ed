"""What fine-tuning holds from step to step, activations aside.

                       weights   gradients   states of Adam
frozen, adapted        base          -             -
frozen, not adapted    others        -             -
trained                weights   gradients      states
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping


def finetune_bytes(
    shapes: Mapping[str, tuple[int, ...]], adapted: Collection[str], r: int | None, recipe: Mapping[str, float]
) -> float:
    """Bytes of weights, gradients and states; with r None all is trained.

    recipe  bytes of a number: "weights", "gradients", "states" of a trained one, "base" and "others" of a frozen one
            in a matrix with an adapter, and elsewhere
    Source: Dettmers et al. (arXiv 2305.14314), section 2, for the three parts; the paper's 4-bit base is one recipe.
    """
    numbers = {name: math.prod(shape) for name, shape in shapes.items()}
    trained = recipe["weights"] + recipe["gradients"] + recipe["states"]
    if r is None:
        return sum(numbers.values()) * trained
    base = sum(numbers[name] for name in adapted)
    others = sum(numbers.values()) - base
    adapters = sum(r * sum(shapes[name]) for name in adapted)
    return base * recipe["base"] + others * recipe["others"] + adapters * trained
