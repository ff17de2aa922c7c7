"""A network as named tensors: what it consists of, and copies of its values."""
