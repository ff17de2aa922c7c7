"""The evaluator for PyTorch networks."""
