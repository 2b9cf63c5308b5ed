"""Right and wrong answers of unit `fsdp`."""
