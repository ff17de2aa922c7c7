"""Derivatives of PyTorch networks: products with their Hessian, and curves that follow their gradient."""
