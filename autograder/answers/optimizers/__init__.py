"""Right and wrong answers of unit `optimizers`."""
