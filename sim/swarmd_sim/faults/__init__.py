"""Faults and hostile nodes that a run injects."""
