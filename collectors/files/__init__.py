"""Files on this machine and behind URLs: written whole, in the background, and again after a failure."""
