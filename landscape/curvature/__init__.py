"""How sharp a loss is along a training, in files of their own; and planes along the directions in which it bends."""
