"""Right and wrong answers of unit `lora`."""
