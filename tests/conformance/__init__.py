"""One suite that states every rule of the driver once and runs on every driver; see run.py."""
