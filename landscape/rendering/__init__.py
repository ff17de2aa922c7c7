"""Lit pictures in three dimensions: light, solids, a viewer and the program that rasterises them."""
