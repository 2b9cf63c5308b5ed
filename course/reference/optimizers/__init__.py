"""Reference implementations: unit optimizers."""
