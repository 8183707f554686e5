"""Image models: the protocol, the Images API, and a scripted one for tests."""
