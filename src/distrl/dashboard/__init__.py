"""The dashboard: a local web server that shows runs, live or stored, and never asks a role anything.

What it shows is read through `distrl.open_run`. It is a process of its own, also beside a training, which goes on whatever becomes of it.
"""
