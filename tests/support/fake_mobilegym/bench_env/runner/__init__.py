"""A small package of our own with the shape of MobileGym's, for tests of the bridge to it."""
