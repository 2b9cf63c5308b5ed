"""References of unit 02: what torch does, step by step; and what torch has no counterpart for.

What an exercise judges of its own reference (values, refusals, arguments that stay as they are) is not tested again.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from course.errors import BadArgument
from course.exercises.optimizers.gradient_noise_scale import EXACT
from course.exercises.optimizers.gradient_noise_scale import EXERCISE as NOISE_SCALE
from course.exercises.optimizers.orthogonalize import HIGHEST, LOWEST
from course.reference.optimizers import adaptive_step as adaptive
from course.reference.optimizers.adafactor import adafactor_step
from course.reference.optimizers.adamw_step import adamw_step
from course.reference.optimizers.adaptive_step import ACCUMULATORS, PIECE, adaptive_step
from course.reference.optimizers.batched import adamw_step_foreach, sgd_step_foreach
from course.reference.optimizers.clip_grad_norm_ import clip_grad_norm_
from course.reference.optimizers.factored_second_moment import factored_second_moment
from course.reference.optimizers.gradient_noise_scale import gradient_noise_scale
from course.reference.optimizers.minibatch_gradient import minibatch_gradient
from course.reference.optimizers.muon import muon_step
from course.reference.optimizers.optimizer_bytes import NAMES, optimizer_bytes
from course.reference.optimizers.orthogonalize import A, B, C, orthogonalize
from course.reference.optimizers.sgd_step import sgd_step
from course.reference.optimizers.warmup_cosine import warmup_cosine

STEPS = 200
ON_CUDA = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")]
F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
MATRICES = ((6, 3), (3, 6), (4, 4))
SHAPES = ((4, 3), (5,), (), (2, 3, 4), (1, 4))


# --- against torch.optim, over 200 steps of given gradients -------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A reference and torch's counterpart.

    ours     step(params, grads, state, **options), in place
    theirs   optimizer(params, **options)
    options  what both are given, in turn
    late     whether some parameters have no gradient in the first step either
    state    torch's name of what is kept, by ours; what torch keeps besides is in `besides`
    close    how near all must be, by dtype; where none is given, torch's own measure
    on_cuda  (dtypes, how many of the options) that are compared on a GPU too
    """

    ours: Callable[..., None]
    theirs: Callable[..., torch.optim.Optimizer]
    options: Sequence[Mapping[str, object]]
    dtypes: Sequence[torch.dtype] = (F32, F64)
    shapes: Sequence[tuple[int, ...]] = SHAPES
    late: bool = True
    state: Mapping[str, str] = field(default_factory=dict)
    besides: tuple[str, ...] = ()
    close: Callable[[torch.dtype], float | None] = lambda dtype: None
    on_cuda: tuple[Sequence[torch.dtype], int] = ((), 0)


def by_rule(rule: str) -> Callable[..., None]:
    """`adaptive_step` for a list of parameters."""

    def step(params, grads, state, **options):
        for param, grad, kept in zip(params, grads, state, strict=True):
            if grad is not None:
                adaptive_step(rule, param, grad, kept, **options)

    return step


def renamed(optimizer, name: str) -> Callable[..., torch.optim.Optimizer]:
    """An optimizer of torch that takes our `decay` under torch's name; without one, it takes none."""

    def make(params, lr: float, decay: float, eps: float, **others: object) -> torch.optim.Optimizer:
        return optimizer(params, lr=lr, eps=eps, **({name: decay} if name else {}), **others)

    return make


