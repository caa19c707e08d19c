"""All demonstrations."""
