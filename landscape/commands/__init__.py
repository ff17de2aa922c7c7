"""The commands of ``landscape``, one in each file."""
