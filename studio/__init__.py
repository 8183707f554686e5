"""The studio: AgenticX as a local server with a web page, for one user."""
