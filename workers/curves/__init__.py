"""Curves through weight space whose ends are given, and how they are fitted, in any framework with gradients."""
