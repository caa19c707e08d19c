"""A ROS 2 node that turns what the swarm finds into goals: what it decides is in `goals.py`, ROS in `node.py`."""
