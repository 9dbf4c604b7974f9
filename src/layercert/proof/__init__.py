"""Certificates made from what a search leaves; `layercert.certificate` claims and checks, and imports none of this."""

from layercert.proof.neurons import Unproved
from layercert.proof.prove import prove

__all__ = ["Unproved", "prove"]
