"""Debugging: gradient checks, anomalies, time, memory, drawings of graphs."""
