"""Reference implementations: unit fsdp."""
