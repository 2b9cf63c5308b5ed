"""Right and wrong ways to write `largest_batch`."""

from __future__ import annotations

from functools import partial

import numpy as np

from autograder.bank import Alternative, right, wrong
from autograder.edits import edited
from course.reference.optimizers.largest_batch import largest_batch

Numbers = dict[str, int]


def one_after_the_other(memory: Numbers, wanted: int, clock: Numbers) -> tuple[int, int, int]:
    """Fills the memory multiple by multiple, and splits the examples of every size that fits."""
    m = memory
    used = m["numbers"] * m["param"] + m["numbers"] * m["grad"] + m["numbers"] * m["state"]
    size, found = 0, []
    while used + m["multiple"] * m["example"] <= m["budget"]:
        used, size = used + m["multiple"] * m["example"], size + m["multiple"]
        parts = [min(size, wanted - first) for first in range(0, wanted, size)]
        waves = sum(len(range(0, part, clock["wave"])) for part in parts)
        found.append((len(parts) * clock["start"] + waves * clock["seconds"], size, len(parts)))
    if not found:
        raise ValueError("nothing fits")
    return size, *min(found)[1:]


def all_at_once(memory: Numbers, wanted: int, clock: Numbers) -> tuple[np.integer, np.integer, np.integer]:
    """The times of all sizes in one array: what is returned are NumPy's integers."""
    model = memory["numbers"] * (memory["param"] + memory["grad"] + memory["state"])
    largest, step = (memory["budget"] - model) // memory["example"], memory["multiple"]
    sizes = np.arange(step, largest + 1, step)
    if not len(sizes):
        raise ValueError("nothing fits")
    full, rest = np.divmod(wanted, sizes)
    waves = full * -(-sizes // clock["wave"]) - (-rest // clock["wave"])
    counts = full + (rest > 0)
    best = np.argmin(counts * clock["start"] + waves * clock["seconds"])
    return sizes[-1], sizes[best], counts[best]


batch = partial(edited, largest_batch)

EACH = 'memory["param"] + memory["grad"] + memory["state"]'
SIZES = "range(multiple, largest + 1, multiple)"
CHOSEN = f"min({SIZES}, key=lambda size: _step(size, wanted, clock))"
WHOLE = "wanted // size * _part(size, clock) + _part(wanted % size, clock)"
CEILING = 'math.ceil(count / clock["wave"])'

RIGHT = (
    right(one_after_the_other, independent="counting up: nothing is divided"),
    right(all_at_once),
    Alternative(name="the_largest_of_equals", answer=batch((SIZES, "range(largest, 0, -multiple)"))),
)

WRONG = (
    wrong(
        "part_of_the_model_forgotten",
        "Your largest batch is too large: parameters, gradients and optimizer state lie in memory together while the "
        "activations are kept. Take all three off the budget.",
        batch((EACH, 'memory["param"] + memory["grad"]')),
        batch((EACH, 'memory["param"] + memory["state"]')),
        batch((EACH, 'memory["grad"] + memory["state"]')),
        batch((EACH, "0")),
    ),
    wrong(
        "multiples_overlooked",
        "Your largest batch is not a multiple of the allowed step, or is rounded up to one that does not fit. Round "
        "down, and try only multiples.",
        batch((SIZES, "range(1, largest + 1)")),
        batch(("return largest,", 'return room // memory["example"],')),
        batch(("return largest,", "return largest + multiple,")),
    ),
    wrong(
        "full_is_taken_for_too_much",
        "What fills the budget to the last byte still fits.",
        batch(("= room //", "= (room - 1) //")),
        fails=("the_last_byte",),
    ),
    wrong(
        "one_multiple_refused",
        "You refuse a budget in which one multiple fits and no second one. That one is the largest.",
        batch(("largest < multiple", "largest <= multiple")),
    ),
    wrong(
        "looks_at_few_sizes",
        "You look at some of the sizes: up to a bound of your own, or the largest ones. Every multiple up to the "
        "largest is allowed, and any of them may be the fastest.",
        batch((SIZES, "range(multiple, min(largest, 16 * multiple) + 1, multiple)")),
        batch((SIZES, "range(max(multiple, largest - 6 * multiple), largest + 1, multiple)")),
    ),
    wrong(
        "fewest_micro_batches",
        "You take the fewest micro-batches. That pays the fewest starts, and may pay more waves: one that is begun "
        "takes as long as a full one.",
        batch((CHOSEN, "largest")),
        batch((CHOSEN, CHOSEN.replace("_step(", "math.ceil(wanted / size) * 10**9 + _step("))),
        batch((CEILING, 'count / clock["wave"]')),
    ),
    wrong(
        "starts_or_waves_miscounted",
        "Every micro-batch takes a start, and every wave that is begun its whole time: count both for each of them.",
        batch(('clock["start"] + ', "")),
        batch((CEILING, 'count // clock["wave"]')),
        same_as=("fewest_micro_batches",),
    ),
    wrong(
        "last_one_miscounted",
        "What is left over after the full micro-batches is one more, and a smaller one: its time counts, with its "
        "start, and neither as if it were full nor rounded up to a multiple. Look at the time of the whole step.",
        batch((WHOLE, "_part(size, clock) / size")),
        batch((WHOLE, "math.ceil(wanted / size) * _part(size, clock)")),
        batch((" + _part(wanted % size, clock)", "")),
        batch((WHOLE, f"{WHOLE} - bool(wanted % size) * clock['start']")),
        batch((CHOSEN, CHOSEN.replace("wanted", "wanted + -wanted % multiple"))),
        same_as=("fewest_micro_batches", "starts_or_waves_miscounted"),
    ),
    wrong(
        "only_what_comes_out_even",
        "You try only sizes that divide the global batch, or only those that fill their waves. A smaller last "
        "micro-batch, or a wave that is not full, may take less time than one start more: compare all multiples.",
        batch((SIZES, f"[size for size in {SIZES} if wanted % size == 0] or {SIZES}")),
        batch((SIZES, f"[size for size in {SIZES} if size % clock['wave'] == 0] or {SIZES}")),
    ),
    wrong(
        "none_above_the_global_batch",
        "You try no size above the global batch. One micro-batch of such a size holds all of it, and pays one start.",
        batch((SIZES, "range(multiple, min(largest, max(wanted, multiple)) + 1, multiple)")),
    ),
    wrong(
        "full_ones_counted",
        "Your size is right, but you count only its full micro-batches. What is left over is one more.",
        batch(("size, math.ceil(wanted / size)", "size, wanted // size")),
        fails=("number_of_micro_batches",),
    ),
    wrong(
        "nothing_refused",
        "Your numbers are right, but a budget in which no multiple fits is not refused with a ValueError.",
        batch(("raise BadArgument(", "return 0, 0, len(")),
        fails=("refusals",),
    ),
)
