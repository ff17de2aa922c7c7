"""The whole state of a training: saved at intervals, encrypted on demand, resumed."""
