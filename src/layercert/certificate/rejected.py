"""The verdict of a check that fails."""

from layercert.errors import LayerCertError


class Rejected(LayerCertError):  # noqa: N818 - a verdict, not a mistake of the program
    """The certificate does not prove its claim; the message says where."""
