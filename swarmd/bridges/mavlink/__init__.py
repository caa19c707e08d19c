"""MAVLink: pose, gimbal, battery and armed state from PX4 or ArduPilot; counts back to the ground station."""
