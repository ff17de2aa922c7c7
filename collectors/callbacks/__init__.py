"""Callbacks: what users hang into a training loop, and what calls them."""
