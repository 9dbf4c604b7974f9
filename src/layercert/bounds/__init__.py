"""Bounds of a network on a ball, a partial region, or both: intervals, linear relaxations, Lipschitz constants."""
