"""The user's data as a fixed set of samples."""
