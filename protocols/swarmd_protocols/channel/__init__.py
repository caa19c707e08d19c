"""Sealed frames: who they go to, size budgets, the gossip queue."""
