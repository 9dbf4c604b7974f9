"""What all arrays share."""

from __future__ import annotations

import numpy as np
import pytest

from layercert.arrays import least_squares


def test_least_squares_is_silent_about_what_it_cannot_do(capfd: pytest.CaptureFixture[str]) -> None:
    assert least_squares(np.array([[2.0], [2.0]]), np.array([1.0, 3.0]), 1e-12) == pytest.approx([1.0])
    for bad in (np.inf, np.nan):
        assert least_squares(np.array([[bad, 1.0]]), np.array([1.0]), 1e-12).tolist() == [0.0, 0.0]
        assert least_squares(np.array([[1.0, 1.0]]), np.array([bad]), 1e-12).tolist() == [0.0, 0.0]
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "")  # LAPACK says "illegal value" on the terminal
