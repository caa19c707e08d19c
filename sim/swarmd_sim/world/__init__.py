"""The world that a simulated drone looks at: a solar farm, its faults, a camera over it, and frames of it."""
