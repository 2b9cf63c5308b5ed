"""Reference implementations: unit gradient_checkpointing."""
