"""Options of layers and models that came after the paper: positions, biases, probes, encoders."""
