"""Certificates made from what a search leaves; `layercert.certificate` claims and checks, and imports none of this."""

from layercert.certify.prove import BY_BALLS, BY_RATIONALS, prove
from layercert.certify.recording import Recording
from layercert.certify.replay import Unproved

__all__ = ["BY_BALLS", "BY_RATIONALS", "Recording", "Unproved", "prove"]
