"""THOR, a second-order optimizer: gradients divided by the curvature that each layer's inputs and gradients show."""
