"""Tools that check and observe: gradients, anomalies, time, memory, optional packages."""
