"""What runs beside students' code, isolated from everything else."""
