"""Compiled PyTorch networks: whether and how, and what is computed once for a plane."""
