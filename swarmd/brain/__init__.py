"""The brain process: composition root, driver, bus, supervision, journal, eye link, discovery."""
