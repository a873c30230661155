"""What docs/build.py is made of."""
