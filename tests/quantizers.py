"""The references of lesson 08, for tests that put them together."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from course.lessons.experiments.assembled_quantization import PARTS


def references() -> dict[str, Callable[..., Any]]:
    """By name."""
    modules = {name: f"course.reference.quantization.{name.lower()}" for name in PARTS.names}
    return {name: getattr(importlib.import_module(module), name) for name, module in modules.items()}
