"""Learning in the swarm: what members' labels teach a model's head, told as signed deltas, merged robustly."""
