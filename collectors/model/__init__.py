"""The smallest PyTorch training loop that callbacks can hang into."""
