"""Protocol logic of swarmd, free of I/O: events in, effects out."""