SGD = {
    "theirs": torch.optim.SGD,
    "dtypes": (F32, F64, BF16),
    "on_cuda": ((F32, F64, BF16), 6),
    "late": False,  # torch's foreach form takes a step that makes buffers tensor by tensor, with other roundings
    "state": {"momentum": "momentum_buffer"},
    "options": [
        {"lr": 0.01, **each}
        for each in (
            {},
            {"weight_decay": 0.1},
            {"momentum": 0.9},
            {"momentum": 0.9, "weight_decay": 0.1},
            {"momentum": 0.9, "nesterov": True},
            {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1},
        )
    ],
}
ADAMW = {
    "theirs": torch.optim.AdamW,
    "dtypes": (F32, F64, BF16),
    "on_cuda": ((F32, F64, BF16), 5),
    "state": {"step": "step", "m": "exp_avg", "v": "exp_avg_sq", "v_max": "max_exp_avg_sq"},
    "options": [
        {"lr": 0.01, **each}
        for each in (
            {},
            {"weight_decay": 0.0},
            {"betas": (0.5, 0.9), "eps": 0.1},
            {"betas": (0.0, 0.0), "weight_decay": 0.5},
            {"betas": (0.9, 0.9), "amsgrad": True},
        )
    ],
}
ADAM = {"options": [{"lr": 0.01, "weight_decay": 0.0, "amsgrad": each} for each in (False, True)]}
ADAPTIVE = {
    "options": [{"lr": 0.05, "decay": 0.8, "eps": eps} for eps in (1e-8, 1e-3)],
    "close": lambda dtype: 0.0,
    "besides": ("step",),
}
MUON = {
    "ours": muon_step,
    "theirs": torch.optim.Muon,
    "shapes": MATRICES,
    "state": {"momentum_buffer": "momentum_buffer"},
    "close": lambda dtype: 0.0,
}
RMSPROP = {"lr": 0.01, "decay": 0.9, "eps": 1e-8}
MOVES = ({"momentum": 0.9}, {"centered": True}, {"momentum": 0.5, "centered": True})
PAIRS = {
    "sgd": Pair(ours=sgd_step, **SGD),
    "sgd, foreach": Pair(ours=sgd_step_foreach, **{**SGD, "theirs": partial(torch.optim.SGD, foreach=True)}),
    "adamw": Pair(ours=adamw_step, **ADAMW),
    "adamw, foreach": Pair(ours=adamw_step_foreach, **{**ADAMW, "theirs": partial(torch.optim.AdamW, foreach=True)}),
    "adam": Pair(ours=adamw_step, **{**ADAMW, **ADAM, "theirs": torch.optim.Adam, "on_cuda": ((), 0)}),
    "adagrad": Pair(
        ours=by_rule("adagrad"), theirs=renamed(torch.optim.Adagrad, ""), state={"squares": "sum"}, **ADAPTIVE
    ),
    "rmsprop": Pair(
        ours=by_rule("rmsprop"),
        theirs=renamed(torch.optim.RMSprop, "alpha"),
        state={"squares": "square_avg", "buffer": "momentum_buffer", "mean": "grad_avg"},
        **{**ADAPTIVE, "options": [*ADAPTIVE["options"], *({**RMSPROP, **each} for each in MOVES)]},
    ),
    "adadelta": Pair(
        ours=by_rule("adadelta"),
        theirs=renamed(torch.optim.Adadelta, "rho"),
        state={"squares": "square_avg", "squared_moves": "acc_delta"},
        **ADAPTIVE,
    ),
    "adafactor": Pair(
        ours=adafactor_step,
        theirs=torch.optim.Adafactor,
        options=[{}, {"lr": 1.0, "weight_decay": 0.1, "d": 2.0}, {"beta2_decay": -0.5, "eps": (0.1, 0.5)}],
        state={name: name for name in ("step", "row_var", "col_var", "variance")},
        on_cuda=((F32,), 1),
        close=lambda dtype: STEPS * torch.finfo(dtype).eps,  # a few roundings per step, on parameters of size 1
    ),
    "muon": Pair(
        dtypes=(F32, F64, torch.float16, BF16),
        options=[
            {},
            {"momentum": 0.5, "weight_decay": 0.3},
            {"lr": 0.02, "adjust_lr_fn": "match_rms_adamw"},
            {"lr": 0.02, "adjust_lr_fn": "original"},
        ],
        on_cuda=((F32,), 1),
        **MUON,
    ),
    "muon without Nesterov": Pair(
        dtypes=(F32, F64, torch.float16), options=[{"lr": 0.02, "weight_decay": 0.0, "nesterov": False}], **MUON
    ),
}


def table(*names: str) -> list:
    """Every configuration of these pairs: (name, number of the options, dtype, device)."""
    return [
        pytest.param(name, number, dtype, device, id=f"{name}-{number}-{str(dtype)[6:]}-{device}", marks=marks)
        for name, pair in ((name, PAIRS[name]) for name in names)
        for device, marks, (dtypes, count) in (
            ("cpu", [], (pair.dtypes, len(pair.options))),
            ("cuda", ON_CUDA, pair.on_cuda),
        )
        for dtype in dtypes
        for number in range(count)
    ]


def drawn(seed: int, shapes, dtype, device="cpu") -> list[Tensor]:
    """Tensors of normal numbers."""
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=rng, dtype=F64).to(device, dtype) for shape in shapes]


