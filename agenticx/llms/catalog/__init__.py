"""Models by name: the catalogue, local servers, key checks."""
