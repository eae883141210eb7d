"""Simulated phones: pure state machines with a screen, latency and faults."""
