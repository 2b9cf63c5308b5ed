"""course/exercises/optimizers/trajectory.py: parameters on scripted gradients, and what is kept of them."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from course.exercises.optimizers.trajectory import drive, form, refuse

PARAM = torch.zeros(2, 3)


class Closed(dict):
    """A dict that shows nothing."""

    def values(self):
        return []


def with_gradient(tensor):
    """A copy that holds another tensor where nobody looks first."""
    held = tensor.clone()
    held.grad = tensor.clone()
    return held


def one_by_one(params, grads, state, t):
    """p - g, where there is a gradient; the state counts the steps."""
    for param, grad, kept in zip(params, grads, state, strict=True):
        if grad is not None:
            param.sub_(grad)
            kept["t"] = kept.get("t", 0) + 1


def test_parameters_are_observed_after_every_step_and_the_inputs_stay():
    start, grads = torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    seen = drive(one_by_one, [start], [grads])
    assert seen["params"][0].tolist() == [[0.0, 2.0], [0.0, 0.0]]
    assert (start.tolist(), grads.tolist()) == ([1.0, 2.0], [[1.0, 0.0], [0.0, 2.0]])


def test_what_the_list_holds_afterwards_does_not_count():
    def rebinds(params, grads, state, t):
        params[0] = params[0] - grads[0]

    assert drive(rebinds, [torch.ones(())], [torch.ones(2)])["params"][0].tolist() == [1.0, 1.0]


def test_an_absent_gradient_is_none():
    given = []
    present = torch.tensor([[True, False], [False, True]])
    drive(lambda ps, gs, state, t: given.append([g is None for g in gs]), [PARAM] * 2, [PARAM[None]] * 2)
    drive(
        lambda ps, gs, state, t: given.append([g is None for g in gs]),
        [torch.ones(())] * 2,
        [torch.ones(2)] * 2,
        present=present,
    )
    assert given == [[False, False], [False, True], [True, False]]


@pytest.mark.parametrize("same_memory", [False, True])
def test_gradients_lie_in_new_memory_or_in_that_of_the_step_before(same_memory):
    given = []
    drive(
        lambda ps, gs, state, t: given.append(gs[0]),
        [torch.ones(())],
        [torch.tensor([1.0, 2.0])],
        same_memory=same_memory,
    )
    assert (given[0] is given[1]) == same_memory
    assert given[1].item() == 2.0


def test_a_gradient_that_was_changed_is_seen():
    seen = drive(lambda ps, gs, state, t: gs[0].add_(1.0), [torch.ones(())], [torch.tensor([1.0, 2.0])])
    assert seen["grads"][0].tolist() == [2.0, 3.0]


def test_the_state_is_kept_between_the_steps():
    ages = []
    drive(
        lambda *arguments: [one_by_one(*arguments), ages.append(arguments[2][0]["t"])],
        [torch.ones(())],
        [torch.ones(3)],
    )
    assert ages == [1, 2, 3]


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ({}, "no tensors"),
        ({"m": PARAM + 1, "v": PARAM + 1}, "2 like the parameter"),
        ({"exp_avg": PARAM + 1, "anything": [PARAM + 1], "t": 3}, "2 like the parameter"),
        ({"m": PARAM, "same": PARAM}, "1 like the parameter"),
        ({"m": PARAM, "step": torch.zeros(()), "power": torch.zeros(1)}, "1 like the parameter"),
        ({"m": PARAM, "v": PARAM.double()}, "1 like the parameter, 1 of its shape in float64"),
        ({"rows": torch.zeros(2)}, "1 of shape (2,)"),
        (PARAM, "1 like the parameter"),
        ("nonsense", "no tensors"),
        ({"t": 3, "last": None, "of": torch.float32, "betas": (0.9, np.float32(0.999)), "on": True}, "no tensors"),
        ({"m": PARAM.tolist()}, "1 list of more than 4 numbers"),
        ({"m": [0, *PARAM[0].tolist(), 1.0]}, "1 list of more than 4 numbers"),
        ({"m": PARAM.numpy()}, "1 like the parameter"),
        (
            {"m": PARAM, "more": SimpleNamespace(v=PARAM)},
            "1 SimpleNamespace, which may hold tensors, 1 like the parameter",
        ),
        ({"m": deque([PARAM])}, "1 deque, which may hold tensors"),
        ({PARAM: 1}, "1 like the parameter"),
        ({"t": np.int8(3)}, "1 number in int8"),
        ({"start": bytes(9)}, "1 bytes, which may hold tensors"),
        ({"rule": "adam", "t": 2**64 - 1}, "no tensors"),
        ({"t": 2**64, "all": repr([1.5] * 40)}, "1 long int, 1 long str"),
        ({"t": torch.zeros((), dtype=torch.float8_e4m3fn)}, "1 number in float8_e4m3fn"),
        ({"t": np.uint16(3)}, "1 number in uint16"),
        (Closed({"m": PARAM}), "1 like the parameter"),
        ({"m": with_gradient(PARAM)}, "2 like the parameter"),
        ({"m": PARAM.clone().requires_grad_() * 2}, "1 MulBackward0, which may hold tensors, 1 like the parameter"),
    ],
)
def test_the_words_for_a_state_depend_on_no_name(kept, words):
    assert form(kept, PARAM) == words


def test_models_in_turns_go_on_in_other_memory():
    places = []
    seen = drive(
        lambda ps, gs, state, t: [places.append(ps[0].data_ptr()), one_by_one(ps, gs, state, t)],
        [torch.ones(3)] * 2,
        [torch.ones(4, 3)] * 2,
        in_turns=True,
    )
    assert len({*places}) == 6
    assert places[:4] == places[:2] * 2
    assert places[6:8] == places[8:]
    assert [each[-1].tolist() for each in seen["params"]] == [[-3.0] * 3] * 2


def test_a_refusal_in_its_turn_leaves_what_has_moved():
    def in_turn(params, grads, state, *, lr=1.0):
        for param, grad, kept in zip(params, grads, state, strict=True):
            if lr < 0 or grad.shape != param.shape:
                raise ValueError
            param.sub_(grad)
            kept["m"] = torch.zeros_like(param)

    seen = refuse(in_turn, [PARAM, PARAM], {"a negative lr": {"lr": -1.0}, "a wrong shape": {"gradient": (3,)}})
    assert (seen["a negative lr"], seen["a wrong shape"]) == ("ValueError", "ValueError")
    assert seen["left"] == {"a negative lr": "nothing", "a wrong shape": "parameter 0, state 0"}


def test_new_memory_under_the_old_name_does_not_count():
    def rebinds(params, grads, state, t):
        params[0].data = params[0] - grads[0]

    assert drive(rebinds, [torch.ones(())], [torch.ones(2)])["params"][0].tolist() == [1.0, 1.0]


def test_views_are_stepped_as_views():
    views = []
    wide = torch.ones(2, 6)[:, 1::2]
    drive(lambda ps, gs, state, t: views.append(ps[0].stride() + gs[0].stride()), [wide], [wide[None]])
    assert views == [(6, 2, 6, 2)]
