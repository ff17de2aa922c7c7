"""The commands of ``landscape``, one file for each group in the help."""
