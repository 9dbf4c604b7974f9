"""Properties in VNN-LIB 1.0 and 2.0: reading them exactly, deciding them, measuring the room they leave."""
