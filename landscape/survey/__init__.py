"""A survey: points of a plane, measured by a pool, kept in a file."""
