"""Hypothesis strategies for attempt histories and trace rows (extra `strategies`)."""
