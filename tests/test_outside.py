"""Costs in grading: counted where answers cannot reach, and worth points only there."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from dataclasses import dataclass

import pytest
import torch
from conftest import same_tree, soak
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tree import TREES
from torch.nn import functional as F

from autograder import bank as banks
from autograder import recording
from autograder.bank import Bank
from course.errors import CourseError
from course.exercises.computational_graphs import long_x, save_less
from course.exercises.computational_graphs.token_model import after_one_step, long_ones
from course.judging.judge import judge
from course.judging.verdict import Suspect, Verdict
from course.performing import blocks
from course.performing.exercise import Case, Observation, Source
from course.performing.oracle import told, with_costs
from course.performing.perform import perform, perform_all
from course.tree import flatten

OUTSIDE: frozenset[Source] = frozenset({"tick", "broker", "kernel"})
MIB = 2**20
SMALL = {"peak_bytes": 30 * MIB, "cpu_seconds": 0.03}  # of the layers of SaveLess
LIGHT = {"peak_bytes": 2 * MIB, "cpu_seconds": 0.01}  # of hvp's long x
ALONE = {"peak_bytes": 14 * MIB, "cpu_seconds": 0.1}  # of a group's long micro-batches, one at a time
UNITS = {"backward": {}, "accumulate_gradients": ALONE, "SaveLess": SMALL, "hvp": LIGHT}


def outside(bank: Bank, answer, case: Case, kernel: dict) -> Observation:
    """One case as a runner performs it: the oracle answers elsewhere, and the kernel measures."""
    oracle = bank.exercise.oracle(case)
    seen = perform(bank.exercise, answer, dataclasses.replace(case, hidden={}), ask=oracle.ask)
    return with_costs(told(seen, oracle, "broker"), kernel, "kernel")


@dataclass
class Trial:
    """An exercise on the cases of one seed."""

    bank: Bank
    cases: list[Case]
    references: tuple[Observation, ...]

    def seen(self, answer, kernel: dict) -> list[Observation]:
        return [outside(self.bank, answer, case, kernel) for case in self.cases]

    @functools.cached_property
    def suspects(self) -> tuple[Suspect, ...]:
        """Every misconception, recorded here."""
        return recording.suspects(self.bank, self.cases)

    def wrong(self, name: str, witness: int = 0):
        """A witness of a misconception."""
        return next(each.witnesses[witness] for each in self.bank.misconceptions if each.name == name)

    def verdict(self, seen: list[Observation], suspects: tuple[Suspect, ...] = ()) -> Verdict:
        """The verdict of grading."""
        return judge(self.bank.exercise, self.cases, seen, self.references, suspects, sources=OUTSIDE)


@pytest.fixture(scope="module")
def trial():
    """Trials by the entry's name, each made once."""
    made: dict[str, Trial] = {}

    def of(name: str) -> Trial:
        if name not in made:
            bank = banks.load(name)
            cases = bank.exercise.draw(7)
            made[name] = Trial(bank, cases, recording.references(bank, cases))
        return made[name]

    return of


def failed(found: Verdict) -> list[str]:
    return [each.property for each in found.findings if not each.held]


GROUP = {"peak_bytes": 38 * MIB, "cpu_seconds": 0.1}
BOTH = "memory_of_one_micro_batch one_micro_batch_at_a_time"
LARGE = {"peak_bytes": 41 * MIB, "cpu_seconds": 0.03}
HESSIAN = {"peak_bytes": 80 * MIB, "cpu_seconds": 0.4}
COSTLY = [
    ("backward", "one_pass_per_leaf", 0, {}, "each_local_derivative_used_once"),
    ("accumulate_gradients", "concatenates", 1, GROUP, BOTH),
    ("accumulate_gradients", "concatenates", 2, GROUP, BOTH),
    ("accumulate_gradients", "one_backward_at_the_end", 0, GROUP, BOTH),
    ("accumulate_gradients", "retains_the_graph", 0, ALONE, "one_micro_batch_at_a_time"),
    ("accumulate_gradients", "runs_the_model_twice", 0, ALONE, "each_micro_batch_once"),
    ("accumulate_gradients", "steps_once_more", 0, ALONE, "one_step_per_group"),
    ("SaveLess", "keeps_intermediates", 3, LARGE, "keeps_only_x keeps_only_x_in_every_dtype"),
    ("SaveLess", "keeps_intermediates", 4, LARGE, "keeps_only_x keeps_only_x_in_every_dtype"),
    ("hvp", "builds_the_hessian", 0, HESSIAN, "never_builds_the_hessian"),
    ("hvp", "builds_the_hessian", 1, {"peak_bytes": 2 * MIB, "cpu_seconds": 0.18}, "never_builds_the_hessian"),
]


