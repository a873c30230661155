"""Looking inside: gradient checks, anomalies, time, memory, pictures of graphs."""
