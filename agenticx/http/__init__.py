"""HTTP/1.1 for every client of this package: connections, requests, server-sent events and JSON lines."""
