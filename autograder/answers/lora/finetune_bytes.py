"""Right and wrong ways to write `finetune_bytes`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from functools import partial

import torch

from autograder.bank import right, wrong
from autograder.edits import edited
from course.performing.exercise import Answer
from course.reference.lora.finetune_bytes import finetune_bytes

Shapes = Mapping[str, tuple[int, ...]]
Recipe = Mapping[str, float]


def one_after_another(shapes: Shapes, adapted: Collection[str], r: int | None, recipe: Recipe) -> Fraction:
    """Tensors as large as each parameter and each factor are made and asked for their size; exact fractions."""
    held = Fraction(0)

    def hold(kinds: list[str], *shape: int) -> None:
        nonlocal held
        held += sum(torch.empty(shape, dtype=torch.int8).nbytes * Fraction(recipe[kind]) for kind in kinds)

    learning = ["weights", "gradients", "states"]
    for name, shape in shapes.items():
        frozen = ["base"] if name in adapted else ["others"]
        hold(learning if r is None else frozen, *shape)
        if r is not None and name in adapted:
            hold(learning, shape[0], r)
            hold(learning, r, shape[1])
    return float(held)  # type: ignore[return-value]


def part_by_part(shapes: Shapes, adapted: Collection[str], r: int | None, recipe: Recipe) -> float:
    """Weights of all, then what only trained numbers have."""
    counts = {name: torch.Size(shape).numel() for name, shape in shapes.items()}
    if r is None:
        trained, weights = sum(counts.values()), 0.0
    else:
        trained = sum((shapes[name][0] + shapes[name][1]) * r for name in shapes if name in adapted)
        weights = sum(count * recipe["base" if name in adapted else "others"] for name, count in counts.items())
    return weights + sum(trained * recipe[part] for part in ("weights", "gradients", "states"))


RIGHT = (right(one_after_another, independent="the bytes of tensors"), right(part_by_part))

edit = partial(edited, finetune_bytes)
TRAINED = 'recipe["weights"] + recipe["gradients"] + recipe["states"]'
ALL, ADAPTER = "sum(numbers.values()) * trained", "r * sum(shapes[name])"
BASE, OTHERS, LAST = 'base * recipe["base"]', 'others * recipe["others"]', "adapters * trained"
ADAPTED = "base = sum(numbers[name] for name in adapted)"
NONE = "if r is None:\n        return sum(numbers.values()) * trained\n"


def held(base: str = BASE, others: str = OTHERS, adapters: str = LAST) -> Answer:
    """Another sum at the end."""
    return edit((f"{BASE} + {OTHERS} + {LAST}", " + ".join(part for part in (base, others, adapters) if part)))


def names(those: str) -> Answer:
    """Other names are adapted."""
    return edit((ADAPTED, f"adapted = [{those}]\n    {ADAPTED}"))


GRADIENTS, STATES = ("* (recipe['{}'] + recipe['" + name + "'])" for name in ("gradients", "states"))
BOTH = "* (recipe['{}'] + recipe['gradients'] + recipe['states'])"

WRONG = (
    wrong(
        "states_of_frozen_weights",
        "Adam's states of frozen weights are in your sum. The optimizer is given the adapter alone, and has two "
        "moments for each number in it.",
        held(base="base " + STATES.format("base"), others="others " + STATES.format("others")),
        held(base="base " + STATES.format("base")),
    ),
    wrong(
        "gradients_of_frozen_weights",
        "A frozen weight has requires_grad False, and backward makes no gradient for it. The gradient of its layer's "
        "input is an activation and gone again.",
        held(base="base " + GRADIENTS.format("base"), others="others " + GRADIENTS.format("others")),
        held(base="base " + GRADIENTS.format("base")),
        held(base="base " + BOTH.format("base"), others="others " + BOTH.format("others")),
        held(base="base " + BOTH.format("base")),
    ),
    wrong(
        "others_trained",
        "Embeddings, norms and biases without an adapter are frozen too: they have weights and nothing else.",
        held(others="others " + BOTH.format("others")),
        held(others="others * trained"),
    ),
    wrong(
        "adapters_left_out",
        "Your adapters have no weights, or are missing altogether. They are few, but they are what is trained.",
        held(adapters=""),
        held(adapters='adapters * (recipe["gradients"] + recipe["states"])'),
    ),
    wrong(
        "base_left_out",
        "Only the adapters are in your sum. The base does not learn, but every step computes with it.",
        held(base="", others=""),
        held(base=""),
    ),
    wrong(
        "others_left_out",
        "Parameters without an adapter are missing: embeddings, norms, biases. Each forward needs them.",
        held(others=""),
    ),
    wrong(
        "adapters_in_place_of_matrices",
        "You count an adapter in the place of its matrix's numbers. It stands beside them: y = x W' + s (x A') B'.",
        held(base="(base - adapters) * recipe['base']"),
    ),
    wrong(
        "whole_matrices_trained",
        "An adapter has r (m + n) numbers: those of its two factors. m n would be their product.",
        edit((ADAPTER, "numbers[name]")),
        edit((ADAPTER, "r * numbers[name]")),
    ),
    wrong(
        "factors_by_one_length",
        "A (r, n) and B (m, r) have r (m + n) numbers together. A matrix that is not square has two lengths.",
        edit((ADAPTER, "2 * r * shapes[name][0]")),
        edit((ADAPTER, "2 * r * shapes[name][1]")),
        edit((ADAPTER, "r * shapes[name][0]")),
        edit((ADAPTER, "r * shapes[name][1]")),
    ),
    wrong(
        "one_adapter",
        "You count one adapter. Each name in `adapted` has its own.",
        edit(("for name in adapted)\n    return", "for name in [*adapted][:1])\n    return")),
    ),
    wrong(
        "base_for_all_frozen",
        'Only matrices with an adapter have "base" bytes. Quantized bases leave embeddings, norms and biases in 16 '
        "bits.",
        held(others='others * recipe["base"]'),
    ),
    wrong(
        "others_for_the_base",
        'The numbers of adapted matrices have "base" bytes each, not those of the other parameters.',
        held(base='base * recipe["others"]'),
    ),
    wrong(
        "base_in_the_dtype_of_adapters",
        'The bytes called "weights" are those of numbers that are trained. Frozen ones have "base" or "others".',
        held(base='base * recipe["weights"]', others='others * recipe["weights"]'),
    ),
    wrong(
        "adapters_in_4_bits",
        "Your adapters are stored like the base. They are trained: a step of Adam is far smaller than a step between "
        'numbers of 4 bits. Theirs are the "weights" of the recipe.',
        held(adapters='adapters * (recipe["base"] + recipe["gradients"] + recipe["states"])'),
    ),
    wrong(
        "states_once",
        "Your states have as many bytes as the gradients, or are missing. The recipe says how many they are.",
        edit((TRAINED, TRAINED.replace("states", "gradients"))),
        edit((TRAINED, 'recipe["weights"] + recipe["gradients"]')),
    ),
    wrong(
        "gradients_left_out",
        "You left the gradients of what is trained out, or take them to be as large as weights. Their bytes stand in "
        "the recipe.",
        edit((TRAINED, 'recipe["weights"] + recipe["states"]')),
        edit((TRAINED, TRAINED.replace("gradients", "weights"))),
    ),
    wrong(
        "states_doubled",
        'Adam\'s two moments are both in "states": do not multiply by 2 again.',
        edit((TRAINED, TRAINED.replace('recipe["states"]', '2 * recipe["states"]'))),
    ),
    wrong(
        "bytes_fixed",
        "You count 4 + 4 + 8 bytes, or a base of half a byte or 2. What a number takes stands in the recipe.",
        edit((TRAINED, "4 + 4 + 8")),
        held(base="base * 0.53125"),
        held(others="others * 2"),
    ),
    wrong(
        "adapters_beside_full_training",
        "Where r is None all parameters are trained themselves, and there are no adapters, whatever stands in "
        "`adapted`.",
        edit((NONE, "if r is None and not adapted:\n        return sum(numbers.values()) * trained\n    r = r or 1\n")),
    ),
    wrong(
        "full_training_of_some",
        "Full fine-tuning trains every parameter, not only the matrices, nor only those named in `adapted`. All take "
        "part with weights, gradients and states.",
        edit((ALL, "sum(numbers[name] for name in shapes if len(shapes[name]) > 1) * trained")),
        edit((ALL, "sum(numbers[name] for name in adapted) * trained")),
    ),
    wrong(
        "full_training_of_a_small_base",
        'What is trained has "weights" bytes. Numbers of 4 bits cannot be trained in place.',
        edit(
            (
                ALL,
                "sum(numbers.values()) * (trained - recipe['weights'])"
                " + sum(numbers[name] * recipe['base' if name in adapted else 'others'] for name in numbers)",
            )
        ),
    ),
    wrong(
        "part_of_a_name",
        "You take a parameter to be adapted where its name is a part of a name in `adapted`, or the other way round. "
        "Only a whole name counts: `name in adapted`.",
        names("name for name in shapes if any(name in each for each in adapted)"),
        names("name for name in shapes if any(each in name for each in adapted)"),
        names("name for name in shapes if name.startswith(tuple(adapted))"),
        names("name for name in shapes if name.endswith(tuple(adapted))"),
    ),
    wrong(
        "zero_taken_for_missing",
        "A recipe may say 0 bytes, and you take that for a missing entry and use another one. `or` cannot tell them "
        "apart.",
        held(base='base * (recipe["base"] or recipe["others"])'),
        held(base='base * (recipe["base"] or recipe["weights"])'),
        held(others='others * (recipe["others"] or recipe["base"])'),
    ),
    wrong(
        "r_cut_off",
        "You let r be no larger than the lengths of the matrix. The factors that were made have r columns and r rows.",
        edit((ADAPTER, "min(r, *shapes[name]) * sum(shapes[name])")),
    ),
    wrong(
        "rounded",
        "Bytes of a number need not be whole, and you round them: half a byte becomes 0 or 1. Multiply first, and do "
        "not round.",
        held(base='base * int(recipe["base"])'),
        held(base='base * round(recipe["base"] + 0.001)'),
        held(base="base * -(-recipe['base'] // 1)"),
        edit((ALL, f"round({ALL})"), (f"{BASE} + {OTHERS} + {LAST}", f"round({BASE} + {OTHERS} + {LAST})")),
        edit((ALL, f"int({ALL})"), (f"{BASE} + {OTHERS} + {LAST}", f"int({BASE} + {OTHERS} + {LAST})")),
        held(base='int(base * recipe["base"])'),
        edit((ALL, f"__import__('torch').tensor({ALL}, dtype=__import__('torch').float32).item()")),
    ),
    wrong(
        "gigabytes",
        "Return bytes, neither GB nor MiB nor bits.",
        edit((ALL, f"{ALL} / 1e9"), (LAST, f"{LAST} / 1e9"), (BASE, f"{BASE} / 1e9"), (OTHERS, f"{OTHERS} / 1e9")),
        edit(
            (ALL, f"{ALL} / 2**20"), (LAST, f"{LAST} / 2**20"), (BASE, f"{BASE} / 2**20"), (OTHERS, f"{OTHERS} / 2**20")
        ),
        edit((ALL, f"{ALL} * 8"), (LAST, f"{LAST} * 8"), (BASE, f"{BASE} * 8"), (OTHERS, f"{OTHERS} * 8")),
    ),
)
