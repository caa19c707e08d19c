"""The world that `sim://` renders, and the simulator that runs the daemon's own protocol objects."""
