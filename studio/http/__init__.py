"""HTTP below the routes: connections, write time-outs, the guard, bodies, problems, OpenAPI."""
