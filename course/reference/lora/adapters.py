"""LoRA for any model of linear layers: put adapters in, train them, merge them, and exchange them with peft as files.

    nn.Linear --inject--> LoRA --train A and B--> save_adapter --> adapter_config.json, adapter_model.safetensors
                          LoRA --merge--> one product again --unmerge--> LoRA
    nn.Linear --load_adapter(folder)--> LoRA

words
    base     the layer or model that is adapted: W (m, n), frozen
    adapter  the factors A (r, n) and B (m, r) of a layer, or of all layers together; y = x W' + scale * (x A') B'

The files are those of peft 0.21 for adapters that are made of such factors alone: what peft offers besides (DoRA,
trained biases, whole modules, scales alpha / sqrt(r)) is refused by its name, never dropped.

Source: LoRA, Hu et al., arXiv 2106.09685, section 4.1.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from course.errors import BadArgument, CourseError

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."  # peft's wrapper stands around the model when it names tensors
PLAIN: dict[str, tuple[object, ...]] = {  # settings of peft's under which a file says all with A, B, r and alpha
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "init_lora_weights": (True, False, "gaussian", "orthogonal", None),  # the others change the base, too
    **dict.fromkeys(("use_dora", "use_rslora", "fan_in_fan_out", "lora_bias", "use_qalora"), (False, None)),
    **dict.fromkeys(("modules_to_save", "layer_replication", "trainable_token_indices"), (None, [], {})),
    **dict.fromkeys(("target_parameters", "alora_invocation_tokens"), (None, [])),
    **dict.fromkeys(("velora_config", "monteclora_config", "arrow_config", "kasa_config", "use_bdlora"), (None,)),
}


class LoRA(nn.Module):
    """A linear layer with an adapter beside it: x (..., n) to base(x) + scale * (x A') B', (..., m).

    r, alpha  scale = alpha / r
    rng       draws A, normal with deviation 1 / sqrt(n); torch's global generator without one. B is 0

    A and B are in the dtype and on the device of the base's weight. A token costs r (m + n) multiplications besides the
    base's m n. Only merge and unmerge make something as large as the weight. Raises BadArgument for r below 1, or
    alpha not above 0.
    """

    def __init__(self, base: nn.Linear, r: int, alpha: float, rng: torch.Generator | None = None) -> None:
        super().__init__()
        if r < 1 or not 0 < alpha < math.inf:
            raise BadArgument(f"r must be at least 1 and alpha above 0 and finite, got {r} and {alpha}")
        m, n = base.weight.shape
        drawn = torch.randn(r, n, generator=rng, device=rng.device if rng else None) / math.sqrt(n)
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(drawn.to(base.weight))
        self.B = nn.Parameter(base.weight.new_zeros(m, r))
        self.alpha, self.scale, self.merged = alpha, alpha / r, False

    @property
    def r(self) -> int:
        """The adapter's rank."""
        return len(self.A)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., n) to (..., m)."""
        y: Tensor = self.base(x)
        return y if self.merged else y + self.scale * (x @ self.A.T @ self.B.T)

    def extra_repr(self) -> str:
        """What a printed model says of it."""
        return f"r={self.r}, alpha={self.alpha:g}{', merged' if self.merged else ''}"

    @torch.no_grad()
    def add_to_base(self, sign: int) -> None:
        """W <- W + sign * scale B A, in place, computed in float32 or W's dtype if that is wider, and rounded once."""
        weight = self.base.weight
        wide = torch.promote_types(weight.dtype, torch.float32)
        weight.copy_(torch.addmm(weight.to(wide), self.B.to(wide), self.A.to(wide), alpha=sign * self.scale))


def adapted(model: nn.Module) -> Iterator[tuple[str, LoRA]]:
    """The layers that have an adapter, each once, with their names in the model."""
    return ((name, module) for name, module in model.named_modules() if isinstance(module, LoRA))


