"""Which points of a grid are measured, in which order, and what lies between them."""
