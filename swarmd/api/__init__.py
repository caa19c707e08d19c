"""What the brain serves: control socket, HTTP, verbs, views, metrics, events."""
