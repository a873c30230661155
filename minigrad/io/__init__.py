"""Files: written in one step, read with suspicion. Arrays as safetensors, plain data as JSON."""
