"""One full set of weights: its file formats, and how it is matched with a network."""
