"""The small GPT and one large layer at few bits: what is kept, what is lost, the time of a forward pass and of a step.

    python benchmarks/quantization.py [--side 1024] [--rows 64] [--repeats 15] [--windows 128]

Layers are float32, bfloat16, the packed ones of the reference, torch's own products with packed weights, and torchao's
where it is installed. In every turn each takes one forward pass: times are CPU seconds of one thread, and ratios to
float32 are taken within one turn. Bytes are those of the storage that the weights (codes, steps, tables, biases too)
keep; the file is the whole model, written by torch.save. The error is that of the outputs, |y - float32's| over
|float32's|; the perplexity is over text that no training saw. Schemes that have no layer here give back a float weight:
of them there is the size of a file with packed codes, and no time.

A step of training is forward, backward and AdamW on adapters beside these layers (and, in one row, on all weights),
over a base in float32 and over bases of 4 bits; its ratios are taken within one turn, too. The peak is the most that
`metered` sees after any op of a third step, the model included.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import io
import math
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from measuring import machine, table
from rich.console import Console
from torch import Tensor, nn

from course.lessons import floor, grammar
from course.lessons.experiments import four_bits
from course.lessons.experiments.small_gpt import judged, small_gpt
from course.lessons.models import next_token_loss
from course.meter import metered
from course.reference.lora.adapters import LoRA
from course.reference.quantization.gptq_quantize import gptq_quantize
from course.reference.quantization.layers import Int4Linear, Int8Linear, LoRA4, NF4Linear
from course.reference.quantization.two_factor_quantize import two_factor_quantize

FLOAT, GROUP, KB = "float32", 32, 1_000
BATCH, CALIBRATION = 32, 128  # windows of a timed pass; of the Hessians
R, ALPHA = 8, 16.0
BASE, ALL = "LoRA, float32 base", "all weights"
Change = Callable[[nn.Module], nn.Module]


class Problem(NamedTuple):
    """build: a model whose linear layers are to change; x: inputs of a pass; perplexity: of a model, if it has one."""

    name: str
    build: Callable[[], nn.Module]
    x: Tensor
    perplexity: Callable[[nn.Module], float] | None


class TorchInt8(nn.Module):
    """int8 weight with a step for each row, bfloat16 inputs: torch's own product."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        step = linear.weight.abs().amax(dim=1, keepdim=True) / 127
        self.register_buffer("codes", (linear.weight / step).round().to(torch.int8))
        self.register_buffer("step", step.flatten().bfloat16())
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).bfloat16()
        y = torch._weight_int8pack_mm(rows, self.codes, self.step).to(x.dtype).reshape(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias


class TorchInt4(nn.Module):
    """4-bit weight with a step and a middle for each group of a row, bfloat16 inputs: torch's own product on a CPU."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        groups = linear.weight.reshape(len(linear.weight), -1, GROUP)
        low, high = groups.amin(dim=-1), groups.amax(dim=-1)
        step = ((high - low) / 15).bfloat16()
        codes = ((groups - low[..., None]) / step[..., None].float()).round().clamp(0, 15).int()
        self.register_buffer("packed", torch._convert_weight_to_int4pack_for_cpu(codes.reshape(linear.weight.shape), 1))
        middle = (low + 8 * step.float()).bfloat16()
        self.register_buffer("scales", torch.stack([step, middle], dim=-1).transpose(0, 1).contiguous())
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).bfloat16()
        y = torch._weight_int4pack_mm_for_cpu(rows, self.packed, GROUP, self.scales).to(x.dtype)
        return y.reshape(*x.shape[:-1], -1) if self.bias is None else y.reshape(*x.shape[:-1], -1) + self.bias


class Half(nn.Module):
    """A layer in bfloat16 between others in float32."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear.bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x.bfloat16())
        return y.to(x.dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=1_024, help="of the large layer")
    parser.add_argument("--rows", type=int, default=64, help="of its input")
    parser.add_argument("--repeats", type=int, default=15, help="turns")
    parser.add_argument("--windows", type=int, default=128, help="of 64 characters, for perplexities")
    given = parser.parse_args()
    console = Console(width=130)
    torch.set_num_threads(1)
    console.print(f"{machine()}, torch {torch.__version__}; load {os.getloadavg()[0]:.1f} at the start")
    ways = {**changes(), **torchaos(console)}
    with torch.no_grad():
        for problem in (the_gpt(given.windows), large_layer(given.side, given.rows)):
            report(console, problem, ways, given.repeats)
        schemes(console, given.windows)
    for problem in (the_gpt(given.windows), large_layer(given.side, given.rows)):
        steps(console, problem, given.repeats)
    console.print(f"load {os.getloadavg()[0]:.1f} at the end")


# --- ways ----------------------------------------------------------------------------------------------


def changes() -> dict[str, Change]:
    """By name: what is made of a model."""
    return {
        FLOAT: lambda model: model,
        "bfloat16": partial(_replaced, by=Half),
        "int8, ours": partial(_replaced, by=lambda each: Int8Linear(each.weight, each.bias)),
        f"4 bits, groups of {GROUP}, ours": partial(_replaced, by=partial(Int4Linear.from_linear, block=GROUP)),
        "NF4, blocks of 64, ours": partial(_replaced, by=NF4Linear.from_linear),
        "int8 weight, torch's": partial(_replaced, by=TorchInt8),
        f"4 bits, groups of {GROUP}, torch's": partial(_replaced, by=TorchInt4),
    }


def torchaos(console: Console) -> dict[str, Change]:
    """The same by torchao, where it is installed."""
    if not importlib.util.find_spec("torchao"):
        console.print("torchao is not installed: pip install -c constraints.txt torchao")
        return {}
    import torchao
    from torchao import quantization

    console.print(f"torchao {torchao.__version__}")

    def by(config: Any) -> Change:
        def change(model: nn.Module) -> nn.Module:
            quantization.quantize_(model.blocks if hasattr(model, "blocks") else model, config)
            return model

        return change

    return {
        "int8 weight, torchao's": by(quantization.Int8WeightOnlyConfig()),
        "int8, torchao's": by(quantization.Int8DynamicActivationInt8WeightConfig()),
    }


def _replaced(model: nn.Module, by: Callable[[nn.Linear], nn.Module]) -> nn.Module:
    """The model with its layers replaced; of the GPT, those of its blocks."""
    for owner in [*(model.blocks if hasattr(model, "blocks") else model).modules()]:
        for name, each in [*owner.named_children()]:
            if type(each) is nn.Linear:
                setattr(owner, name, by(each))
    return model


# --- problems ------------------------------------------------------------------------------------------


def the_gpt(windows: int) -> Problem:
    """Its own text, in the northern dialect."""
    inputs, targets = judged(grammar.NORTH, windows)

    def perplexity(model: nn.Module) -> float:
        return math.exp(next_token_loss(model(inputs), targets).item())

    least = math.exp(floor.perfect_loss(grammar.NORTH, targets))
    return Problem(f"the small GPT; the floor of perplexity is {least:.4f}", small_gpt, inputs[:BATCH], perplexity)


def large_layer(side: int, rows: int) -> Problem:
    """Normal numbers."""
    rng = torch.Generator().manual_seed(0)
    weight, x = torch.randn(side, side, generator=rng) / side**0.5, torch.randn(rows, side, generator=rng)

    def build() -> nn.Module:
        layer = nn.Linear(side, side, bias=False)
        layer.weight = nn.Parameter(weight.clone())
        return nn.Sequential(layer)

    return Problem(f"one layer of {side:,} x {side:,}, {rows} rows", build, x, None)


# --- measuring -----------------------------------------------------------------------------------------


def report(console: Console, problem: Problem, ways: dict[str, Change], repeats: int) -> None:
    """A row for each way; one that this build lacks says so."""
    made = table(problem.name, "layers", "kept, kB", "of float32", "file, kB", "error", "perplexity", "time")
    models: dict[str, nn.Module] = {}
    for name, change in ways.items():
        try:
            model = change(problem.build())
            model(problem.x)
            models[name] = model
        except (AttributeError, NotImplementedError, RuntimeError) as missing:
            console.print(f"{name}: not in this build ({type(missing).__name__}: {str(missing).splitlines()[0][:80]})")
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(repeats + 2):
        for name, model in models.items():
            start = time.process_time()
            model(problem.x)
            if turn > 1:
                seconds[name].append(time.process_time() - start)
    exact, most = models[FLOAT](problem.x), kept(models[FLOAT])
    for name, model in models.items():
        error = float((model(problem.x) - exact).norm() / exact.norm())
        made.add_row(
            name,
            f"{kept(model) / KB:,.1f}",
            f"{kept(model) / most:.3f}",
            f"{_file(model) / KB:,.1f}",
            f"{error:.3%}",
            f"{problem.perplexity(model):.4f}" if problem.perplexity else "",
            _time(seconds[name], seconds[FLOAT], name),
        )
    console.print(made)


def schemes(console: Console, windows: int) -> None:
    """The small GPT with weights that came back from each scheme: bits counted, error of the weights, perplexity."""
    text, model = judged(grammar.NORTH, windows), small_gpt()
    weights = {name: each.weight for name, each in four_bits.matrices(model).items()}
    hessians = {
        name: x.T @ x
        for name, x in four_bits.inputs_of(model, judged(grammar.NORTH, CALIBRATION, seed=2_000)[0]).items()
    }

    def gptq(name: str, w: Tensor, bits: int) -> four_bits.Kept:
        step = four_bits.steps_of(w, bits, w.shape[1])
        codes = gptq_quantize(w, hessians[name], step, bits, four_bits.DAMP)
        return four_bits.on_grid(codes, step, bits, w.shape)

    def apart(name: str, w: Tensor, way: Callable[[Tensor], four_bits.Kept]) -> four_bits.Kept:
        return way(w)

    ways = [
        (name, partial(apart, way=way))
        for name, several in four_bits.schemes({"two_factor_quantize": two_factor_quantize}).items()
        for way in several
    ]
    ways += [("GPTQ, per channel", partial(gptq, bits=bits)) for bits in four_bits.BITS]
    heads = ("scheme", "bits per weight", "of float32", "file, kB", "error", "perplexity")
    made = table("the small GPT's matrices, as they come back from packed codes", *heads)
    for name, keep in ways:
        bits, loss, size = four_bits.loss_with(keep, text)
        lost = math.sqrt(sum(float((keep(key, w).near - w).square().sum()) for key, w in weights.items()))
        error = lost / math.sqrt(sum(float(w.square().sum()) for w in weights.values()))
        cells = (f"{bits:.3f}", f"{bits / 32:.3f}", f"{size / KB:,.1f}", f"{error:.3%}", f"{math.exp(loss):.4f}")
        made.add_row(name, *cells)
    console.print(made)


# --- a step of training --------------------------------------------------------------------------------


class Training(NamedTuple):
    """A model in training."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    x: Tensor

    def step(self) -> None:
        """Forward, backward, update."""
        self.optimizer.zero_grad()
        loss: Tensor = self.model(self.x).square().mean()
        loss.backward()
        self.optimizer.step()


def trainings() -> dict[str, Change | None]:
    """By name: what is made of each layer. None: all is trained."""
    rng = torch.Generator().manual_seed(0)
    return {
        BASE: lambda each: LoRA(each, R, ALPHA, rng),
        f"LoRA, 4 bits, groups of {GROUP}": lambda each: LoRA4(
            Int4Linear.from_linear(each, block=GROUP), R, ALPHA, rng
        ),
        "LoRA, NF4, blocks of 64": lambda each: LoRA4(NF4Linear.from_linear(each), R, ALPHA, rng),
        ALL: None,
    }


def training(problem: Problem, change: Change | None) -> Training:
    """A model of its own. The input of the large layer needs its gradient, as inside a model."""
    model = problem.build()
    if change is not None:
        model = _replaced(model.requires_grad_(requires_grad=False), by=change)
    x = problem.x.clone().requires_grad_() if problem.x.is_floating_point() else problem.x
    trained = [each for each in model.parameters() if each.requires_grad]
    return Training(model, torch.optim.AdamW(trained, lr=1e-4), x)


def steps(console: Console, problem: Problem, repeats: int) -> None:
    """A row for each way to train: what it holds, and the time of a step over that with a base in float32."""
    heads = ("trained", "numbers", "model, kB", "of float32's", "peak, kB", "step")
    made = table(f"a step of training: {problem.name.split(';')[0]}", *heads)
    runs = {name: training(problem, change) for name, change in trainings().items()}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 2):
        for name, run in runs.items():
            start = time.process_time()
            run.step()
            if turn > 1:  # the first ones make states
                seconds[name].append(time.process_time() - start)
    whole = _bytes(runs[BASE].model)
    for name, run in runs.items():
        numbers = sum(each.numel() for each in run.model.parameters() if each.requires_grad)
        size, peak = _bytes(run.model), _peak(problem, trainings()[name])
        beside = _time(seconds[name], seconds[BASE], FLOAT if name == BASE else name)
        made.add_row(name, f"{numbers:,}", f"{size / KB:,.1f}", f"{size / whole:.3f}", f"{peak / KB:,.1f}", beside)
    console.print(made)


def _peak(problem: Problem, change: Change | None) -> int:
    with metered() as seen:
        run = training(problem, change)
        for _ in range(2):
            run.step()
        gc.collect()
        begin = len(seen.trace)
        run.step()
    return max(op.live for op in seen.trace[begin:])


def _bytes(model: nn.Module) -> int:
    return sum(each.nbytes for each in (*model.parameters(), *model.buffers()))


# --- bytes and time ------------------------------------------------------------------------------------


def kept(model: nn.Module) -> int:
    """Bytes of the layers that are changed: of the GPT, its blocks'."""
    part = model.blocks if hasattr(model, "blocks") else model
    tensors = [each for layer in part.modules() if not isinstance(layer, nn.LayerNorm) for each in _own(layer)]
    return sum(each.nbytes for each in tensors)


def _own(layer: nn.Module) -> list[Tensor]:
    """Plain tensors of a layer; torchao's tensors hold several."""
    found: list[Tensor] = []
    for each in (*layer.parameters(recurse=False), *layer.buffers(recurse=False)):
        names = each.__tensor_flatten__()[0] if hasattr(each, "__tensor_flatten__") else ()
        found += [part for name in names if isinstance(part := getattr(each, name), Tensor)] or [each.detach()]
    return found


def _file(model: nn.Module) -> int:
    written = io.BytesIO()
    torch.save(model.state_dict(), written)
    return written.tell()


def _time(seconds: list[float], beside: list[float], name: str) -> str:
    if name == FLOAT:
        return f"{1e3 * statistics.median(seconds):.2f} ms"
    return f"{statistics.median(a / b for a, b in zip(seconds, beside, strict=True)):.2f}"


if __name__ == "__main__":
    main()
