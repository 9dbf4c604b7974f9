"""Activation patterns, their regions and faces as polyhedra, and the hierarchy of partial regions (section 3)."""

from layercert.geometry.cells import Cell, Cells, row_margins
from layercert.geometry.centred import CentredCells
from layercert.geometry.polyhedron import Polyhedron

__all__ = ["Cell", "Cells", "CentredCells", "Polyhedron", "row_margins"]
