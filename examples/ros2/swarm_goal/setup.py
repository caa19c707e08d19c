"""What colcon builds: `colcon build --packages-select swarm_goal`."""

from setuptools import setup

setup(
    name="swarm_goal",
    version="0.1.0",
    packages=["swarm_goal"],
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/swarm_goal"]),
        ("share/swarm_goal", ["package.xml"]),
    ],
    install_requires=["setuptools"],
    zip_safe=True,
    maintainer="you",
    maintainer_email="you@example.com",
    description="Turns what the swarm finds into goals: an example of a ROS 2 node beside swarmd.",
    license="Apache-2.0",
    entry_points={"console_scripts": ["swarm_goal = swarm_goal.node:main"]},
)
