"""Simulated phones that any adb client can drive: the device's side of ADB, with a simulated phone behind it."""
