"""What all compiled code shares: the decorator, and dense products. Importing this package does not load numba."""