@pytest.mark.parametrize(("name", "wrong", "witness", "kernel", "cost"), [*COSTLY[:-1], soak(*COSTLY[-1])])
def test_what_only_costs_too_much_loses_the_cost_and_is_named(trial, name, wrong, witness, kernel, cost):
    of = trial(name)
    found = of.verdict(of.seen(of.wrong(wrong, witness), kernel), of.suspects)
    assert (failed(found), found.diagnosis.name) == (cost.split(), wrong)


ALIKE = [("keeps_intermediates", LARGE), ("keeps_sigmoid_for_x", SMALL), ("breaks_double_backward", SMALL)]


@pytest.mark.parametrize(("wrong", "kernel"), ALIKE)
def test_equal_values_are_told_apart_by_the_costs_that_the_kernel_measured(trial, wrong, kernel):
    of = trial("SaveLess")
    for answer in next(each.witnesses for each in of.bank.misconceptions if each.name == wrong):
        assert of.verdict(of.seen(answer, kernel), of.suspects).diagnosis.name == wrong


@pytest.mark.parametrize("name", UNITS)
def test_claims_earn_nothing(trial, name):
    of = trial(name)
    here = perform_all(of.bank.exercise, of.bank.reference, of.cases)
    assert all(set(each.sources.values()) <= {"claimed"} for each in here)
    costs = [each.name for each in of.bank.exercise.properties if each.evidence == "ledger"]
    assert failed(of.verdict(here)) == costs


@pytest.mark.parametrize("row", COSTLY[:8], ids=lambda row: row[1])
def test_a_forged_claim_changes_nothing(trial, row):
    name, wrong, witness, kernel, _ = row
    of = trial(name)
    honest = of.seen(of.wrong(wrong, witness), kernel)
    forged = [
        dataclasses.replace(each, ledger={**ours.ledger, **each.ledger}, sources={**ours.sources, **each.sources})
        for ours, each in zip(of.references, honest, strict=True)
    ]
    assert of.verdict(forged).points == of.verdict(honest).points


# no work costs nothing


def test_a_pass_that_uses_derivatives_of_its_own_pays_with_the_cost_alone(trial):
    def backward(root):
        """Right by the rules of + and *, and asks each node once for show."""
        uses, found = {root: 0}, [root]
        for node in found:
            node.local_derivatives()
            for each in node.inputs:
                if each not in uses:
                    found.append(each)
                uses[each] = uses.get(each, 0) + 1
        flowing, ready = {root: 1.0}, [root]
        while ready:
            node = ready.pop()
            node.grad += 0.0 if node.inputs else flowing[node]
            for each, local in zip(node.inputs, node._local, strict=True):
                flowing[each] = flowing.get(each, 0.0) + flowing[node] * local
                uses[each] -= 1
                if uses[each] == 0:
                    ready.append(each)

    of = trial("backward")
    assert failed(of.verdict(of.seen(backward, {}))) == ["each_local_derivative_used_once"]


def test_a_small_peak_with_wrong_derivatives_earns_nothing(trial):
    class Idle(banks.load("SaveLess").reference):
        """Right where x is small, idle where memory is measured."""

        @staticmethod
        def backward(ctx, dy):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return dy if x.numel() > 1_000 else dy * (s + x * s * (1 - s))

    of = trial("SaveLess")
    assert failed(of.verdict(of.seen(Idle, {"peak_bytes": MIB, "cpu_seconds": 0.0}))) == ["keeps_only_x"]


def test_a_quick_answer_to_a_long_x_that_is_wrong_earns_nothing(trial):
    of = trial("hvp")

    def hvp(f, x, v):
        return of.bank.reference(f, x, v) if x.numel() < 1_000 else torch.zeros_like(x)

    assert failed(of.verdict(of.seen(hvp, LIGHT))) == ["never_builds_the_hessian"]