def gradients(t: int, pair: Pair, dtype, device="cpu") -> list[Tensor | None]:
    """Those of step t: of sizes from 1 to 1e-3, every third missing in every fourth step."""
    found = [10.0 ** -(t // 4 % 4) * each for each in drawn(t + 1, pair.shapes, dtype, device)]
    missing = t % 4 == 0 and (t > 0 or pair.late)
    return [None if missing and i % 3 == 1 else each for i, each in enumerate(found)]


@functools.cache
def trained(name: str, number: int, dtype, device) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Parameters and what is kept, by the reference; nobody may change them."""
    pair = PAIRS[name]
    params, state = drawn(0, pair.shapes, dtype, device), [{} for _ in pair.shapes]
    for t in range(STEPS):
        pair.ours(params, gradients(t, pair, dtype, device), state, **pair.options[number])
    return params, state


def trained_by_torch(pair: Pair, number: int, dtype, device) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """The same by torch."""
    params = [torch.nn.Parameter(each) for each in drawn(0, pair.shapes, dtype, device)]
    optimizer = pair.theirs(params, **pair.options[number])
    for t in range(STEPS):
        for param, grad in zip(params, gradients(t, pair, dtype, device), strict=True):
            param.grad = grad
        optimizer.step()
    kept = [{key: each for key, each in optimizer.state[param].items() if each is not None} for param in params]
    return [each.detach() for each in params], kept


@pytest.mark.parametrize(("name", "number", "dtype", "device"), table(*PAIRS))
def test_200_steps_and_what_is_kept_are_torchs(name, number, dtype, device):
    pair, (params, state) = PAIRS[name], trained(name, number, dtype, device)
    expected, theirs = trained_by_torch(pair, number, dtype, device)
    ours = [{pair.state[key]: each for key, each in kept.items()} for kept in state]
    theirs = [{key: each for key, each in kept.items() if key not in pair.besides} for kept in theirs]
    near = pair.close(dtype)
    torch.testing.assert_close((params, ours), (expected, theirs), rtol=near, atol=near)


# Not in bfloat16 on the CPU, where an in-place product of a list rounds its factor to bfloat16.
FORMS = [each for each in table("sgd", "adamw") if each.values[2:] != (BF16, "cpu")]


@pytest.mark.parametrize(("name", "number", "dtype", "device"), FORMS)
def test_the_batched_form_steps_and_keeps_as_the_plain_one(name, number, dtype, device):
    plain, batched = (trained(each, number, dtype, device) for each in (name, f"{name}, foreach"))
    torch.testing.assert_close(batched, plain)


# --- how they step ------------------------------------------------------------------------------------

LISTS = {"sgd": sgd_step, "sgd, foreach": sgd_step_foreach, "adamw": adamw_step, "adamw, foreach": adamw_step_foreach}
ALL = {**LISTS, "adafactor": adafactor_step, "muon": muon_step}
ADAMWS = {name: step for name, step in LISTS.items() if "adamw" in name}
SGDS = {name: step for name, step in LISTS.items() if "sgd" in name}


def each_of(steps: Mapping[str, Callable[..., None]]) -> pytest.MarkDecorator:
    """The test once for each of these references."""
    return pytest.mark.parametrize("step", list(steps.values()), ids=list(steps))


@each_of(LISTS)
def test_parameters_of_several_dtypes_keep_theirs(step):
    params = [torch.ones(3, dtype=dtype) for dtype in (F32, BF16, F64)]
    state = [{} for _ in params]
    options = {"momentum": 0.5} if step in SGDS.values() else {"weight_decay": 0.0}
    step(params, [torch.ones_like(each) for each in params], state, lr=0.5, **options)
    assert [each.tolist() for each in params] == [pytest.approx([0.5] * 3, rel=0.01)] * 3
    kept = ("momentum",) if step in SGDS.values() else ("m", "v")
    assert [[row[name].dtype for name in kept] for row in state] == [[each.dtype] * len(kept) for each in params]


@each_of(ALL)
def test_a_parameter_that_requires_grad_is_stepped_in_place_outside_of_autograd_and_its_gradient_stays(step):
    param, grad, state = torch.nn.Parameter(torch.ones(2, 3)), torch.arange(6.0).reshape(2, 3), [{}]
    memory = param.detach()
    for _ in range(2):
        step([param], [grad], state, lr=0.1)
    assert param.is_leaf
    assert not bool((memory[1] == 1).any())
    assert not any(each.requires_grad for each in state[0].values())
    assert torch.equal(grad, torch.arange(6.0).reshape(2, 3))


@each_of(LISTS)
def test_no_parameters_are_no_error(step):
    assert step([], [], [], lr=0.1, weight_decay=0.1) is None


@each_of({**ADAMWS, "adafactor": adafactor_step})
def test_a_gradient_of_zeros_moves_nothing(step):
    params = [torch.ones(2, 3), torch.ones(4)]
    step(params, [torch.zeros(2, 3), torch.zeros(4)], [{}, {}], lr=0.1, weight_decay=0.0)
    assert all(bool((each == 1).all()) for each in params)


@each_of(LISTS)
def test_a_parameter_without_a_gradient_stays_with_all_that_is_kept_of_it(step):
    params, state = [torch.ones(2), torch.ones(2)], [{}, {}]
    options = {"lr": 0.1, "weight_decay": 0.1, **({"momentum": 0.5} if step in SGDS.values() else {})}
    step(params, [None, None], state, **options)
    step(params, [torch.ones(2), None], state, **options)
    assert params[1].tolist() == [1.0, 1.0]
    assert [len(kept) for kept in state] == [1 if step in SGDS.values() else 3, 0]
    step(params, [None, torch.ones(2)], state, **options)
    torch.testing.assert_close(state[0], state[1], rtol=0, atol=0)
    assert torch.equal(*params)


@each_of(ADAMWS)
def test_the_largest_second_moment_is_kept_also_where_it_is_asked_for_later(step):
    param, state = torch.zeros(1), [{}]
    for grad, amsgrad in ((4.0, False), (2.0, True), (1.0, True)):
        step([param], [torch.tensor([grad])], state, lr=0.1, betas=(0.0, 0.0), amsgrad=amsgrad)
    assert {name: each.item() for name, each in state[0].items()} == {"step": 3.0, "m": 1.0, "v": 1.0, "v_max": 4.0}


@each_of(SGDS)
def test_a_parameter_that_joins_later_starts_from_its_own_gradient(step):
    old, new = torch.zeros(2), torch.zeros(2)
    state = [{}, {}]
    step([old], [torch.ones(2)], state[:1], lr=1.0, momentum=0.5)
    step([old, new], [torch.ones(2), torch.ones(2)], state, lr=1.0, momentum=0.5)
    assert (old.tolist(), new.tolist()) == ([-2.5, -2.5], [-1.0, -1.0])


@each_of(SGDS)
def test_the_buffer_is_no_view_of_the_first_gradient(step):
    grad, state = torch.ones(2), [{}]
    step([torch.zeros(2)], [grad], state, lr=0.1, momentum=0.9)
    grad.zero_()
    assert state[0]["momentum"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("rule", list(ACCUMULATORS))
@pytest.mark.parametrize(("dtype", "device"), [(F64, "cpu"), (BF16, "cpu"), (F32, "meta")])
def test_an_adaptive_step_leaves_the_gradient_and_keeps_tensors_like_the_parameter(rule, dtype, device):
    param, state = torch.zeros(2, 3, dtype=dtype, device=device, requires_grad=True), {}
    grad = torch.ones_like(param, requires_grad=False)
    adaptive_step(rule, param, grad, state, lr=0.1)
    alike = [(each.shape, each.dtype, each.device, each.requires_grad) for each in state.values()]
    assert alike == [(param.shape, dtype, param.device, False)] * len(ACCUMULATORS[rule])
    assert param.is_leaf
    assert device == "meta" or (bool((grad == 1).all()) and bool((param < 0).all()))


class Temporaries(TorchDispatchMode):
    """How many bytes were taken for tensors, by the name of the operation."""

    def __init__(self):
        super().__init__()
        self.taken: list[tuple[str, int]] = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        known = {each.untyped_storage()._cdata for each in args if isinstance(each, Tensor)}
        made = op(*args, **(kwargs or {}))
        if made.untyped_storage()._cdata not in known:
            self.taken.append((op.overloadpacket.__name__, made.nbytes))
        return made


LARGE, PIECE_BYTES = (5, 2**17), 4 * PIECE  # two rows are a piece


@pytest.mark.parametrize(
    ("rule", "options", "expected"),
    [
        ("adagrad", {}, [("sqrt", 20 * 2**17)]),
        ("rmsprop", {}, [("sqrt", 20 * 2**17)]),
        ("rmsprop", {"momentum": 0.9}, [("sqrt", 20 * 2**17)]),
        ("rmsprop", {"momentum": 0.9, "centered": True}, [("addcmul", 20 * 2**17)]),
        ("adadelta", {}, [("add", size) for size in (PIECE_BYTES, PIECE_BYTES, PIECE_BYTES // 2) for _ in range(2)]),
    ],
)
def test_an_adaptive_step_makes_few_temporaries_and_adadelta_none_of_more_than_a_piece(rule, options, expected):
    """More of them, or larger ones, take up to twice the time: memory that is new to the process must be cleared."""
    param, grad, state = torch.zeros(LARGE), torch.ones(LARGE), {}
    adaptive_step(rule, param, grad, state, lr=0.1, **options)
    with Temporaries() as seen:
        adaptive_step(rule, param, grad, state, lr=0.1, **options)
    assert seen.taken == expected


@pytest.mark.parametrize("shape", [(), (7,), (4, 3), (2, 3, 4), (1, 30), (0, 3), (3, 0)])
@pytest.mark.parametrize("piece", [1, 6, 100])
def test_adadelta_in_pieces_steps_as_at_once(monkeypatch, shape, piece):
    (whole, grad), states = drawn(0, [shape, shape], F64), [{}, {}]
    wide = torch.zeros(*whole.shape, 2, dtype=F64)
    wide[..., 0] = whole
    for _ in range(3):
        adaptive_step("adadelta", whole, grad, states[0], lr=0.1)
    monkeypatch.setattr(adaptive, "PIECE", piece)
    for _ in range(3):
        adaptive_step("adadelta", wide[..., 0], grad, states[1], lr=0.1)
    torch.testing.assert_close((wide[..., 0], states[1]), (whole, states[0]))


def test_the_first_step_of_adadelta_is_of_the_size_of_the_root_of_eps():
    param = torch.zeros(1, dtype=F64)
    adaptive_step("adadelta", param, torch.ones(1, dtype=F64), {}, lr=1.0, decay=0.9, eps=1e-6)
    assert float(param) == pytest.approx(-((1e-6 / (0.1 + 1e-6)) ** 0.5))


RATE = ({"lr": -0.1}, "lr must be at least 0, got -0.1")
DECAY = ({"weight_decay": -1.0}, "weight_decay must be at least 0, got -1.0")
REFUSED = [
    *((step, *each) for step in ALL.values() for each in (RATE, DECAY)),
    *((step, {"lr": math.nan}, "lr must be at least 0, got nan") for step in SGDS.values()),
    *((step, {"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0") for step in SGDS.values()),
    *((step, {"momentum": -0.5}, r"momentum must lie in \[0, 1\), got -0.5") for step in SGDS.values()),
    *((step, {"eps": -1e-8}, "eps must be at least 0, got -1e-08") for step in ADAMWS.values()),
    *((step, {"betas": (1.0, 0.9)}, r"beta1 must lie in \[0, 1\), got 1.0") for step in ADAMWS.values()),
    *((step, {"betas": (0.9, -0.5)}, r"beta2 must lie in \[0, 1\), got -0.5") for step in ADAMWS.values()),
    (adafactor_step, {"beta2_decay": 0.8}, "beta2_decay must be at most 0, got 0.8"),
    (adafactor_step, {"eps": (-1.0, 1e-3)}, "eps1 must be at least 0"),
    (adafactor_step, {"eps": (None, -1.0)}, "eps2 must be at least 0"),
    (adafactor_step, {"d": 0.5}, "d must be at least 1, got 0.5"),
    (muon_step, {"momentum": -1.0}, "momentum must be"),
    (
        muon_step,
        {"adjust_lr_fn": "adamw"},
        "adjust_lr_fn must be None or one of original, match_rms_adamw, got 'adamw'",
    ),
    *((by_rule(rule), *RATE) for rule in ACCUMULATORS),
    *((by_rule(rule), {"eps": -1.0}, "eps must be at least 0, got -1.0") for rule in ACCUMULATORS),
    *((by_rule(rule), {"decay": 1.0}, r"decay must lie in \[0, 1\), got 1.0") for rule in ACCUMULATORS),
    *((by_rule(rule), {"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0") for rule in ACCUMULATORS),
    (by_rule("adagrad"), {"momentum": 0.9}, "momentum and centered must be left out of adagrad, got 0.9 and False"),
    (by_rule("adadelta"), {"centered": True}, "momentum and centered must be left out of adadelta, got 0.0 and True"),
    (by_rule("adam"), {}, "rule must be one of adagrad, rmsprop, adadelta, got 'adam'"),
]


@pytest.mark.parametrize(("step", "options", "words"), REFUSED)
def test_numbers_that_make_no_sense_are_refused_before_anything_changes(step, options, words):
    param, state = torch.ones(2, 2), [{}]
    with pytest.raises(BadArgument, match=words):
        step([param], [torch.ones(2, 2)], state, **{"lr": 0.1, **options})
    assert (param.tolist(), state) == ([[1.0, 1.0], [1.0, 1.0]], [{}])


@each_of({**LISTS, "adafactor": adafactor_step, "rmsprop": by_rule("rmsprop")})
def test_a_gradient_that_would_broadcast_is_refused_before_a_change(step):
    param, state = torch.ones(4, 3), [{}]
    with pytest.raises(BadArgument, match=r"gradient 0 must have the shape \(4, 3\) of its parameter, got \(3,\)"):
        step([param], [torch.ones(3)], state, lr=0.1)
    assert (bool((param == 1).all()), state) == (True, [{}])


@each_of(LISTS)
def test_nothing_is_stepped_where_a_later_gradient_is_refused(step):
    params = [torch.ones(2), torch.ones(4, 3)]
    with pytest.raises(BadArgument, match="gradient 1 must have the shape"):
        step(params, [torch.ones(2), torch.ones(3)], [{}, {}], lr=0.1)
    assert params[0].tolist() == [1.0, 1.0]


def test_adafactor_keeps_a_number_per_row_and_column_of_a_matrix_and_a_vector_in_full():
    params, state = [torch.ones(4, 3), torch.ones(5)], [{}, {}]
    adafactor_step(params, [torch.ones(4, 3), torch.ones(5)], state)
    assert [{name: tuple(each.shape) for name, each in kept.items()} for kept in state] == [
        {"step": (), "row_var": (4, 1), "col_var": (1, 3)},
        {"step": (), "variance": (5,)},
    ]


def test_muon_refuses_vectors():
    with pytest.raises(BadArgument, match=r"parameter 1 must be a matrix, got the shape \(3,\): use AdamW"):
        muon_step([torch.ones(2, 2), torch.ones(3)], [None, None], [{}, {}])


@pytest.mark.parametrize(("momentum", "stays_torchs"), [(0.95, False), (0.5, False), (0.0, True)])
def test_in_bfloat16_without_nesterov_torchs_muon_divides_its_buffer_by_the_norm_and_ours_does_not(
    momentum, stays_torchs
):
    options, (start, first, second) = {"momentum": momentum, "nesterov": False}, drawn(0, [(6, 3)] * 3, BF16)
    ours, state, theirs = start.clone(), [{}], torch.nn.Parameter(start.clone())
    optimizer = torch.optim.Muon([theirs], lr=0.02, **options)

    def step(grad: Tensor) -> bool:
        theirs.grad = grad
        optimizer.step()
        muon_step([ours], [grad], state, lr=0.02, **options)
        return torch.equal(ours, theirs.detach())

    assert step(first)
    buffer = state[0]["momentum_buffer"]
    assert torch.equal(buffer, torch.zeros_like(first).lerp_(first, 1 - momentum))
    assert torch.equal(optimizer.state[theirs]["momentum_buffer"], buffer / buffer.norm())
    assert step(second) is stays_torchs


# --- factored_second_moment ---------------------------------------------------------------------------


def test_row_and_column_means_are_those_of_the_full_moving_average_and_what_torch_keeps():
    parameter = torch.nn.Parameter(torch.ones(4, 3, dtype=F64))
    theirs, full = torch.optim.Adafactor([parameter]), torch.zeros(4, 3, dtype=F64)
    rows, cols = torch.zeros(4, dtype=F64), torch.zeros(3, dtype=F64)
    for t, g in enumerate(drawn(0, [(4, 3)] * 20, F64), start=1):
        parameter.grad = g
        theirs.step()
        estimate = factored_second_moment(g, rows, cols, 1 - t**-0.8)
        full = (1 - t**-0.8) * full + t**-0.8 * g**2
        torch.testing.assert_close((estimate.mean(1), estimate.mean(0)), (full.mean(1), full.mean(0)))
        torch.testing.assert_close((rows, cols), (full.mean(1), full.mean(0)))
    kept = theirs.state[parameter]
    torch.testing.assert_close((rows, cols), (kept["row_var"].flatten(), kept["col_var"].flatten()))


@pytest.mark.parametrize("beta2", [1.0, -0.1, math.nan])
def test_a_beta2_outside_of_0_to_1_is_refused_before_anything_changes(beta2):
    rows, cols = torch.ones(2), torch.ones(3)
    with pytest.raises(BadArgument, match=r"beta2 must lie in \[0, 1\)"):
        factored_second_moment(torch.full((2, 3), 5.0), rows, cols, beta2)
    assert rows.tolist() + cols.tolist() == [1.0] * 5


@pytest.mark.parametrize(("rows", "cols"), [((3,), (2,)), ((1,), (3,)), ((2, 1), (1, 3))])
def test_rows_and_cols_of_another_length_are_refused(rows, cols):
    with pytest.raises(BadArgument, match=r"for each row and column of g \(2, 3\), got"):
        factored_second_moment(torch.ones(2, 3), torch.ones(rows), torch.ones(cols), 0.9)


# --- clip_grad_norm_ ----------------------------------------------------------------------------------

GRADS = ((3, 4), (5,), (2, 3, 2), ())


def clipped_alike(grads: list[Tensor], max_norm: float) -> None:
    """torch's own clips the very tensors that its parameters hold as gradients."""
    ours, theirs = ([each.clone() for each in grads] for _ in range(2))
    parameters = [torch.nn.Parameter(torch.empty_like(each)) for each in theirs]
    for parameter, grad in zip(parameters, theirs, strict=True):
        parameter.grad = grad
    norm, expected = clip_grad_norm_(ours, max_norm), torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    torch.testing.assert_close([norm, *ours], [expected, *theirs], equal_nan=True)


@pytest.mark.parametrize("max_norm", [0.0, 1e-3, 1.0, 1e3, math.inf])
@pytest.mark.parametrize(
    "dtypes", [(F32,), (F64,), (BF16,), (torch.float16,), (F32, F64), (BF16, F32), (torch.float16, BF16)]
)
def test_gradients_are_clipped_as_torch_clips_them(dtypes, max_norm):
    clipped_alike([each for dtype in dtypes for each in drawn(7, GRADS, dtype)], max_norm)


@pytest.mark.parametrize("values", [(math.inf,), (-math.inf,), (math.nan,), (math.nan, math.inf)])
@pytest.mark.parametrize("max_norm", [1.0, math.inf])
def test_what_is_not_finite_leaves_what_torch_leaves(values, max_norm):
    grads = drawn(7, GRADS, F32)
    grads[0][0, : len(values)] = torch.tensor(values)
    clipped_alike(grads, max_norm)


def test_gradients_without_numbers_are_clipped():
    grads = [torch.zeros(shape) for shape in (*GRADS, (0, 3))]
    assert clip_grad_norm_(grads, 0.0) == 0
    assert all(bool((g == 0).all()) for g in grads)


def test_below_the_limit_no_bit_changes():
    grads = drawn(7, GRADS, F32)
    assert clip_grad_norm_(grads, 100.0) < 100
    assert all(map(torch.equal, grads, drawn(7, GRADS, F32)))


def test_views_of_one_storage_are_clipped_in_place():
    storage = torch.arange(12.0)
    assert clip_grad_norm_([storage[:6].view(2, 3).t(), storage[6:]], 1.0) == pytest.approx(math.sqrt(506))
    torch.testing.assert_close(storage, torch.arange(12.0) / math.sqrt(506))


@pytest.mark.parametrize("max_norm", [-1.0, math.nan])
def test_a_limit_below_0_is_refused_before_anything_changes(max_norm):
    grads = [torch.ones(2)]
    with pytest.raises(BadArgument, match=f"max_norm must be at least 0, got {max_norm}"):
        clip_grad_norm_(grads, max_norm)
    assert torch.equal(grads[0], torch.ones(2))


# --- orthogonalize ------------------------------------------------------------------------------------


def polynomial(values: Tensor) -> Tensor:
    """What five steps make of singular values."""
    for _ in range(5):
        values = A * values + B * values**3 + C * values**5
    return values


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (5, 5), (1, 3)])
def test_in_bfloat16_it_is_bit_for_bit_what_torchs_muon_computes(shape, steps):
    (g,) = drawn(0, [shape], BF16)
    # A copy, because it divides what it is given by its norm.
    theirs = torch.optim._muon._zeropower_via_newtonschulz(g.clone(), (A, B, C), steps, 1e-7)
    assert torch.equal(orthogonalize(g, steps), theirs)


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (5, 5), (1, 3)])
def test_the_polynomial_is_applied_to_the_singular_values_and_the_vectors_stay(shape):
    (g,) = drawn(0, [shape], F64)
    left, values, right = torch.linalg.svd(g, full_matrices=False)
    torch.testing.assert_close(orthogonalize(g), left * polynomial(values / values.norm()) @ right)


