"""Models of other libraries, used through the methods that they have."""
