"""What the Makefile calls besides the two packages; the first of them before anything is installed."""
