"""TensorBoard records: what a run logs, encoded and written."""
