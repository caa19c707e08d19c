"""The daemon's side of releases: files, slots, deltas, gates, audit."""
