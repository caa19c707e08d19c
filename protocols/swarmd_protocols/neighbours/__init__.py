"""Two swarms of different owners in one place: what they agree on, and what they tell each other."""
