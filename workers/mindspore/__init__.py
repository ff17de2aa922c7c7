"""The evaluator for MindSpore networks."""
