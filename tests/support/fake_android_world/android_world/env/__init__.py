"""Stands in for AndroidWorld's package: its names and its ways, with tasks that real adb can set up and check."""
