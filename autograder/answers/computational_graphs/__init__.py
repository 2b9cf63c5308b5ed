"""Right and wrong answers of unit `computational_graphs`."""
