"""Reference implementations: unit quantization."""
