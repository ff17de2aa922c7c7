"""How a loss bends: eigenpairs, trace and density of its Hessian from products alone, in any framework."""
