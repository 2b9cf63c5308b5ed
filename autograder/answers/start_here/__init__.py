"""Right and wrong answers of unit `start_here`."""
