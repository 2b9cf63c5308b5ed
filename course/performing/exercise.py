"""The vocabulary of the course as frozen dataclasses.

    Exercise.cases(rng) -> [Case]
    Exercise.probe(answer, inputs) -> Observation      the only code that ever calls an answer
    Exercise.oracle(case) -> Oracle                    what a probe asks, so that the cost is counted outside of it
    Exercise.split(inputs) -> [inputs of each rank]    then probe(answer, comm, inputs) is called on every rank
    judge(...) -> Verdict                              one Finding per Property, and at most one Diagnosis

Reference, alternatives, misconceptions and students go through the same probe. An exercise is declared once, in
`course/exercises/<unit>/<entry>.py`, as `EXERCISE`; minutes and difficulty come from the syllabus, points from
its properties.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeGuard, cast

import torch
from torch import Tensor
from torch.nn import Parameter

from course.errors import DeclarationError, WrongOutput
from course.performing import draws
from course.syllabus import Entry, find_entry
from course.tree import Leaf, Tree, flatten, map_leaves, plain

Answer: TypeAlias = Callable[..., Any]
Inputs: TypeAlias = dict[str, Any]
Values: TypeAlias = Mapping[str, Leaf]
Source: TypeAlias = Literal["claimed", "tick", "broker", "kernel"]
Ask: TypeAlias = Callable[[str, Tree], Tree]

PUBLIC_SEED = 20_220  # draws the cases that every student sees
ARGUMENTS_UNCHANGED = "arguments_unchanged"
EVERY_FORM = "every_form"
AFTER = "after/"  # begins the keys of inputs that may not change, as the run left them
REFUSED = "refused/"  # begins the keys that say what an answer raised on what makes no sense


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """The inputs of one run: plain data, so that it can be stored in a sheet and sent to another process.

    No two are equal: who keeps what a case gives finds it by the case itself.

    hidden  what only the exercise's oracle reads; in grading it never enters the process of the answer
    lies    how tensors lie in memory where it is not as usual, by path (course/performing/forms.py)
    hard    whether it is another case in a hard form: only properties that name it, or all, speak of it
    """

    name: str
    inputs: dict[str, Tree]
    hidden: dict[str, Tree] = field(default_factory=dict)
    lies: dict[str, str] = field(default_factory=dict)
    hard: bool = False


@dataclass(frozen=True, kw_only=True)
class Form:
    """A hard form: a case changed into one that a docstring allows as well (course/performing/forms.py makes them).

    name  of the case that comes out
    of    of the case that is changed; "" for the first
    alone never together with another form
    """

    name: str
    change: Callable[[Case], Case]
    of: str = ""
    alone: bool = False


class Oracle(Protocol):
    """Answers a probe's questions about one case, and counts them: in a notebook beside it, in grading in the grader.

    Arguments come from the process of the answer and may be anything, at any time; an oracle keeps its own memory
    bounded, and tells nothing by which an answer could save work before that is done.
    """

    def ask(self, verb: str, arguments: Tree) -> Tree:
        """The answer to one question. Raises CourseError on one that it does not answer."""

    def ledger(self) -> dict[str, Leaf]:
        """What was asked so far: the costs, by name."""

    def values(self) -> dict[str, Leaf] | None:
        """What it has seen of the results itself, which stands in place of what the probe says; None: nothing."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What broke instead of a value: the exception's type and message, and the student's own lines."""

    type: str
    message: str
    where: tuple[str, ...] = ()
    rank: int | None = None


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What was seen in one run: named values, and the ledger of what it cost with the source of each entry."""

    values: dict[str, Leaf] = field(default_factory=dict)
    ledger: dict[str, Leaf] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    error: Failure | None = None
    printed: str = ""


def observe(values: Tree, ledger: dict[str, Leaf] | None = None, source: Source = "claimed") -> Observation:
    """An observation of `values` (a dict of anything) and of costs that all have one source."""
    costs = dict(ledger or {})
    return Observation(values=flatten(plain(values)), ledger=costs, sources=dict.fromkeys(costs, source))


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether it is a tensor, and of no class of somebody's own, which may say anything of its storage."""
    return type(value) in (Tensor, Parameter)


