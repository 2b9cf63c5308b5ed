"""`kashin_split(x, q, steps)`: x = u + Q v, with small entries in both factors.

Values are compared after a few steps, and in float64 after 20, of which none hangs on a sign or a choice that roundings
could turn. After many the residual is as small as roundings: they are taken in float64, and what is judged is what is
left.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from course.performing.compare import EPS, case_dtype
from course.performing.draws import normal
from course.performing.exercise import Case, Exercise, Inputs, Property, Values, in_the_dtype_of, one_call
from course.performing.forms import offset, strided, times, transposed

FIRST = ("one step in its own basis", "one step in the other basis")
DOUBLE = "in float64"
FEW = ("a random basis", "Hadamard's basis", "a basis of cosines", DOUBLE)
MATRIX, ROW, SPARSE, IDENTITY = "a matrix", "a matrix of one row", "signs of 0", "the same basis twice"
OTHER_SIGN = "a sign of 0 in the other basis"
ONE_HOT, NOTHING = "one number alone", ("no step", "all zeros")
MANY = ("many steps, random", "many steps, Hadamard", "many steps, cosines")
LARGEST = 3.0  # times |x| / sqrt(n); of x itself it is above 3.5 in these cases
LEFT = 0.01  # of |x|
SMALL = 0.1  # of x: the numbers of a factor that is smaller have the roundings of the other one
CLEAR = 1e-3  # of the mean absolute value: thousands of roundings of float32


def cases(rng: torch.Generator) -> list[Case]:
    """After many steps who stays in one basis has missed x: in the random basis x has a large entry in both. There are
    few more steps than that takes: later a wrong answer's numbers come so near to 0 that processors choose their sign.
    """
    n = 16

    def drawn(*shape: int) -> Tensor:
        return normal(rng, *shape, dtype=torch.float64)

    def flat(*shape: int) -> Tensor:
        return (1 + 0.2 * drawn(*shape)) * torch.where(drawn(*shape) > 0, 1.0, -1.0)

    def turn(size: int = n) -> Tensor:
        q: Tensor = torch.linalg.qr(drawn(size, size))[0]
        return q

    def spiky(size: int = n) -> Tensor:
        return 0.3 * drawn(size) + 6 * torch.nn.functional.one_hot(torch.tensor(2), size)

    def agreeing(size: int) -> tuple[Tensor, Tensor]:
        """The basis with the larger 1-norm has the larger entry too: else who looks at this takes the smaller norm."""
        while True:
            x, q = drawn(size), turn(size)
            ratios = [float(x.norm(p=p) / (x @ q).norm(p=p)) for p in (1, math.inf)]
            if min(ratios) > 1.05 or max(ratios) < 0.95:
                return x, q

    def case(name: str, x: Tensor, q: Tensor, steps: int) -> Case:
        dtype = torch.float64 if name in (*MANY, DOUBLE, *NOTHING) else torch.float32
        return Case(name=name, inputs={"x": x.to(dtype), "q": q.to(dtype), "steps": steps})

    def settled(name: str, draw: Callable[[], tuple[Tensor, Tensor]], steps: int) -> Case:
        while True:
            x, q = draw()
            *factors, nearest = split(x, q, steps)
            sizes = [float(each.abs().max() / x.abs().max()) for each in factors]
            if nearest >= CLEAR and not any(0 < size < SMALL for size in sizes):
                return case(name, x, q, steps)

    walsh = torch.ones(1, 1, dtype=torch.float64)
    for _ in range(4):
        walsh = torch.kron(torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64), walsh)
    walsh, at = walsh / 4, torch.arange(n, dtype=torch.float64)
    cosines = torch.cos(math.pi / n * (at[:, None] + 0.5) * at) * math.sqrt(2 / n)
    cosines[:, 0] = 1 / math.sqrt(n)
    sparse, other = flat(n), turn()
    sparse[[4, 9]] = torch.tensor([0.0, -0.0], dtype=torch.float64)
    while sparse.abs().sum() < 1.05 * (sparse @ other).abs().sum():  # else no sign of 0 is looked at
        other = turn()
    alone = torch.zeros(n, dtype=torch.float64)
    alone[3] = 2.5

    def rows() -> tuple[Tensor, Tensor]:
        return torch.stack([spiky(), 0.5 * flat(n), 2 * flat(n), flat(n)]), turn()

    wide, several = turn(64), torch.zeros(3, n, dtype=torch.float64)
    while tied_in_a_row(several, walsh, 14) or left(several, walsh, 13) > 0.9 * LEFT:
        several = torch.stack([spiky() + drawn(n), drawn(n), drawn(n)])
    return [
        settled("one step in its own basis", lambda: (flat(n), turn()), 1),
        settled("one step in the other basis", lambda: (spiky(), turn()), 1),
        settled("a random basis", lambda: agreeing(12), 5),
        settled("Hadamard's basis", lambda: (drawn(n), walsh), 5),
        settled("a basis of cosines", lambda: (drawn(n), cosines), 4),
        settled(DOUBLE, lambda: agreeing(12), 20),
        settled("a matrix", rows, 4),
        settled(ROW, lambda: (spiky()[None], turn()), 4),
        case("signs of 0", sparse, other, 1),
        settled("the same basis twice", lambda: (drawn(n), torch.eye(n, dtype=torch.float64)), 4),
        settled("one number alone", lambda: (alone, turn()), 4),
        case("no step", drawn(n), turn(), 0),
        case("all zeros", torch.zeros(n), turn(), 3),
        case("many steps, random", spiky(64) + wide @ spiky(64), wide, 25),
        case("many steps, Hadamard", several, walsh, 14),
        case("many steps, cosines", spiky(), cosines, 25),
        case(OTHER_SIGN, torch.tensor([3.0, 1.0, 0.0]), torch.tensor([[0.6, 0.8, 0], [0.8, -0.6, 0], [0, 0, 1]]), 1),
    ]


def split(x: Tensor, q: Tensor, steps: int) -> tuple[Tensor, Tensor, float]:
    """u, v, and how near to a tie a sign or a choice came at most, over the mean absolute value.

    Zeros and equal bases are ties on purpose.
    """
    factors, r, same = [torch.zeros_like(x), torch.zeros_like(x)], x.clone(), torch.equal(q, torch.eye(len(q)).to(q))
    nearest = math.inf
    for _ in range(steps):
        seen = (r, r @ q)
        own, other = (float(each.abs().mean()) for each in seen)
        basis, size = (0, own) if own >= other or same else (1, other)
        here = seen[basis]
        gaps = [*here[here != 0].abs().flatten().tolist(), *([] if same else [abs(own - other)])]
        nearest = min(nearest, min(gaps, default=math.inf) / (size or 1.0))
        part = torch.full_like(here, size).copysign(here + 0.0)
        factors[basis] += part
        r = r - (part @ q.T if basis else part)
    u, v = factors
    return u, v, nearest


def left(x: Tensor, q: Tensor, steps: int) -> float:
    """Of |x|, what is not in u and v after so many steps."""
    u, v, _ = split(x, q, steps)
    return float((x - u - v @ q.T).norm() / x.norm())


def tied_in_a_row(x: Tensor, q: Tensor, steps: int) -> bool:
    """Whether who takes a mean for each row (rows, n) meets a number so small that processors choose its sign."""
    r = x
    for _ in range(steps):
        seen = (r, r @ q)
        basis = int(seen[1].abs().sum() > seen[0].abs().sum())
        size = seen[basis].abs().mean(-1, keepdim=True)
        if not bool((seen[basis].abs() > 1e-6 * size).all()):
            return True
        part = size * seen[basis].sign()
        r = r - (part @ q.T if basis else part)
    return False


def _numbers(inputs: Inputs, got: Values) -> tuple[Tensor, Tensor] | None:
    """u and v in float64, or None where they are not like x."""
    u, v = got["u"], got["v"]
    if not isinstance(u, Tensor) or not isinstance(v, Tensor) or not u.shape == v.shape == inputs["x"].shape:
        return None
    return u.detach().double(), v.detach().double()


def _sums_to_x(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: the residual is small, as is ours."""
    factors, x = _numbers(inputs, got), inputs["x"].detach().double()
    if factors is None:
        return "u and v must have the shape of x"
    left = float((x - factors[0] - factors[1] @ inputs["q"].detach().double().T).norm() / x.norm())
    allowed = LEFT + 64 * EPS[case_dtype(inputs)]
    return None if left <= allowed else f"u + Q v misses x by {left:.2g} of its length, where {LEFT} are allowed"


