"""Stand-ins for the world outside: disks that fail, clocks and pools that tests turn."""
