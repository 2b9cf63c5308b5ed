"""Right and wrong answers of unit `gradient_checkpointing`."""
