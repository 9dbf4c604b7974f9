"""Audits: attacks and verifiers measured against exact radii.

scores = audit(truth(None), tools_named(["pgd", "crown"]), Wanted(norms=("linf",)))
write_audit(scores, Path("audit"))
"""

from layercert.audit.answers import Answers
from layercert.audit.case import Case, Tool, Truth, Wanted, truth
from layercert.audit.page import write_audit
from layercert.audit.scores import Score, Standing, audit, ranking, read_scores
from layercert.audit.tools import tools_named

__all__ = [
    "Answers",
    "Case",
    "Score",
    "Standing",
    "Tool",
    "Truth",
    "Wanted",
    "audit",
    "ranking",
    "read_scores",
    "tools_named",
    "truth",
    "write_audit",
]
