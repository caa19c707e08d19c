"""The ground view: the swarm as one node sees it, now and in the past, for a browser on the same machine."""
