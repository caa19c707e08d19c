"""Thumbnails: small pictures of what was seen, named by their hash in sightings and fetched when somebody looks."""
