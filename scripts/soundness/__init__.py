"""The audit of answers, proofs and files: `make soundness`, docs/soundness.md."""