@pytest.mark.parametrize("name", ["SaveLess", "hvp"])
def test_where_nothing_was_measured_nothing_is_earned(trial, name):
    of = trial(name)
    costs = [each.name for each in of.bank.exercise.properties if each.evidence == "ledger"]
    assert failed(of.verdict(of.seen(of.bank.reference, {}))) == costs


# the same piece is seen here and outside


@pytest.mark.parametrize("name", UNITS)
def test_values_are_the_same_here_and_outside(trial, name):
    of = trial(name)
    here = perform_all(of.bank.exercise, of.bank.reference, of.cases)
    for ours, theirs in zip(here, of.seen(of.bank.reference, {}), strict=True):
        assert ours.values.keys() == theirs.values.keys()
        for one, two in ((theirs.values[key], value) for key, value in ours.values.items()):
            assert one == two if isinstance(one, str) else torch.as_tensor(one).allclose(torch.as_tensor(two))


def test_a_block_is_drawn_alike_alone_and_with_others():
    whole = blocks.draw(5, range(8), 34)
    assert torch.equal(whole[3:6], blocks.draw(5, range(3, 6), 34))
    assert len({tuple(row.tolist()) for row in whole}) == 8


def test_a_long_x_is_long_outside_and_a_piece_here(trial):
    of, lengths = trial("hvp"), []

    def hvp(f, x, v):
        lengths.append(x.numel())
        return v

    case = next(each for each in of.cases if each.name == long_x.NAME)
    perform(of.bank.exercise, hvp, case)
    outside(of.bank, hvp, case, {})
    assert lengths == [long_x.PIECE, long_x.BLOCKS * long_x.BLOCK]


