"""Right and wrong answers of unit `ddp`."""
