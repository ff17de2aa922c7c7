"""SummaryCollector: what is recorded while a network trains, and when."""
