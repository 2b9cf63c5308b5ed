"""Reference implementations: unit computational_graphs."""
