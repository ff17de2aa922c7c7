"""What was removed on purpose, with the reason; nothing else may be missing in a newer commit."""

# Names of calls that are no longer made.
CALLS = {}

# Patterns of arrays that only an older commit's calls give. Where both give them, they are compared.
ARRAYS = {"*:share_seen_by_optimizer": "how much of eigenvectors an optimizer sees is no longer measured"}