def inject(model: nn.Module, pattern: str, r: int, alpha: float, rng: torch.Generator | None = None) -> list[str]:
    """Puts an adapter beside each nn.Linear whose whole name matches the regular expression, and freezes all the rest.

    Returns the names, in the model's order. Other adapters, from an earlier call, stay and train on: with several calls
    each pattern has its own r. A layer that stands in several places is wrapped once, under its first name, and is the
    same in all. What is the base of an adapter already is not looked at.

    Raises BadArgument where nothing matches, or the model itself is the layer; nothing has changed then.
    """
    names = [name for name, _ in _linears(model) if re.fullmatch(pattern, name)]
    if not names:
        raise BadArgument(f"pattern must match the name of a linear layer inside the model, got {pattern!r}")
    made = {name: LoRA(layer, r, alpha, rng) for name, layer in _linears(model) if name in names}
    _put(model, made)
    return names


def merge(model: nn.Module) -> None:
    """Adds all adapters to the weights of their bases: the model computes the same without the small products.

    Merged ones stay as they are. A and B get no gradients while they are merged. Where another module holds the same
    weight, as an embedding that is tied to the head does, it changes there as well.
    """
    for _, layer in adapted(model):
        if not layer.merged:
            layer.add_to_base(+1)
            layer.merged = True


def unmerge(model: nn.Module) -> None:
    """Takes merged adapters off again. The weights come back up to one rounding of each merged number."""
    for _, layer in adapted(model):
        if layer.merged:
            layer.add_to_base(-1)
            layer.merged = False


# --- files ---------------------------------------------------------------------------------------------


def save_adapter(model: nn.Module, folder: Path) -> None:
    """Writes the adapters of all layers, and nothing of the base, as peft does. Raises BadArgument where there is none.

    Sizes are those of the factors: r (m + n) numbers of each layer in the dtype that they have.
    """
    layers = dict(adapted(model))
    if not layers:
        raise BadArgument("model must have adapters to be saved, got none: call inject first")
    (r, alpha), _ = Counter((layer.r, layer.alpha) for layer in layers.values()).most_common(1)[0]
    config = {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": None,
        "inference_mode": True,
        # A text is a regular expression for whole names. A list would match ends: "0" the module "1.0", too.
        "target_modules": "|".join(map(re.escape, layers)),
        "r": r,
        "lora_alpha": alpha,
        "rank_pattern": {f"^{re.escape(name)}": each.r for name, each in layers.items() if each.r != r},
        "alpha_pattern": {f"^{re.escape(name)}": each.alpha for name, each in layers.items() if each.alpha != alpha},
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
    }
    tensors = {
        f"{PREFIX}{name}.lora_{factor}.weight": getattr(layer, factor).detach().cpu().contiguous()
        for name, layer in layers.items()
        for factor in "AB"
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / TENSORS, {"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def load_adapter(model: nn.Module, folder: Path) -> list[str]:
    """Puts the adapters of a folder, ours or peft's, into the model; returns the names of their layers, in its order.

    A layer without an adapter gets one, and all the rest of the model is frozen. One that has an adapter of the same r
    keeps its parameters, which take the new numbers and the new scale. Numbers are cast to the dtype of the weight.
    A dropout that was trained with is not used.

    Raises CourseError, with everything that is wrong and before anything has changed: a file that cannot be read, or
    says more than A, B, r and alpha; layers that the model has not, of other shapes, or merged at present; and adapters
    in the model of which the folder has nothing.
    """
    config, factors = _read(Path(folder))
    layers: dict[str, nn.Module] = {**dict(_linears(model)), **dict(adapted(model))}
    wrong = [sentence for name in factors for sentence in _mismatch(name, layers.get(name), factors[name], config)]
    wrong += [f"{name} has an adapter that the folder has not" for name, _ in adapted(model) if name not in factors]
    if wrong:
        raise CourseError(f"{folder} must hold an adapter of this model, but {'; '.join(wrong)}")
    made = {}
    for name, (A, B) in factors.items():
        layer, alpha = layers[name], _alpha(name, config)
        if isinstance(layer, nn.Linear):
            layer = made[name] = LoRA(layer, len(A), alpha)
        assert isinstance(layer, LoRA)
        layer.alpha, layer.scale = alpha, alpha / layer.r
        with torch.no_grad():
            layer.A.copy_(A)
            layer.B.copy_(B)
    _put(model, made)
    return [name for name, _ in adapted(model)]


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, tuple[Tensor, Tensor]]]:
    """The settings, and A and B of each layer. Raises CourseError."""
    try:
        config = dict(json.loads((folder / CONFIG).read_text()))
        tensors = load_file(folder / TENSORS)
    except (OSError, TypeError, ValueError, SafetensorError) as error:
        raise CourseError(f"{folder} must hold {CONFIG} and {TENSORS}, but {error}") from error
    others = [f"{name} is {config.get(name)!r}" for name, allowed in PLAIN.items() if config.get(name) not in allowed]
    others += [f"{name} is missing" for name in ("r", "lora_alpha") if name not in config]
    names = [re.fullmatch(rf"{re.escape(PREFIX)}(.+)\.lora_([AB])\.weight", name) for name in tensors]
    others += [f"there is a tensor {name}" for name, match in zip(tensors, names, strict=True) if not match]
    layers = list(dict.fromkeys(match[1] for match in names if match))
    key = f"{PREFIX}{{}}.lora_{{}}.weight"
    others += [f"{layer} has one factor" for layer in layers if len(_both(tensors, key, layer)) < 2]
    if others:
        raise CourseError(f"{folder} must hold an adapter of factors alone, but {'; '.join(others)}")
    return config, {layer: (tensors[key.format(layer, "A")], tensors[key.format(layer, "B")]) for layer in layers}


