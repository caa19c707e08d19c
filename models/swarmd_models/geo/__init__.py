"""Where things are: positions, poses, placing on the ground, site maps, survey areas."""
