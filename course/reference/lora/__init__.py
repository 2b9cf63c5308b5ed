"""Reference implementations: unit lora."""
