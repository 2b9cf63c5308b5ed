"""Right and wrong answers of unit `mixed_precision`."""