def test_singular_values_from_1_percent_of_the_norm_land_in_the_band():
    values = polynomial(torch.linspace(0.01, 1, 50_001, dtype=F64))
    assert (values.min().item(), values.max().item()) == pytest.approx((0.6818, 1.1344), abs=1e-4)
    assert LOWEST < values.min() < values.max() < HIGHEST


@pytest.mark.parametrize("scale", [1e-4, 1e4, 1e12])
def test_the_scale_does_not_matter(scale):
    (g,) = drawn(0, [(3, 5)], F64)
    torch.testing.assert_close(orthogonalize(scale * g), orthogonalize(g))


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4), ()])
def test_what_is_no_matrix_is_refused(shape):
    with pytest.raises(BadArgument, match="g must be a matrix, got the shape"):
        orthogonalize(torch.ones(shape))


def test_negative_steps_are_refused():
    with pytest.raises(BadArgument, match="steps must be at least 0, got -1"):
        orthogonalize(torch.ones(2, 2), -1)


# --- optimizer_bytes, against what is measured on torch.optim -----------------------------------------

TORCH = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "adadelta": torch.optim.Adadelta,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adafactor": torch.optim.Adafactor,
    "muon": torch.optim.Muon,
}
MODEL = [(7, 5), (4, 9), (1, 6), (), (1,), (8,), (2, 3, 4), (5, 4, 3, 3), (6, 2, 1, 1)]
DTYPES = (F32, F64, BF16, torch.float16)


