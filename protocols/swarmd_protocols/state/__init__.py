"""The replicated state: log, anti-entropy, projections; detections, claims, positions, clock."""
