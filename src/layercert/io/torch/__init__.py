"""PyTorch modules, read as in evaluation mode: `read_module`."""

from __future__ import annotations

from layercert.io.torch.read import read_module

__all__ = ["read_module"]
