"""What the swarm shares: signed logs, one for each origin, and the join-semilattices that are read out of them."""
