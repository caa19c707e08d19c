"""Transports: dumb pipes of sealed frames."""
