"""Recordings in MCAP, which ROS 2 tools and Foxglove open."""
