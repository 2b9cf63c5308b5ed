"""Reference implementations."""
