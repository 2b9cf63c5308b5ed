"""Reference implementations: unit ddp."""
