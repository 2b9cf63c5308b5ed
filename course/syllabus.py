"""The one ordered list of units and exercises.

A unit is one lesson and one slug; an exercise's id is `slug.entry`. Points are not here: an exercise is worth
the sum of its properties (`course.performing.exercise.Exercise.points`), so that no number is typed twice.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from course.errors import UnknownExercise


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One exercise as the syllabus plans it: minutes of work and difficulty from 1 to 5."""

    unit: str
    name: str
    minutes: int
    difficulty: int
    bonus: bool = False

    @property
    def id(self) -> str:
        """`unit.entry`, unique in the course."""
        return f"{self.unit}.{self.name}"


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One lesson: its number only orders the notebooks."""

    number: int
    slug: str
    title: str
    question: str
    entries: tuple[Entry, ...]

    @property
    def notebook(self) -> str:
        """Stem of the notebook, which is also the name of the nbgrader assignment."""
        return f"{self.number:02d}_{self.slug}"


def _unit(number: int, slug: str, title: str, question: str, *rows: tuple[str, int, int]) -> Unit:
    """A unit from rows of (name, minutes, difficulty); a name that starts with `B ` is a bonus."""
    entries = tuple(
        Entry(
            unit=slug,
            name=name.removeprefix("B "),
            minutes=minutes,
            difficulty=difficulty,
            bonus=name.startswith("B "),
        )
        for name, minutes, difficulty in rows
    )
    return Unit(number=number, slug=slug, title=title, question=question, entries=entries)


UNITS: tuple[Unit, ...] = (
    _unit(
        0,
        "start_here",
        "Start here",
        "How does this course tell me that my code is right?",
        ("running_mean", 5, 1),
    ),
    _unit(
        1,
        "computational_graphs",
        "Computational graphs",
        "How does a framework know the gradient, and what must it remember?",
        ("quadratic_grads", 5, 1),
        ("topological_order", 10, 3),
        ("backward", 15, 3),
        ("hinge_backward", 7, 2),
        ("unbroadcast", 10, 3),
        ("linear_vjp", 10, 3),
        ("softmax_cross_entropy", 20, 3),
        ("SaveLess", 15, 3),
        ("accumulate_gradients", 15, 4),
        ("B hvp", 10, 3),
    ),
    _unit(
        2,
        "optimizers",
        "Optimizers",
        "What does each term in Adam buy?",
        ("sgd_step", 15, 2),
        ("minibatch_gradient", 10, 2),
        ("adaptive_step", 20, 3),
        ("adamw_step", 20, 3),
        ("warmup_cosine", 10, 2),
        ("clip_grad_norm_", 10, 2),
        ("mend_the_notes", 15, 2),
        ("gradient_noise_scale", 20, 4),
        ("optimizer_bytes", 20, 3),
        ("largest_batch", 15, 3),
        ("factored_second_moment", 15, 3),
        ("orthogonalize", 15, 3),
    ),
    _unit(
        3,
        "mixed_precision",
        "Mixed precision",
        "Where do the bits go, and which ones may be dropped?",
        ("round_to", 20, 3),
        ("compensated_sum", 20, 3),
        ("compensated_bound", 20, 4),
        ("stochastic_round", 15, 3),
        ("LossScaler", 25, 3),
        ("first_overflow", 10, 2),
        ("master_step", 10, 2),
        ("Autocast", 20, 3),
        ("mend_the_runs", 20, 3),
        ("training_bytes", 15, 2),
        ("scaled_fp8_matmul", 25, 4),
        ("choose_precisions", 20, 3),
    ),
    _unit(
        4,
        "gradient_checkpointing",
        "Gradient checkpointing",
        "How little can backward remember?",
        ("backward_keep_all", 8, 1),
        ("backward_keep_none", 10, 2),
        ("backward_checkpointed", 20, 3),
        ("chain_costs", 15, 2),
        ("longest_chain", 20, 4),
        ("checkpoint", 30, 4),
        ("mend_the_steps", 15, 3),
        ("best_cuts", 25, 4),
        ("policy", 10, 2),
        ("attention_tiled", 25, 4),
        ("attention_tiled_backward", 20, 4),
        ("B reversible_backward", 15, 3),
        ("find_stall", 15, 3),
        ("utilization", 12, 2),
    ),
    _unit(
        5,
        "ddp",
        "Data parallelism",
        "How do many workers take one step?",
        ("ring_reduce_scatter", 25, 3),
        ("ring_all_gather", 10, 2),
        ("ring_all_reduce", 20, 3),
        ("tree_broadcast", 20, 3),
        ("most_sent", 8, 2),
        ("tree_wins_below", 15, 2),
        ("explain_deadlock", 30, 4),
        ("shard_indices", 12, 2),
        ("broadcast_parameters", 12, 2),
        ("reduce_gradients", 25, 4),
        ("accumulate", 20, 3),
        ("sync_batch_norm", 40, 4),
        ("make_buckets", 20, 2),
        ("overlapped_backward", 35, 4),
        ("step_seconds", 15, 3),
        ("choose_reduction", 30, 4),
        ("mend_the_workers", 15, 3),
    ),
    _unit(
        6,
        "fsdp",
        "Sharding",
        "What must each worker hold, and when?",
        ("zero_bytes", 10, 2),
        ("smallest_stage", 5, 1),
        ("shard_flat", 12, 2),
        ("unshard", 12, 2),
        ("zero1_step", 30, 4),
        ("zero2_backward", 35, 4),
        ("zero_traffic", 12, 2),
        ("unit_forward", 20, 3),
        ("unit_backward", 25, 3),
        ("run_units", 45, 4),
        ("wrap_policy", 25, 3),
        ("mend_the_ledgers", 15, 3),
        ("choose_sharding", 45, 4),
        ("sharded_clip_", 12, 2),
        ("sharded_scaler_step", 20, 3),
        ("save_sharded", 25, 4),
        ("load_resharded", 30, 4),
    ),
    _unit(
        7,
        "lora",
        "LoRA",
        "How few numbers must change?",
        ("best_rank_r", 12, 2),
        ("lora_parameters", 10, 2),
        ("lora_grads", 15, 3),
        ("LoRALinear", 20, 3),
        ("merge_", 12, 2),
        ("unmerge_", 8, 2),
        ("inject", 20, 3),
        ("mend_the_adapters", 15, 3),
        ("adapter_state", 10, 2),
        ("load_adapter", 15, 3),
        ("mixed_adapter_forward", 20, 3),
        ("finetune_bytes", 12, 2),
        ("choose_ranks", 25, 4),
    ),
    _unit(
        8,
        "quantization",
        "Quantization",
        "What survives at four bits?",
        ("qparams", 15, 2),
        ("quantize", 10, 2),
        ("dequantize", 5, 1),
        ("best_step", 20, 4),
        ("pack_int4", 12, 2),
        ("unpack_int4", 8, 2),
        ("int8_matmul", 15, 3),
        ("Int8Linear", 20, 3),
        ("split_outliers", 15, 3),
        ("fake_quant", 12, 2),
        ("nf4_quantize", 20, 3),
        ("bits_per_weight", 10, 2),
        ("gptq_quantize", 35, 4),
        ("kashin_split", 25, 4),
        ("two_factor_quantize", 25, 4),
        ("mend_the_quantizers", 15, 3),
        ("choose_bits", 30, 4),
        ("B adam8_step", 20, 3),
    ),
)


def entries() -> tuple[Entry, ...]:
    """Every exercise of the course, in order."""
    return tuple(entry for unit in UNITS for entry in unit.entries)


def find_unit(name: str) -> Unit:
    """The unit with this slug or notebook stem. Raises UnknownExercise, naming the nearest."""
    for unit in UNITS:
        if name in (unit.slug, unit.notebook):
            return unit
    raise UnknownExercise(_no_such("unit", name, [unit.slug for unit in UNITS]))


def find_entry(name: str) -> Entry:
    """The exercise with this entry name or id. Raises UnknownExercise, naming the nearest."""
    for entry in entries():
        if name in (entry.name, entry.id):
            return entry
    raise UnknownExercise(_no_such("exercise", name, [entry.name for entry in entries()]))


def find_entries(name: str) -> tuple[Entry, ...]:
    """The exercises of this unit, or the one exercise of this name. Raises UnknownExercise, naming the nearest."""
    units = [unit for unit in UNITS if name in (unit.slug, unit.notebook)]
    return units[0].entries if units else (find_entry(name),)


def _no_such(kind: str, name: str, known: list[str]) -> str:
    folded = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.rpartition(".")[2].lower(), folded, n=1, cutoff=0.5)
    advice = f"did you mean `{folded[near[0]]}`?" if near else f"the {kind}s are: {', '.join(known)}."
    return f"`{name}` is no {kind} of this course; {advice}"
