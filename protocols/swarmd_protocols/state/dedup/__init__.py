"""Which detections are the same thing: a pure, incremental view of the replicated sightings."""
