"""Reference implementations: unit mixed_precision."""
