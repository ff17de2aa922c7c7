"""A landscape as solids in three dimensions: the surface as triangles, paths as tubes, networks as balls."""