def shapes_for(name: str) -> list[tuple[int, ...]]:
    """Those that the optimizer takes."""
    return [each for each in MODEL if name != "muon" or len(each) == 2]


def measured(name: str, dtype: torch.dtype) -> tuple[int, list[Tensor]]:
    """Bytes of all tensors in torch's state after one step on real parameters of this dtype, and the step counters."""
    params = [torch.nn.Parameter(torch.ones(shape, dtype=dtype)) for shape in shapes_for(name)]
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer = TORCH[name](params)
    optimizer.step()
    kept = [(key, each) for state in optimizer.state.values() for key, each in state.items() if each is not None]
    return sum(each.nbytes for _, each in kept), [each for key, each in kept if key == "step"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("state", DTYPES)
def test_bytes_are_those_that_are_measured_and_a_step_counter_is_one_float32(name, state):
    shapes, (size, counters) = shapes_for(name), measured(name, state)
    for param in (*DTYPES, torch.float8_e4m3fn):
        master = [torch.empty(shape, dtype=F32) for shape in shapes if param.itemsize < 4]
        wanted = size + sum(each.nbytes for each in master)
        assert optimizer_bytes(shapes, name, {"param": param, "state": state}) == wanted, param
    counted = name not in ("sgd", "momentum", "muon")
    assert [(each.shape, each.dtype) for each in counters] == [((), F32)] * len(shapes) * counted


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (2, 3, 1, 1)])
def test_muon_refuses_the_shapes_that_torch_refuses(shape):
    with pytest.raises(ValueError, match="2D"):
        torch.optim.Muon([torch.nn.Parameter(torch.ones(shape))])
    with pytest.raises(BadArgument, match="muon must be given matrices only"):
        optimizer_bytes([(2, 2), shape], "muon", {"param": F32, "state": F32})


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        *(("sgd", 0), ("momentum", 5), ("adagrad", 5), ("rmsprop", 5), ("adadelta", 10)),
        *(("adam", 10), ("adamw", 10), ("adafactor", 5)),
    ],
)
def test_each_block_of_each_moment_has_a_float32_scale(name, blocks):
    shapes, dtypes = [(2, 7), (15,)], {"param": F32, "state": torch.float8_e4m3fn}
    # Of a moment 2 + 3 blocks; of Adafactor's row means and column means 1 + 1, and of the vector 3.
    with_blocks, without = (optimizer_bytes(shapes, name, dtypes, block) for block in (7, None))
    assert with_blocks - without == 4 * blocks


