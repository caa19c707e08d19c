"""Seeing: frame, pose and time in, track events out."""
