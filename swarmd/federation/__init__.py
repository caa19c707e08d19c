"""Many swarms: the gateway that speaks for one above, and the region that hears them. See docs/federation.md."""
