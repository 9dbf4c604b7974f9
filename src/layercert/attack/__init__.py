"""Witnesses: points of another class, found by attacks, settled in exact arithmetic."""
