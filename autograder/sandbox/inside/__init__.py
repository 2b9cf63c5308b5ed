"""What runs beside students' code, behind the walls."""