def test_layers_are_large_outside_and_small_here(trial):
    of, sizes = trial("SaveLess"), []

    class Sized(of.bank.reference):
        @staticmethod
        def forward(ctx, x):
            sizes.append(x.nbytes)
            return of.bank.reference.forward(ctx, x)

    case = next(each for each in of.cases if each.name == save_less.MEMORY)
    perform(of.bank.exercise, Sized, case)
    outside(of.bank, Sized, case, {})
    assert set(sizes) == {4 * save_less.PIECE, MIB // 4}


def test_no_x_of_a_layer_can_be_made_of_the_others(trial):
    of, own = trial("SaveLess"), []

    class Seen(of.bank.reference):
        @staticmethod
        def forward(ctx, x):
            own.append(x[0, :100].double())
            return of.bank.reference.forward(ctx, x)

    case = next(each for each in of.cases if each.name == save_less.MEMORY)
    outside(of.bank, Seen, case, {})
    assert torch.linalg.matrix_rank(torch.stack(own), rtol=1e-3) == save_less.LAYERS


# the oracles


@pytest.mark.parametrize("name", UNITS)
@given(
    verb=st.sampled_from(["local_derivatives", "features", "slopes", "step", "block", "odd"]) | st.text(), tree=TREES
)
@settings(max_examples=30)
def test_an_oracle_answers_with_plain_data_or_refuses(name, verb, tree):
    exercise = banks.load(name).exercise
    oracle = exercise.oracle(next(case for case in exercise.draw(1) if case.hidden))
    with contextlib.suppress(CourseError):
        assert same_tree(answer := oracle.ask(verb, tree), answer)
    assert all(isinstance(cost, int) for cost in flatten(oracle.ledger()).values())


def questions(trial):
    """The oracle of a case of tokens, and a shorthand for what a model asks."""
    case = trial("accumulate_gradients").cases[1]
    oracle = trial("accumulate_gradients").bank.exercise.oracle(case)

    def features(count, recorded=True, freed=()):
        tokens = torch.ones(count, 3)
        asked = {"tokens": tokens, "gains": tokens, "recorded": recorded, "freed": list(freed)}
        return oracle.ask("features", asked)["ticket"]

    def slopes(ticket, count):
        return oracle.ask("slopes", {"ticket": ticket, "gradient": torch.ones(count, 3)})

    return oracle, features, slopes


def alive(oracle) -> int:
    return oracle.ledger()["tokens_alive"]


def test_a_token_lives_until_its_backward_has_come_and_its_graph_is_gone(trial):
    oracle, features, slopes = questions(trial)
    first = features(5)
    slopes(first, 5)
    features(4, freed=[first])
    assert alive(oracle) == 5
    oracle, features, slopes = questions(trial)
    slopes(features(5), 5)
    features(4)
    assert alive(oracle) == 9


def test_who_says_that_a_graph_is_gone_before_its_backward_is_not_believed(trial):
    oracle, features, _ = questions(trial)
    first = features(5)
    features(4, freed=[first, 1, 77])
    assert alive(oracle) == 9


def test_a_call_that_was_not_recorded_lives_no_longer_and_has_no_slopes(trial):
    oracle, features, slopes = questions(trial)
    first = features(5, recorded=False)
    features(4)
    assert alive(oracle) == 5
    with pytest.raises(CourseError, match="must be asked as the model asks it"):
        slopes(first, 5)


def test_matrices_are_told_where_a_process_is_measured_instead_and_nowhere_else(trial):
    of = trial("accumulate_gradients")
    oracle, features, _ = questions(trial)
    with pytest.raises(CourseError):
        oracle.ask("matrices", {})
    features(5)
    assert alive(oracle) == 5
    oracle, long = of_long_micro_batches(of)
    assert torch.equal(oracle.ask("matrices", {}), long.hidden["matrices"])
    assert oracle.ledger() == {"optimizer_steps": 0}


def test_the_tokens_that_are_due_tell_less_than_is_hidden(trial):
    counted = [
        case for case in trial("accumulate_gradients").cases if "matrices" in case.hidden and "seed" not in case.inputs
    ]
    for case in counted:
        told = 2 * sum(each.numel() for each in case.inputs["inputs"])  # a and b of each
        assert told < case.hidden["matrices"].numel()
    assert len(counted) == 2


def of_long_micro_batches(of):
    """An oracle of the case that is measured, and the case."""
    long = next(case for case in of.cases if "seed" in case.inputs)
    return of.bank.exercise.oracle(long), long


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("long", [True, False])
def test_who_is_told_the_matrices_must_use_all_rows(trial, told, long):
    oracle, case = of_long_micro_batches(trial("accumulate_gradients"))
    if told:
        oracle.ask("matrices", {})
    rows = long_ones(case.inputs) if long else zip(case.inputs["inputs"], case.inputs["targets"], strict=True)
    oracle.ask("result", after_one_step(case.inputs, case.hidden["matrices"], rows))
    assert oracle.values() == {"right_parameters": told is long}
    for verb in ("result", "matrices"):
        with pytest.raises(CourseError):
            oracle.ask(verb, {})


def test_one_micro_batch_of_sixteen_left_out_is_not_right(trial):
    oracle, case = of_long_micro_batches(trial("accumulate_gradients"))
    rows = [*long_ones(case.inputs)][:-1]
    oracle.ask("result", after_one_step(case.inputs, oracle.ask("matrices", {}), rows))
    assert oracle.values() == {"right_parameters": False}


def test_who_is_not_told_the_matrices_where_memory_is_measured_earns_nothing_by_it(trial):
    of = trial("accumulate_gradients")
    here = perform_all(of.bank.exercise, of.bank.reference, of.cases)
    known = [dataclasses.replace(each, sources=dict.fromkeys(each.sources, "broker")) for each in here]
    assert BOTH.split() == failed(of.verdict([with_costs(each, ALONE, "kernel") for each in known]))


def test_an_oracle_ends_a_flood_of_tokens(trial):
    oracle, features, _ = questions(trial)
    with pytest.raises(CourseError):
        features(10_001)
    assert oracle.ledger()["tokens_through_the_model"] == 0


def test_a_row_of_a_vmap_is_more_tokens_and_not_one_more_call(trial):
    of = trial("accumulate_gradients")

    def answer(model, optimizer, micro_batches, every):
        for inputs, targets in micro_batches:
            logits = torch.func.vmap(torch.func.vmap(model))(inputs[:, None, None])
            F.cross_entropy(logits.flatten(0, 3), targets.flatten(), reduction="sum").backward()
        return [0.0]

    seen = outside(of.bank, answer, of.cases[1], {})
    assert seen.error is None
    assert (seen.ledger["tokens_in_one_call"], seen.ledger["tokens_through_the_model"]) == (10, 40)
