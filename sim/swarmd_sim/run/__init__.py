"""Runs: engine, hosts, scenarios, replay, fuzzing, sweeps."""
