"""Configuration: sections, loading, where each value comes from, the reference page."""
