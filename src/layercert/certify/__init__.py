"""Certificates made from what a search leaves; `layercert.certificate` claims and checks, and imports none of this."""

from layercert.certify.neurons import Unproved
from layercert.certify.prove import prove

__all__ = ["Unproved", "prove"]
