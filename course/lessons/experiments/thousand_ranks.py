"""A GPT of 1.6 billion parameters on 1,024 ranks that are not there: torch's fully_shard on tensors without data.

measure() --a process of its own--> torch's `fake` backend, FakeTensorMode, FSDPMemTracker --> bytes of rank 0 by class
planned() --the planner--> the same classes, by formula

torch's tracker is a private module (torch.distributed._tools): another version may know other classes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from course.errors import CourseError
from course.lessons.models import GPT, GPTConfig, next_token_loss
from course.planner.memory import KORTHIKANTI

# Few wide blocks: torch's tracker looks at every operator of each.
CONFIG = GPTConfig(vocabulary=50257, context=1024, width=4096, heads=32, layers=7)
RANKS = 1024
SECONDS = 120  # that the process may take
MASKS = 2  # bytes per token and unit of width of two dropout masks, which this model does not have


def measure(ranks: int = RANKS, config: GPTConfig = CONFIG) -> dict[str, int]:
    """Bytes of rank 0 at the peak of the second step, by torch's classes.

    Raises CourseError where the process fails, or does not end in time.
    """
    command = [sys.executable, "-m", __name__, str(ranks), json.dumps(vars(config))]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise CourseError(f"the simulated step must end within {SECONDS} s, and did not: try it again alone") from None
    if ended.returncode:
        raise CourseError(f"the simulated step must end, but: {ended.stderr.strip().splitlines()[-1]}")
    found: dict[str, int] = json.loads(ended.stdout.splitlines()[-1])
    return found


def planned(ranks: int = RANKS, config: GPTConfig = CONFIG) -> dict[str, int]:
    """The same classes by formula, in backward, when the last block but one has been through.

    One block is full then, the next one is being gathered, and gradients are on their way.
    Parameters are cut by rows, so that a rank has ceil(rows / ranks) of each; shards and what is reduced have 4 bytes a
    number, what is gathered 2. Activations are those of Korthikanti et al. (arXiv 2205.05198, section 4.1) without
    dropout and without scores, which fused attention does not keep. What backward computes in between is not planned.
    """
    with torch.device("meta"):
        model = GPT(config)
    root = _own_numbers(model, ranks) - sum(_own_numbers(each, ranks) for each in model.blocks)
    block = _own_numbers(model.blocks[0], ranks)
    kept = (KORTHIKANTI.linear - MASKS) * config.context * config.width
    return {
        "Sharded Param": 4 * _own_numbers(model, ranks),
        "Sharded Grad": 4 * block,
        "OptState": 8 * _own_numbers(model, ranks),
        "Unsharded Param": 2 * ranks * (root + block),
        "All Gather": 2 * ranks * block,
        "Reduce Scatter": 4 * ranks * block,
        "Activation": (config.layers - 2) * kept,
    }


def _own_numbers(module: nn.Module, ranks: int) -> int:
    """Of rank 0, filled up where the rows do not come out even."""
    return sum(-(-len(each) // ranks) * (each.numel() // len(each)) for each in module.parameters())


def table(found: Mapping[str, int], by_formula: Mapping[str, int]) -> Iterator[str]:
    """Class by class, in MB: what torch counted, and the error of the formula."""
    yield f"{'MB':16}{'counted':>9} {'planned':>9}  error"
    for name, count in sorted(found.items(), key=lambda each: -each[1]):
        expected = by_formula.get(name)
        told = f"{expected / 1e6:9.1f}  {expected / count - 1:+.1%}" if expected is not None and count else ""
        if count and name != "Inputs":
            yield f"{name:16}{count / 1e6:9.1f} {told}"


def step(ranks: int, config: GPTConfig) -> dict[str, int]:
    """Two steps of AdamW on one sequence, as rank 0 of so many. It starts torch.distributed for the whole process."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    mesh = init_device_mesh("cpu", (ranks,))  # before FakeTensorMode: it reads its own numbers
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    # On the meta device: torch cuts every parameter for all ranks, and there a cut costs nothing.
    with torch.device("meta"):
        model = GPT(config)
    for each in (*model.blocks, model):
        fully_shard(each, mesh=mesh, mp_policy=policy)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to_empty(device="cpu")
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        tokens = torch.zeros(1, config.context + 1, dtype=torch.int64)
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((tokens,))
        with tracker:
            for _ in range(2):
                tracker.reset_mod_stats()
                _train(model, optimizer, tokens)
        (by_class,) = tracker.get_tracker_snapshot("peak").values()
    return {str(getattr(name, "value", name)): int(count) for name, count in by_class.items()}


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: torch.Tensor) -> None:
    optimizer.zero_grad()
    torch.autograd.backward(next_token_loss(model(tokens[:, :-1]), tokens[:, 1:]))
    optimizer.step()


def main(arguments: list[str]) -> None:
    """Print what `step` finds."""
    ranks, config = arguments
    values: Mapping[str, Any] = json.loads(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print(json.dumps(step(int(ranks), GPTConfig(**values))))


if __name__ == "__main__":
    main(sys.argv[1:])
