"""DDS topics that ROS 2 reads as they are, from CycloneDDS alone: no ROS on the device."""
