"""Reference implementations: unit start_here."""
