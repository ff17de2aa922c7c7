"""What all evaluators share: totals, partitions, checks, tuning."""
