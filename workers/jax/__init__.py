"""The evaluator for JAX networks."""
