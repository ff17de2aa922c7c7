"""The evaluator for Keras networks."""
