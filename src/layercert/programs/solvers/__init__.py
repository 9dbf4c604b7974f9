"""Adapters of distance solvers, one per file: each translates a family of programs, none decides anything.

The packages behind them are imported when a program is solved, never when this package is.
"""