def test_an_unknown_name_is_refused():
    for name in ("Adam", "lion"):
        with pytest.raises(BadArgument, match=f"name must be one of sgd, momentum, .* got '{name}'"):
            optimizer_bytes([(2, 2)], name, {"param": F32, "state": F32})


def test_a_billion_parameters_take_no_memory_to_count():
    assert optimizer_bytes([(50_000, 20_000)], "adamw", {"param": BF16, "state": F32}) == 12 * 10**9 + 4


# --- estimates from batches ---------------------------------------------------------------------------

POPULATION = torch.tensor([[1.0, 2.0, 0.5], [2.0, 0.0, 1.0], [0.0, 1.0, 3.0]], dtype=F64)


def all_draws(b: int) -> Tensor:
    """The mean gradient of every batch of b examples that can be drawn with replacement."""
    return torch.stack([POPULATION[list(rows)].mean(0) for rows in itertools.product(range(3), repeat=b)])


@pytest.mark.parametrize(("b_small", "b_large"), [(1, 2), (1, 4), (2, 3)])
def test_over_all_draws_the_estimates_are_the_covariances_trace_and_the_squared_gradient(b_small, b_large):
    found = gradient_noise_scale(all_draws(b_small), all_draws(b_large), b_small, b_large)
    noise, squared_gradient = POPULATION.var(dim=0, correction=0).sum().item(), POPULATION.mean(0).square().sum().item()
    assert found == pytest.approx((noise, squared_gradient, noise / squared_gradient))
    assert [type(each) for each in found] == [float, float, float]


