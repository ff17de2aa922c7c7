"""Moving pictures of a landscape: the walk of each run over it, or an orbit around it."""
