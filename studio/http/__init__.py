"""HTTP for the routes: connections, write time-outs, access control, bodies, problems, OpenAPI."""
