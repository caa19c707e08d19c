"""Rendered thermal scenes: what the simulator's cameras see, what models are trained on and judged by."""