def entries_of(values: Any) -> list[Any]:
    """What a list, tuple or dict (name and value) holds, also where a class of somebody's own shows something else."""
    if isinstance(values, dict):
        return list(dict.items(values))
    return list(list.__iter__(values) if isinstance(values, list) else tuple.__iter__(values))


def outputs(result: object, *names: str) -> dict[str, Any]:
    """The parts of a returned tuple by name. Raises WrongOutput where their number is not that of `names`."""
    if not isinstance(result, (tuple, list)) or len(result) != len(names):
        came = f"{len(result)} values" if isinstance(result, (tuple, list)) else f"one {type(result).__name__}"
        came = "None: is there a `return`?" if result is None else came
        raise WrongOutput(f"must return {len(names)} values ({', '.join(names)}), got {came}")
    return dict(zip(names, result, strict=True))


def one_call(*takes: str, gives: tuple[str, ...]) -> Callable[[Answer, Inputs], Observation]:
    """A probe that calls the answer once, with inputs in this order, and observes what it returns under `gives`."""

    def probe(answer: Answer, inputs: Inputs) -> Observation:
        result = answer(*(inputs[name] for name in takes))
        return observe({gives[0]: result} if len(gives) == 1 else outputs(result, *gives))

    return probe


def call_once(answer: Answer, inputs: Inputs, *given: Any) -> Any:
    """What a call with what is given returns. In the form `between_calls` it stands between two with doubled numbers,
    and is looked at after them: it must not know what was before, and must not change any more.
    """
    others = [map_leaves(lambda leaf: scaled(leaf, 2.0), list(given)) for _ in range(2 if inputs.get("between") else 0)]
    for other in others[:1]:
        answer(*cast(list[Any], other))
    result = answer(*given)
    for other in others[1:]:
        answer(*cast(list[Any], other))
    return result


def scaled(leaf: Leaf, factor: float) -> Leaf:
    """A floating number or tensor, multiplied by the factor; anything else as it is."""
    floating = leaf.is_floating_point() if isinstance(leaf, Tensor) else isinstance(leaf, float)
    return leaf * factor if floating else leaf  # type: ignore[operator]


@dataclass(frozen=True)
class Property:
    """A named, scored statement over an observation and the reference's.

    hint        what to look at when it fails; also right when two mistakes come together
    keys        patterns (`grads/*`) of the values compared with the reference's; if left out, and `holds` too, all
                values but those under `after/` and `refused/`
    evidence    "value", or "ledger" for a statement about cost
    roundings   how many roundings a right answer may accumulate: scales the tolerance
    in_half     how many of them at most where the case is in 16 bits: 32 would be a quarter of a number in bfloat16
    holds       instead of a comparison: (inputs, got, expected) -> None, or a sentence that says what is wrong
    beside      patterns of values that must be right in the very runs whose cost is judged: no work costs nothing
    shows       a ledger entry that the check draws as two bars, the answer's over ours
    cases       names of the cases it speaks of; empty means all but hard forms, or with `hard` all
    needs       properties that must hold before this one earns anything: a cost counts only where the value is right
    """

    name: str
    hint: str
    _: KW_ONLY
    points: int = 1
    keys: tuple[str, ...] = ()
    evidence: Literal["value", "ledger"] = "value"
    roundings: int = 32
    in_half: int = 4
    holds: Callable[[Inputs, Values, Values], str | None] | None = None
    beside: tuple[str, ...] = ()
    shows: str = ""
    cases: tuple[str, ...] = ()
    hard: bool = False
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.keys and self.holds is None:
            object.__setattr__(self, "keys", ("*",))


def arguments_unchanged(*, needs: tuple[str, ...], points: int = 1) -> Property:
    """The property that the inputs named in `Exercise.keeps` are bit for bit what they were before the call."""
    return Property(
        ARGUMENTS_UNCHANGED,
        "An argument was changed in place (+=, sub_, out=). The caller still needs it: work on a new value.",
        points=points,
        keys=(f"{AFTER}*",),
        roundings=0,
        hard=True,
        needs=needs,
    )


