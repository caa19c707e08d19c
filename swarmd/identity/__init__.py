"""Identity and fleet files."""
