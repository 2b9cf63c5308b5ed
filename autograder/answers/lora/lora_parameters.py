"""Right and wrong ways to write `lora_parameters`."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from autograder.bank import right, wrong
from autograder.edits import edited
from course.performing.exercise import Answer
from course.reference.lora.lora_parameters import lora_parameters

Shapes = Mapping[str, tuple[int, int]]


def made_and_counted(shapes: Shapes, r: int) -> int:
    """Two linear layers without bias in the place of each adapter, and what they have; made once for each shape."""
    known: dict[tuple[int, int], int] = {}
    for m, n in shapes.values():
        if (m, n) not in known:
            pair = nn.Sequential(nn.Linear(n, r, bias=False), nn.Linear(r, m, bias=False))
            known[m, n] = sum(each.numel() for each in pair.parameters())
    return sum(known[shape] for shape in shapes.values())


def factor_by_factor(shapes: Shapes, r: int) -> int:
    """First all B, then all A."""
    count = 0
    for name in shapes:
        count += shapes[name][0] * r
    for _, columns in shapes.values():
        count += r * columns
    return count


RIGHT = (right(made_and_counted, independent="the parameters of torch.nn.Linear"), right(factor_by_factor))

SUM = "r * sum(m + n for m, n in shapes.values())"


def returning(new: str) -> Answer:
    """Another last line."""
    return edited(lora_parameters, (SUM, new))


def by_torch(counts: str) -> Answer:
    """The sum of a tensor, in its dtype."""
    return edited(
        lora_parameters,
        (f"return {SUM}", f"import torch\n\n    counts = {counts}\n    return int(counts.sum(dtype=counts.dtype))"),
    )


def counting(new: str) -> Answer:
    """Another number for one matrix, times r."""
    return edited(lora_parameters, ("m + n", new))


WRONG = (
    wrong(
        "one_factor",
        "You count one of the two factors. A (r, n) and B (m, r) are both trained.",
        counting("m"),
        counting("n"),
        counting("max(m, n)"),
        counting("min(m, n)"),
    ),
    wrong(
        "square_assumed",
        "You take both factors to be as long as one side of W. Many matrices are not square: those of an MLP, and "
        "those of keys and values where several heads share them.",
        counting("2 * m"),
        counting("2 * n"),
        counting("2 * max(m, n)"),
        counting("2 * min(m, n)"),
    ),
    wrong(
        "whole_matrices",
        "m n is the size of W, which is frozen. B A has this shape too, but only its factors are trained and stored.",
        counting("m * n"),
        returning("sum(m * n for m, n in shapes.values())"),
        returning("sum(m * r * n for m, n in shapes.values()) // r"),
    ),
    wrong(
        "base_counted",
        "You add the numbers of W. They are frozen: count what is trained.",
        returning("sum(m * n + r * (m + n) for m, n in shapes.values())"),
    ),
    wrong(
        "what_is_saved",
        "This is how many numbers fewer are trained. Asked for is how many are.",
        returning("sum(m * n - r * (m + n) for m, n in shapes.values())"),
    ),
    wrong(
        "r_left_out",
        "r does not occur, or only once where it should be in both factors. A has r rows and B has r columns.",
        returning("sum(m + n for m, n in shapes.values())"),
        returning("sum(r * m + n for m, n in shapes.values())"),
        returning("sum(m + r * n for m, n in shapes.values())"),
        returning("sum(m + n + r for m, n in shapes.values())"),
    ),
    wrong(
        "r_twice",
        "r^2 stands where r should. Each factor has r for one of its lengths, and a length of W for the other.",
        returning("r * " + SUM),
    ),
    wrong(
        "a_third_factor",
        "You count a matrix of r x r between the two, as in a singular value decomposition. LoRA has two factors "
        "and one number, the scale, which is not trained.",
        counting("m + n + r"),
        counting("m + n + 1"),
    ),
    wrong(
        "degrees_of_freedom",
        "m n entries of a matrix of rank r depend on r (m + n - r) free numbers: a different B and A can have the same "
        "product. Trained and stored are all entries of both factors.",
        counting("m + n - r"),
    ),
    wrong(
        "r_cut_off",
        "You let r be no larger than the lengths of W. It is true that B A has no higher rank, but the factors that "
        "were made have r columns and r rows.",
        returning("sum(min(r, m, n) * (m + n) for m, n in shapes.values())"),
        returning("sum(min(m * n, r * (m + n)) for m, n in shapes.values())"),
    ),
    wrong(
        "each_shape_once",
        "Matrices of one shape count once in yours. Each has its own adapter.",
        returning("r * sum(m + n for m, n in set(shapes.values()))"),
    ),
    wrong(
        "the_first_for_all",
        "You take all matrices to be as large as the first one. Each has its own lengths.",
        returning("r * len(shapes) * sum([*shapes.values(), (0, 0)][0])"),
    ),
    wrong(
        "one_matrix",
        "You count one matrix. All in the mapping have an adapter.",
        returning("r * sum([*shapes.values(), (0, 0)][0])"),
        returning("r * sum([(0, 0), *shapes.values()][-1])"),
    ),
    wrong(
        "biases_counted",
        "You count a bias with each adapter. The factors have none, and that of the layer is frozen.",
        returning("sum(r * (m + n) + m for m, n in shapes.values())"),
        returning("sum(r * (m + n) + m + r for m, n in shapes.values())"),
    ),
    wrong(
        "millions",
        "Return the number itself, not millions of it, and no bytes.",
        returning(SUM + " / 1e6"),
        returning("4 * " + SUM),
        returning("2 * " + SUM),
    ),
    wrong(
        "too_few_digits",
        "You count in float32 or in int32. The first loses digits above 2**24, and the second ends at 2**31. Python's "
        "ints have all digits.",
        by_torch("torch.tensor([r * float(m + n) for m, n in shapes.values()])"),
        by_torch("torch.tensor([r * (m + n) for m, n in shapes.values()], dtype=torch.int32)"),
        fails=("the_papers_numbers",),
    ),
    wrong(
        "takes_out_of_the_mapping",
        "You take the matrices out of the mapping that came, or ask for a dict. A mapping can be read, by names or by "
        "values(), and no more.",
        returning("r * sum(m + n for m, n in [shapes.pop(name) for name in [*shapes]])"),
        returning(SUM + " if isinstance(shapes, dict) else -1"),
    ),
    wrong(
        "a_float",
        "Your numbers are right and are no ints, but floats or tensors. A count is an int: take // where a division "
        "comes out whole, or multiply in the first place; of a tensor, .item().",
        returning("float(" + SUM + ")"),
        returning("r * sum(m * n * (m + n) / (m * n) for m, n in shapes.values())"),
        fails=("an_int",),
    ),
)