def every_form(
    *,
    needs: tuple[str, ...],
    points: int = 1,
    keys: tuple[str, ...] = (),
    roundings: int = 16,
    in_half: int = 4,
    cases: tuple[str, ...] = (),
) -> Property:
    """The property that an answer is right in each of `Exercise.forms`, which are its cases if it names none.

    in_half  roundings where inputs are in half precision, which has few digits: many would allow anything
    """
    return Property(
        EVERY_FORM,
        "The docstring allows more than the usual call: other dtypes, tensors that are views or that require a "
        "gradient, dimensions of 1, the last number that is not refused. The case says which of them breaks your code.",
        points=points,
        keys=keys,
        roundings=roundings,
        in_half=in_half,
        cases=cases,
        needs=needs,
    )


def in_the_dtype_of(name: str, *keys: str) -> Callable[[Inputs, Values, Values], str | None]:
    """What `Property.holds` takes: the tensors observed under `keys` have the dtype of the input `name`.

    A Python number has no dtype and passes. The reference, which is performed in float64, is not asked.
    """

    def holds(inputs: Inputs, got: Values, expected: Values) -> str | None:
        wanted = inputs[name].dtype
        dtypes = {key: each.dtype for key in keys if isinstance(each := got[key], Tensor)}
        others = [f"{key} in {dtype}" for key, dtype in dtypes.items() if dtype != wanted]
        return f"{', '.join(others)}, where {name} is in {wanted}" if others else None

    return holds


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One exercise, declared once.

    cases       draws the inputs; public ones from `PUBLIC_SEED`, graded ones from a secret seed
    probe       puts an answer through a scenario; may raise whatever the answer makes it raise
    keeps       inputs that the answer may not change: the property `arguments_unchanged`, which needs the first of the
                others, is added where none is declared
    forms       hard forms of the cases: the property `every_form`, which needs the first of the others, is added where
                none is declared
    promises    each promise of the student's docstring, in its own words, with the cases and properties that judge it
    withheld    keys of inputs, at any depth, that properties alone read: in grading they never enter the process of
                the answer
    removes     modules, functions, classes or attributes of classes that an answer may not use: said in the notebook,
                disabled in grading. With `torch` or `torch.autograd` the probe has no autograd either
    oracle      answers the probe of one case, which is then called probe(answer, inputs, ask); what it counts has the
                source "claimed" where it answers in the answer's process, and "broker" where it does so in the grader
    split       the inputs of each rank, of as many ranks as there are parts. The probe is then called on every rank, as
                probe(answer, comm, inputs), and what it observes on rank 0 stands under "0/..."; the ledger has what
                was sent (course/cluster/account/ledger.py), source "claimed" on simulated ranks and "broker" in grading
    verbs       of a communicator that such an answer may use
    measured    names of cases that the grader measures from outside: ledger entries "peak_bytes" (int, memory at its
                highest above that at the start of the case) and "cpu_seconds" (float), source "kernel"; a notebook has
                neither. With ranks "peak_bytes" is int64 of shape (ranks,), and `split` finds outside=True among the
                inputs, so that it can make the tensors large there. Simulated ranks have "live_bytes" in its place,
                int64, (ranks,): the most bytes of tensors that each held at once, its inputs included
    hints       a question, a pointer, a sketch; never the code
    seconds     time limit of one case
    first_uses  what the probe uses of torch that is only imported in its first use: see warm.py
    """

    id: str
    cases: Callable[[torch.Generator], list[Case]]
    probe: Callable[..., Observation]
    properties: tuple[Property, ...]
    hints: tuple[str, str, str]
    keeps: tuple[str, ...] = ()
    forms: tuple[Form, ...] = ()
    promises: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    withheld: tuple[str, ...] = ()
    removes: tuple[str, ...] = ()
    oracle: Callable[[Case], Oracle] | None = None
    split: Callable[[Inputs], Sequence[Inputs]] | None = None
    verbs: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    seconds: float = 5.0
    first_uses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", tuple(_with_shared(self)))
        _validate(self)

    @property
    def entry(self) -> Entry:
        """Its row in the syllabus: name, minutes, difficulty."""
        return find_entry(self.id)

    @property
    def name(self) -> str:
        """The name under which a student writes the answer."""
        return self.id.partition(".")[2]

    @property
    def unit(self) -> str:
        """Slug of its unit."""
        return self.id.partition(".")[0]

    @property
    def points(self) -> int:
        """What full marks are worth: the sum of its properties."""
        return sum(each.points for each in self.properties)

    def draw(self, seed: int) -> list[Case]:
        """The cases of a seed; the same seed gives the same cases."""
        with draws.drawing(seed, self.id) as rng:
            drawn = self.cases(rng)
        by_name = {"": drawn[0], **{case.name: case for case in drawn}}
        return [*drawn, *(in_form(by_name[form.of], form) for form in self.forms)]


def sent(exercise: Exercise, case: Case) -> Case:
    """What the process of an answer gets of a case in grading."""
    return dataclasses.replace(case, inputs=_without(exercise.withheld, case.inputs)) if exercise.withheld else case


def _without(keys: tuple[str, ...], tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _without(keys, value) for key, value in tree.items() if key not in keys}
    return [_without(keys, each) for each in tree] if isinstance(tree, list) else tree


def in_form(case: Case, *forms: Form) -> Case:
    """The case in all of these hard forms at once, named after them."""
    for form in forms:
        case = form.change(case)
    return dataclasses.replace(case, name=", ".join(form.name for form in forms), hard=True)


def _with_shared(exercise: Exercise) -> Iterator[Property]:
    """The properties as declared, and those that what is kept and hard forms bring with them."""
    declared = [each.name for each in exercise.properties]
    forms = tuple(each.name for each in exercise.forms)
    for each in exercise.properties:
        yield dataclasses.replace(each, cases=forms) if each.name == EVERY_FORM and not each.cases else each
    if exercise.keeps and declared and ARGUMENTS_UNCHANGED not in declared:
        yield arguments_unchanged(needs=(declared[0],))
    if forms and declared and EVERY_FORM not in declared:
        yield dataclasses.replace(every_form(needs=(declared[0],)), cases=forms)


def _validate(exercise: Exercise) -> None:
    """Raises DeclarationError on what no author means, UnknownExercise on an id that is not in the syllabus."""
    entry = find_entry(exercise.id)

    def demand(condition: bool, sentence: str) -> None:
        if not condition:
            raise DeclarationError(f"{exercise.id}: {sentence}")

    demand(entry.id == exercise.id, f"the id must be the syllabus's `{entry.id}`")
    demand(len(exercise.properties) > 0, "at least one property must be declared")
    demand(len(exercise.hints) == 3 and all(exercise.hints), "three hints must be given")
    seen: set[str] = set()
    for each in exercise.properties:
        demand(each.name not in seen, f"property `{each.name}` is declared twice")
        demand(each.points > 0, f"property `{each.name}` must be worth at least 1 point, got {each.points}")
        demand(bool(each.hint), f"property `{each.name}` must have a hint")
        demand(not each.keys or each.holds is None, f"property `{each.name}` must have keys or holds, not both")
        demand(set(each.needs) <= seen, f"property `{each.name}` needs {each.needs}, which must stand before it")
        demand(each.evidence == "value" or bool(each.needs), f"`{each.name}` is a cost and must need a value")
        demand(each.evidence == "ledger" or not each.beside, f"`{each.name}` is a value and stands beside nothing")
        seen.add(each.name)
    demand(bool(exercise.keeps) or ARGUMENTS_UNCHANGED not in seen, "what is unchanged must be named in `keeps`")
    demand(bool(exercise.forms) or EVERY_FORM not in seen, "what `every_form` judges must stand in `forms`")
    names = [each.name for each in exercise.forms]
    demand(len({*names}) == len(names), f"two hard forms have one name, of {', '.join(names)}: give one another")
    demand(exercise.split is None or not exercise.forms, "an exercise with ranks must not have hard forms")
    demand(bool(exercise.verbs) == (exercise.split is not None), "`split` and `verbs` must be declared together")
    demand(exercise.split is None or exercise.oracle is None, "an exercise with ranks must not have an oracle")
    demand(exercise.split is None or not exercise.withheld, "an exercise with ranks must not withhold inputs")
