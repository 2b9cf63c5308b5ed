"""Hostile submissions, each with what it honestly deserves; see README.md."""

from __future__ import annotations

from attacks import (
    bombs,
    cells,
    files,
    forging,
    frames,
    hiding,
    hoards,
    hooks,
    insiders,
    killing,
    markup,
    network,
    reading,
    sharing,
    writing,
)
from attacks.attack import Attack, Places

FAMILIES: dict[str, list[Attack]] = {
    "hooks": hooks.ATTACKS,
    "forging": forging.ATTACKS,
    "hiding": hiding.ATTACKS,
    "hoards": hoards.ATTACKS,
    "insiders": insiders.ATTACKS,
    "frames": frames.ATTACKS,
    "sharing": sharing.ATTACKS,
    "reading": reading.ATTACKS,
    "writing": writing.ATTACKS,
    "network": network.ATTACKS,
    "killing": killing.ATTACKS,
    "bombs": bombs.ATTACKS,
    "cells": cells.ATTACKS,
    "markup": markup.ATTACKS,
    "files": files.ATTACKS,
}


def notebooks() -> list[tuple[str, bytes]]:
    """(name, file) of every attack that fits into a soak: what it looks for is not there, and nobody listens."""
    return [
        (f"{family}_{attack.name}", attack.make(Places()))
        for family, attacks in FAMILIES.items()
        for attack in attacks
        if not attack.heavy and attack.beside is None
    ]
