"""What lies between two networks: the barrier on the straight line, and curves that go round it."""
