"""Right and wrong answers of unit `quantization`."""