def test_float16_draws_do_not_overflow():
    rows = torch.full((2, 4), 200.0, dtype=torch.float16)  # the squared norm is 160,000
    assert gradient_noise_scale(rows, rows, 1, 2)[1] == pytest.approx(160_000)


@pytest.mark.parametrize(("b_small", "b_large"), [(2, 2), (3, 2), (0, 2)])
def test_batch_sizes_that_do_not_grow_are_refused(b_small, b_large):
    with pytest.raises(BadArgument, match=f"b_small must be .*, got {b_small} and {b_large}"):
        gradient_noise_scale(torch.ones(2, 3), torch.ones(2, 3), b_small, b_large)


@pytest.mark.parametrize("large", [0.0, 0.5])  # of all entries 1, |G|^2 is below 0, and exactly 0
def test_an_estimate_that_is_not_positive_is_refused_with_what_to_do(large):
    with pytest.raises(BadArgument, match="take more draws or larger batches"):
        gradient_noise_scale(torch.ones(2, 4), torch.full((2, 4), large), 1, 4)


def test_the_exact_cases_hold_every_draw():
    cases = {case.name: case.inputs for case in NOISE_SCALE.draw(1)}
    assert [len(cases[name][size]) for name in EXACT for size in ("small", "large")] == [4, 16, 9, 81]


