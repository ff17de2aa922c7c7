"""Where evaluators run: in this process, or in Ray workers on one machine or many."""