def _both(tensors: Mapping[str, Tensor], key: str, layer: str) -> list[str]:
    return [factor for factor in "AB" if key.format(layer, factor) in tensors]


def _mismatch(
    name: str, layer: nn.Module | None, factors: tuple[Tensor, Tensor], config: Mapping[str, Any]
) -> Iterator[str]:
    """What keeps these factors from being put into this layer."""
    if layer is None:
        yield f"the model has no linear layer {name}"
        return
    base = layer.base if isinstance(layer, LoRA) else layer
    assert isinstance(base, nn.Linear)
    (m, n), (A, B) = base.weight.shape, factors
    r, alpha = layer.r if isinstance(layer, LoRA) else _of(name, config, "rank_pattern", "r"), _alpha(name, config)
    if A.shape != (r, n) or B.shape != (m, r):
        yield f"{name} takes factors of shapes {(r, n)} and {(m, r)}, got {tuple(A.shape)} and {tuple(B.shape)}"
    if not 0 < alpha < math.inf:
        yield f"{name} has alpha {alpha}"
    if isinstance(layer, LoRA) and layer.merged:
        yield f"{name} is merged: call unmerge first"


def _of(name: str, config: Mapping[str, Any], pattern: str, otherwise: str) -> Any:
    """A setting of one layer: that of the first expression that matches the end of its name, as peft has it."""
    rows: Mapping[str, Any] = config.get(pattern) or {}
    return next((rows[each] for each in rows if re.match(rf"(.*\.)?({each})$", name)), config[otherwise])


def _alpha(name: str, config: Mapping[str, Any]) -> float:
    return float(_of(name, config, "alpha_pattern", "lora_alpha"))


# --- places in the model ---------------------------------------------------------------------------------


def _linears(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """Linear layers inside the model that have no adapter, each once, under its first name."""
    bases = {id(layer.base) for _, layer in adapted(model)}
    for name, module in model.named_modules():
        if name and isinstance(module, nn.Linear) and id(module) not in bases:
            yield name, module


def _put(model: nn.Module, made: Mapping[str, LoRA]) -> None:
    """These in all places of their bases; then A and B of every adapter are trained, and nothing else."""
    by_base = {id(layer.base): layer for layer in made.values()}
    places = [(module, name) for module in model.modules() for name, child in module._modules.items() if child]
    for module, name in places:
        child = module._modules[name]
        if not isinstance(module, LoRA) and id(child) in by_base:
            setattr(module, name, by_base[id(child)])
    factors = {id(each) for _, layer in adapted(model) for each in (layer.A, layer.B)}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in factors)
