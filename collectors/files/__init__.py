"""Files on this machine and behind URLs: whole, by one writer at a time, in the background, again after a failure."""
