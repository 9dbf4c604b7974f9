"""What the machine gives: the clock of time limits, BLAS threads, files written whole."""