def _small_entries(inputs: Inputs, got: Values, expected: Values) -> str | None:
    """What `Property.holds` takes: x = u + Q v, and no entry of either is large."""
    if sentence := _sums_to_x(inputs, got, expected):
        return sentence
    x, factors = inputs["x"].detach().double(), _numbers(inputs, got)
    assert factors is not None
    unit = float(x.norm()) / math.sqrt(x.numel())
    for name, each in zip("uv", factors, strict=True):
        if not (largest := float(each.abs().max()) / unit) <= LARGEST:
            return f"the largest entry of {name} is {largest:.2f} of |x| / sqrt(n), above {LARGEST}"
    return None


EXERCISE = Exercise(
    id="quantization.kashin_split",
    cases=cases,
    probe=one_call("x", "q", "steps", gives=("u", "v")),
    properties=(
        Property(
            "one_step",
            "One step adds the projection of the residual on its sign vector: the mean of its absolute values, with "
            "the signs, in the basis where its 1-norm is larger.",
            points=2,
            cases=FIRST,
        ),
        Property(
            "few_steps",
            "After each step the residual is what is left: x - u - Q v, seen in both bases anew.",
            points=2,
            cases=FEW,
        ),
        Property(
            "a_matrix_is_one_vector",
            "The 1-norms of a matrix sum over all of its rows, and all rows take the same number in the same basis.",
            cases=(MATRIX, ROW),
            needs=("one_step",),
        ),
        Property(
            "sums_to_x",
            "After many steps x = u + Q v. Each step must take something off the residual.",
            holds=_sums_to_x,
            cases=MANY,
        ),
        Property(
            "small_entries",
            "The largest entry of u or of v is as large as one of x: nothing was gained. A few large entries are small "
            "ones in the other basis.",
            points=2,
            holds=_small_entries,
            cases=MANY,
        ),
        Property(
            "ties",
            "A sign of 0 counts as 1, so that a sign vector has the length sqrt(n). Where both norms are equal, "
            "the residual is taken as it is.",
            cases=(SPARSE, IDENTITY, ONE_HOT, OTHER_SIGN),
            needs=("one_step",),
        ),
        Property(
            "nothing_to_split",
            "Without a step, or where x is all zeros, both factors are zeros like x.",
            cases=NOTHING,
            needs=("one_step",),
        ),
        Property(
            "dtype_of_x",
            "Both factors come in the dtype of x.",
            holds=in_the_dtype_of("x", "u", "v"),
            cases=(*FIRST, DOUBLE, *MANY, *NOTHING),
            needs=("one_step",),
        ),
    ),
    hints=(
        "What is the projection of (3, 1) on (1, 1)? And of any vector on the vector of its signs?",
        "The projection takes |r|_1^2 / n off the squared length of r. In which basis is that more?",
        "In a loop: r as it is, and r @ q. Compare the sums of their absolute values. Mean absolute value times "
        "signs: add it to u, or to v, and take it off r, turned back by q.T if it belongs to v.",
    ),
    keeps=("x", "q"),
    forms=(
        times("small numbers", 2.0**-40, "x", of="a random basis"),
        strided("x", "q", of="a matrix"),
        transposed("x", "q", of="a matrix"),
        offset("x", of="a random basis", name="a piece of a longer tensor"),
    ),
    promises={
        "the matrix counts as one vector": ("a_matrix_is_one_vector", ROW),
        "float32 or float64": ("dtype_of_x", "few_steps", DOUBLE),
        "in the dtype of x": ("dtype_of_x", DOUBLE),
        "not changed": ("arguments_unchanged",),
        "at least 0": ("no step",),
        "both like x": ("dtype_of_x", "few_steps"),
        "Where its 1-norm is larger": ("one_step",),
        "as it is, if both are equal": ("ties",),
        "1 for 0": ("ties",),
    },
)