@given(n=st.integers(1, 4), b=st.integers(1, 3), seed=st.integers(0, 2**31))
def test_the_expectation_of_a_minibatch_gradient_over_all_draws_is_the_mean_gradient(n, b, seed):
    (grads,) = drawn(seed, [(n, 3)], F64)
    probs = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=F64) + 0.01
    probs = probs / probs.sum()
    draws = [torch.tensor(draw) for draw in itertools.product(range(n), repeat=b)]
    expectation = sum(probs[draw].prod() * minibatch_gradient(grads, probs, draw) for draw in draws)
    torch.testing.assert_close(expectation, grads.mean(0))


def test_what_is_never_drawn_is_not_read():
    grads = torch.tensor([[1.0], [torch.nan], [3.0]])
    found = minibatch_gradient(grads, torch.tensor([0.5, 0.0, 0.5]), torch.tensor([0, 2]))
    torch.testing.assert_close(found, torch.tensor([4 / 3]))


# --- warmup_cosine ------------------------------------------------------------------------------------

FINE = {"step": 1, "peak": 1.0, "warmup": 4, "total": 12}


@given(warmup=st.integers(0, 20), decay=st.integers(1, 40), peak=st.floats(1e-6, 10), share=st.floats(0, 1))
def test_a_schedule_starts_at_0_reaches_the_peak_and_stays_on_the_floor(warmup, decay, peak, share):
    numbers = {"peak": peak, "warmup": warmup, "total": warmup + decay, "floor": share * peak}
    assert warmup_cosine(0, **numbers) == pytest.approx(0.0 if warmup else peak, rel=1e-15)
    assert warmup_cosine(warmup, **numbers) == pytest.approx(peak, rel=1e-15)
    for step in (warmup + decay, warmup + decay + 1, 3 * (warmup + decay)):
        assert warmup_cosine(step, **numbers) == share * peak


@given(warmup=st.integers(1, 20), decay=st.integers(1, 40), share=st.floats(0, 0.9))
def test_the_rate_climbs_by_equal_amounts_and_then_never_rises(warmup, decay, share):
    numbers = {"peak": 1.0, "warmup": warmup, "total": warmup + decay, "floor": share}
    rates = torch.tensor([warmup_cosine(step, **numbers) for step in range(warmup + 2 * decay)], dtype=F64)
    torch.testing.assert_close(rates[: warmup + 1].diff(), torch.full((warmup,), 1 / warmup, dtype=F64))
    assert bool((rates[warmup:].diff() <= 0).all())


@pytest.mark.parametrize("floor", [0.0, 1e-4])
def test_the_descent_is_that_of_torch(floor):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200, eta_min=floor)
    for step in range(201):
        expected = warmup_cosine(step, peak=3e-3, warmup=0, total=200, floor=floor)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected, abs=1e-12)
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize(
    ("name", "number"), [("step", -1), ("peak", -0.1), ("warmup", -1), ("floor", -1e-9), ("peak", math.nan)]
)
def test_what_is_negative_is_refused_by_name(name, number):
    with pytest.raises(BadArgument, match=f"{name} must be at least 0, got {number}"):
        warmup_cosine(**{**FINE, name: number})


@pytest.mark.parametrize("total", [4, 3])
def test_a_descent_without_steps_is_refused(total):
    with pytest.raises(BadArgument, match=f"total must be greater than warmup, got total {total} and warmup 4"):
        warmup_cosine(**{**FINE, "total": total})
